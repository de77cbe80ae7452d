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
"""Plane geometry of binary masks, bool [height, width]: parts, spans of rows, solidity.

Pixel j covers [j, j + 1), so that spans and extents are end-exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage
from scipy.spatial import ConvexHull, QhullError

__all__ = ["Mask", "Spans", "centroid", "extent", "main_part", "solidity", "spans"]

Mask = npt.NDArray[np.bool_]
_SPECK = 0.005
_EIGHT = np.ones((3, 3), dtype=bool)


def main_part(mask: Mask) -> tuple[Mask, int, float]:
    """The largest connected part of a mask, the pixels of all parts but specks, and the share outside the largest.

    A speck is a part with less than 0.5 % of the pixels. A mask without a pixel gives itself and zeros.
    """
    labels, count = ndimage.label(mask, structure=_EIGHT)
    if count <= 1:
        return mask, int(mask.sum()), 0.0
    sizes = np.bincount(labels.ravel())[1:]
    largest, total = int(sizes.argmax()), int(sizes.sum())
    return labels == largest + 1, int(sizes[sizes >= _SPECK * total].sum()), float(1 - sizes[largest] / total)


@dataclass(frozen=True, slots=True)
class Spans:
    """The outermost pixels of each row of a mask.

    Attributes:
        rows: rows that hold a pixel, ascending.
        first, last: leftmost edge and rightmost edge of each of these rows, end-exclusive.
    """

    rows: npt.NDArray[np.intp]
    first: npt.NDArray[np.intp]
    last: npt.NDArray[np.intp]


def spans(mask: Mask) -> Spans:
    """The spans of a mask's rows; gaps inside a row do not count."""
    rows = np.flatnonzero(mask.any(axis=1))
    held = mask[rows]
    return Spans(rows, held.argmax(axis=1), mask.shape[1] - held[:, ::-1].argmax(axis=1))


def extent(mask: Mask) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of a mask that is not empty, end-exclusive."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def centroid(mask: Mask) -> tuple[float, float]:
    """(x, y) of the centre of a mask that is not empty, in pixels from its grid's corner."""
    across, down = mask.sum(axis=0), mask.sum(axis=1)
    count = across.sum()
    x = float((across * (np.arange(across.size) + 0.5)).sum() / count)
    y = float((down * (np.arange(down.size) + 0.5)).sum() / count)
    return x, y


def solidity(mask: Mask, *, beside: Mask | None = None) -> float:
    """Area over the area of the convex hull, in (0, 1], of a mask that is not empty. Stretching an axis keeps it.

    Args:
        beside: pixels that the hull may cover without being missed, such as the heart's beside a lung.
    """
    edges = spans(mask)
    columns = np.concatenate([edges.first, edges.last, edges.first, edges.last])
    rows = np.concatenate([edges.rows, edges.rows, edges.rows + 1, edges.rows + 1])
    try:
        hull = ConvexHull(np.stack([columns, rows], axis=1).astype(float))
    except QhullError:  # pragma: no cover - four corners of a pixel always span an area
        return 1.0
    area, allowed = int(mask.sum()), 0
    if beside is not None:
        allowed = int(np.count_nonzero(_inside(hull.points[hull.vertices], mask.shape) & beside & ~mask))
    return min(1.0, area / max(float(hull.volume) - allowed, 1.0))


def _inside(corners: npt.NDArray[np.float64], shape: tuple[int, ...]) -> Mask:
    """The pixels whose centres lie in a convex polygon; far faster than a general polygon's test."""
    rows, columns = np.arange(shape[0]) + 0.5, np.arange(shape[1]) + 0.5
    first, last = np.full(shape[0], np.inf), np.full(shape[0], -np.inf)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        crossed = np.flatnonzero((rows >= min(y1, y2)) & (rows <= max(y1, y2)))
        if y1 != y2 and crossed.size:
            x = x1 + (rows[crossed] - y1) * (x2 - x1) / (y2 - y1)
            first[crossed] = np.minimum(first[crossed], x)
            last[crossed] = np.maximum(last[crossed], x)
    return np.asarray((columns >= first[:, None]) & (columns <= last[:, None]))
