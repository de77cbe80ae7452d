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
"""How the stored pixels of a radiograph have to be turned and mirrored, by the tag Patient Orientation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from verl_cxr.geometry import Box, pixel_frame

__all__ = ["Orientation"]

_ACROSS, _DOWN = frozenset("LRAP"), frozenset("HF")


@dataclass(frozen=True, slots=True)
class Orientation:
    """How stored pixels become an upright film: transposed first, then mirrored."""

    transposed: bool = False
    mirrored: bool = False
    upside_down: bool = False

    @classmethod
    def from_patient(cls, directions: object) -> Orientation:
        """From Patient Orientation, which says where rows and columns lead to: `["L", "F"]` is upright.

        Whatever does not say it, as for a supine film from above, leaves the pixels as they are.
        """
        values = [str(part)[:1].upper() for part in directions] if isinstance(directions, (list, tuple)) else []
        if len(values) != 2:
            return cls()
        row, column = values
        transposed = row in _DOWN and column in _ACROSS
        if transposed:
            row, column = column, row
        if not (row in _ACROSS and column in _DOWN):
            return cls()
        # the side to which a lateral film looks is no mistake
        return cls(transposed, mirrored=row == "R", upside_down=column == "H")

    def __bool__(self) -> bool:
        return self.transposed or self.mirrored or self.upside_down

    def apply(self, pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The upright film of stored pixels, which have the shape [height, width, ...]."""
        if self.transposed:
            pixels = pixels.swapaxes(0, 1)
        if self.mirrored:
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray(pixels[::-1] if self.upside_down else pixels)

    def box(self, box: Box) -> Box:
        """Where a box of the stored pixels lies on the upright film, in that film's frame.

        Args:
            box: in the pixel frame of the stored pixels.
        """
        x1, y1, x2, y2, frame = box.x1, box.y1, box.x2, box.y2, box.frame
        width, height = frame.width, frame.height
        if self.transposed:
            x1, y1, x2, y2, width, height = y1, x1, y2, x2, height, width
        if self.mirrored:
            x1, x2 = width - x2, width - x1
        if self.upside_down:
            y1, y2 = height - y2, height - y1
        return Box(x1, y1, x2, y2, pixel_frame(width, height))
