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
"""The outlines of one film's structures, whoever made them, and the protocol of those who do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from verl_cxr.anatomy import load_vocabulary
from verl_cxr.film import Film
from verl_cxr.geometry import Box, pixel_frame
from verl_cxr.measure.shape import Mask, extent, main_part

__all__ = ["CARDIOMEDIASTINUM", "HEART", "LEFT_LUNG", "LUNGS", "RIGHT_LUNG", "MaskBackend", "MaskError", "Outlines"]

RIGHT_LUNG, LEFT_LUNG, LUNGS = "right lung", "left lung", "lungs"
HEART, CARDIOMEDIASTINUM = "cardiac silhouette", "cardiomediastinum"


class MaskError(RuntimeError):
    """Masks that cannot be had: a damaged file, missing weights. Never that a film shows no lung."""


@dataclass(frozen=True, slots=True, eq=False)
class Outlines:
    """Masks of one film by canonical name, all on one grid that covers the whole film.

    The grid may be coarser than the film or have another aspect: ratios of widths and of areas survive that.

    Attributes:
        masks: bool [rows, columns] of each structure; one that was not found is absent or empty.
        width, height: of the film in pixels.
        backend: stamp of what made them.
        confidence: mean probability inside a mask, where the backend knows it.
        degraded: too coarse for a measurement, such as boxes.
        sides_assumed: the lungs were told apart by their place in the image alone, so that a flipped film would not
            show.
    """

    masks: Mapping[str, Mask] = field(repr=False)
    width: int
    height: int
    backend: str
    confidence: Mapping[str, float] = field(default_factory=dict)
    degraded: bool = False
    sides_assumed: bool = False

    def __post_init__(self) -> None:
        shapes = {mask.shape for mask in self.masks.values()}
        if len(shapes) > 1 or any(len(shape) != 2 or 0 in shape for shape in shapes):
            raise MaskError(f"{self.backend}: masks of one film must share one grid, got {sorted(shapes)}")
        if any(mask.dtype != np.bool_ for mask in self.masks.values()):
            raise MaskError(f"{self.backend}: masks must be boolean")

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of the masks; the film's own where there is no mask."""
        return next((mask.shape for mask in self.masks.values()), (self.height, self.width))

    def get(self, name: str) -> Mask | None:
        """The mask of a structure under any of its names; None if there is none, or it is empty."""
        mask = self.masks.get(name)
        if mask is None:
            mask = self.masks.get(load_vocabulary().canonical(name))
        return mask if mask is not None and mask.any() else None

    def box(self, name: str) -> Box | None:
        """The bounds of a structure's largest part in the film's pixels; None without a mask."""
        mask = self.get(name)
        if mask is None:
            return None
        (rows, columns), (x1, y1, x2, y2) = self.grid, extent(main_part(mask)[0])
        return Box(float(x1), float(y1), float(x2), float(y2), pixel_frame(columns, rows)).to(
            pixel_frame(self.width, self.height)
        )


class MaskBackend(Protocol):
    """Something that outlines the structures of a film."""

    name: str
    """The stamp on every result."""

    def outline(self, film: Film) -> Outlines:
        """Outline a film. Structures that are not found are left out.

        Raises:
            MaskError: the backend failed; the film is not to blame.
        """
        ...
