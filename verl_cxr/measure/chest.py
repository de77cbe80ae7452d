# Copyright 2025 Individual Contributor: the verl-cxr authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The parts of a chest that the measurements share, read once from the outlines of a film.

Columns and rows are those of the outlines' grid. All horizontal places are in the image: the patient's right has the
smaller x on a film that is not flipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from verl_cxr.measure.masks.outlines import CARDIOMEDIASTINUM, HEART, LEFT_LUNG, RIGHT_LUNG, Outlines
from verl_cxr.measure.shape import Mask, centroid, extent, main_part, spans

__all__ = ["AXES", "Chest", "Part", "Thorax", "read_chest"]

AXES = ("upper mediastinum", "mediastinum", CARDIOMEDIASTINUM, "trachea")
"""Structures whose midline stands for the mediastinum, the best first."""

_SPINE = "spine"
_LEAST = 0.15  # of the thorax's height: above a heart that reaches higher, the mediastinum has not moved yet
_UPPER = 0.4  # of the thorax's height: the mediastinum above the heart, where there is no heart to tell


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One structure.

    Attributes:
        mask: its largest part, bool [rows, columns]; widths are measured on it.
        area: pixels of all its parts but specks. A large heart may cut a lung's base off from the rest.
        minor: share of the structure outside its largest part.
    """

    name: str
    mask: Mask
    area: int
    minor: float


@dataclass(frozen=True, slots=True, eq=False)
class Thorax:
    """The inner thorax between the lungs' lateral borders, row by row, above the costophrenic angles.

    Attributes:
        rows: rows in which both lungs are seen.
        first, last: lateral borders in each of them, end-exclusive columns.
        level: the row of the widest span.
        width: the widest span, columns.
    """

    rows: npt.NDArray[np.intp]
    first: npt.NDArray[np.intp]
    last: npt.NDArray[np.intp]
    level: int
    width: int

    @property
    def middle(self) -> float:
        """Column of the middle of the widest span."""
        at = int(np.searchsorted(self.rows, self.level))
        return float(self.first[at] + self.last[at]) / 2


@dataclass(frozen=True, slots=True, eq=False)
class Chest:
    """What is known of one chest; None for a part without a mask.

    Attributes:
        grid: (rows, columns) of every mask.
        heart: of the heart, or of heart and mediastinum where that was asked for.
        silhouette: of the heart, or of heart and mediastinum: what tells on which side the heart lies.
        axis: the best of :data:`AXES`.
        thorax: None where no row shows both lungs.
        axis_rows: rows of the axis between the lungs' tops and the heart, the lower half of them: the level of the
            carina, where the mediastinum moves most.
        axis_hidden: a large heart leaves too few of these rows to tell a shift by.
    """

    grid: tuple[int, int]
    right: Part | None
    left: Part | None
    heart: Part | None
    silhouette: Part | None
    axis: Part | None
    spine: Part | None
    thorax: Thorax | None
    axis_rows: tuple[int, int]
    axis_hidden: bool

    def axis_middle(self) -> float | None:
        """Mean column of the mediastinum's midline over `axis_rows`."""
        if self.axis is None:
            return None
        top, bottom = self.axis_rows
        edges = spans(self.axis.mask[top:bottom])
        return float((edges.first + edges.last).mean() / 2) if edges.rows.size else None

    def heart_middle(self) -> float | None:
        """Column of the heart's centre; of heart and mediastinum the lower half counts, which is the heart."""
        if self.silhouette is None:
            return None
        mask = self.silhouette.mask
        if self.silhouette.name != HEART:
            _, top, _, bottom = extent(mask)
            mask = mask[(top + bottom) // 2 :]
        return centroid(mask)[0]


def read_chest(outlines: Outlines, *, cardiomediastinum: bool = False) -> Chest:
    """Read the parts.

    Args:
        cardiomediastinum: let a mask of heart and mediastinum stand for a missing heart.
    """
    right, left, heart = _part(outlines, RIGHT_LUNG), _part(outlines, LEFT_LUNG), _part(outlines, HEART)
    alone, silhouette = heart, heart or _part(outlines, CARDIOMEDIASTINUM)
    if cardiomediastinum:
        heart = silhouette
    axis = next((part for name in AXES if (part := _part(outlines, name))), None)
    thorax = _thorax(right.mask, left.mask) if right and left else None
    rows, hidden = _axis_rows(right.mask, left.mask, alone) if right and left else ((0, outlines.grid[0]), True)
    return Chest(
        grid=outlines.grid,
        right=right,
        left=left,
        heart=heart,
        silhouette=silhouette,
        axis=axis,
        spine=_part(outlines, _SPINE),
        thorax=thorax,
        axis_rows=rows,
        axis_hidden=hidden,
    )


def _part(outlines: Outlines, name: str) -> Part | None:
    mask = outlines.get(name)
    return None if mask is None else Part(name, *main_part(mask))


def _thorax(right: Mask, left: Mask) -> Thorax | None:
    a, b = (left, right) if centroid(right)[0] > centroid(left)[0] else (right, left)
    bottom = min(_lateral_bottom(a, outer_is_left=True), _lateral_bottom(b, outer_is_left=False))
    edges_a, edges_b = spans(a), spans(b)
    rows, at_a, at_b = np.intersect1d(edges_a.rows, edges_b.rows, return_indices=True)
    above = rows < bottom
    rows, at_a, at_b = rows[above], at_a[above], at_b[above]
    if not rows.size:
        return None
    first = np.minimum(edges_a.first[at_a], edges_b.first[at_b])
    last = np.maximum(edges_a.last[at_a], edges_b.last[at_b])
    widest = np.flatnonzero(last - first == (last - first).max())
    at = int(widest[widest.size // 2])  # the middle one: a wall runs straight over many rows
    return Thorax(rows, first, last, int(rows[at]), int(last[at] - first[at]))


def _lateral_bottom(lung: Mask, *, outer_is_left: bool) -> int:
    """The row under the costophrenic angle: the lowest of the lung's lateral third, end-exclusive."""
    x1, _, x2, _ = extent(lung)
    third = max(1, (x2 - x1) // 3)
    outer = lung[:, x1 : x1 + third] if outer_is_left else lung[:, x2 - third : x2]
    return int(np.flatnonzero(outer.any(axis=1))[-1]) + 1


def _axis_rows(right: Mask, left: Mask, heart: Part | None) -> tuple[tuple[int, int], bool]:
    (_, top_right, _, bottom_right), (_, top_left, _, bottom_left) = extent(right), extent(left)
    top, bottom = min(top_right, top_left), max(bottom_right, bottom_left)
    height = bottom - top
    end = extent(heart.mask)[1] if heart else top + round(_UPPER * height)
    hidden = end - max(top_right, top_left) < max(2, _LEAST * height)
    end = max(end, top + 1)
    return ((top + end) // 2, end), hidden
