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
"""Boxes that name their coordinate frame, so that no two conventions are ever mixed.

Five box conventions occur in the data sets of this field (pixels as corners or as corner and size, 0-1, 0-100, 0-1000).
A :class:`Box` carries its :class:`Frame`; the one conversion is :meth:`Box.to`; an operation on boxes of two frames is
an error.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = [
    "BOX_FORMATS",
    "PERCENT",
    "RELATIVE_1000",
    "UNIT",
    "Box",
    "BoxFormat",
    "Frame",
    "FrameMismatchError",
    "box_from_numbers",
    "is_number",
    "pixel_frame",
]

BoxFormat = Literal["pixel_xyxy", "pixel_xywh", "unit_xyxy", "percent_xyxy", "relative_1000_xyxy"]
BOX_FORMATS: tuple[str, ...] = get_args(BoxFormat)
"""The formats in which a box may be written on disk."""

_INF = math.inf
_LARGEST = sys.float_info.max


class FrameMismatchError(TypeError):
    """Two boxes of different coordinate frames met in one operation."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The named extent of a coordinate system laid over one image: x runs over [0, width], y over [0, height], down."""

    name: str
    width: float
    height: float


RELATIVE_1000 = Frame("relative_1000", 1000.0, 1000.0)
"""Qwen-VL's grounding convention: 0-1000 along either side, whatever the image's shape."""
UNIT = Frame("unit", 1.0, 1.0)
PERCENT = Frame("percent", 100.0, 100.0)


def pixel_frame(width: float, height: float) -> Frame:
    """The pixels of an image of ``width`` x ``height``."""
    return Frame("pixel", float(width), float(height))


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle from (x1, y1) to (x2, y2), end-exclusive, in the units of ``frame``.

    Any four numbers make a box, so that a model's nonsense can be represented; one without area is ``is_degenerate``.
    """

    x1: float
    y1: float
    x2: float
    y2: float
    frame: Frame

    @property
    def width(self) -> float:
        """x2 - x1; negative or NaN for some degenerate boxes."""
        return self.x2 - self.x1

    @property
    def height(self) -> float:
        """y2 - y1; negative or NaN for some degenerate boxes."""
        return self.y2 - self.y1

    @property
    def area(self) -> float:
        """Area in squared units of the frame; 0 for a degenerate box."""
        return 0.0 if self.is_degenerate else self.width * self.height

    @property
    def is_degenerate(self) -> bool:
        """True for a box without extent (x2 <= x1 or y2 <= y1) or with a coordinate that is not finite."""
        return not (-_INF < self.x1 < self.x2 < _INF and -_INF < self.y1 < self.y2 < _INF)

    @property
    def is_inside(self) -> bool:
        """True when no edge lies beyond the frame."""
        width, height = self.frame.width, self.frame.height
        return 0 <= self.x1 <= width and 0 <= self.x2 <= width and 0 <= self.y1 <= height and 0 <= self.y2 <= height

    def to(self, frame: Frame) -> Box:
        """The same rectangle of the same image in the units of ``frame``."""
        if frame is self.frame or frame == self.frame:
            return self
        sx, sy = frame.width / self.frame.width, frame.height / self.frame.height
        return Box(self.x1 * sx, self.y1 * sy, self.x2 * sx, self.y2 * sy, frame)

    def clip(self) -> Box:
        """The part inside the frame; degenerate when there is none."""
        if self.is_inside:
            return self
        width, height = self.frame.width, self.frame.height
        return Box(
            min(max(self.x1, 0.0), width),
            min(max(self.y1, 0.0), height),
            min(max(self.x2, 0.0), width),
            min(max(self.y2, 0.0), height),
            self.frame,
        )

    def rounded(self) -> Box:
        """The box on whole numbers: each coordinate at its nearest, or outwards where the nearest would leave no area.

        Raises:
            ValueError: a coordinate is not finite.
        """
        numbers = (self.x1, self.y1, self.x2, self.y2)
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"cannot round a box with coordinates {numbers}")
        x1, y1, x2, y2 = (float(round(number)) for number in numbers)
        nearest = Box(x1, y1, x2, y2, self.frame)
        if not nearest.is_degenerate or self.is_degenerate:
            return nearest
        x1, y1, x2, y2 = math.floor(self.x1), math.floor(self.y1), math.ceil(self.x2), math.ceil(self.y2)
        return Box(float(x1), float(y1), float(x2), float(y2), self.frame)

    def union(self, other: Box) -> Box:
        """The smallest box around both.

        Raises:
            FrameMismatchError: the frames differ.
        """
        self._require_frame_of(other)
        return Box(
            min(self.x1, other.x1), min(self.y1, other.y1), max(self.x2, other.x2), max(self.y2, other.y2), self.frame
        )

    def iou(self, other: Box) -> float:
        """Intersection over union, in [0, 1]; 0 when either box is degenerate.

        Raises:
            FrameMismatchError: the frames differ.
        """
        self._require_frame_of(other)
        # Comparisons instead of min and max: this runs once a region of every rollout.
        across = (self.x2 if self.x2 < other.x2 else other.x2) - (self.x1 if self.x1 > other.x1 else other.x1)
        down = (self.y2 if self.y2 < other.y2 else other.y2) - (self.y1 if self.y1 > other.y1 else other.y1)
        if across <= 0 or down <= 0:
            return 0.0
        shared = across * down
        union = (self.x2 - self.x1) * (self.y2 - self.y1) + (other.x2 - other.x1) * (other.y2 - other.y1) - shared
        # A coordinate that is not finite makes the union NaN or infinite, as does an area beyond 1e308.
        return shared / union if 0 < union < _INF else 0.0

    def _require_frame_of(self, other: Box) -> None:
        if self.frame is not other.frame and self.frame != other.frame:
            raise FrameMismatchError(
                f"cannot combine a box in {self.frame} with one in {other.frame}: convert with .to()"
            )


def is_number(value: object) -> bool:
    """True for a finite int or float that fits a float; False for a boolean, which Python counts among the ints."""
    return type(value) in (int, float) and -_LARGEST <= value <= _LARGEST  # type: ignore[operator]


def box_from_numbers(numbers: Sequence[float], fmt: str, width: float, height: float) -> Box:
    """Read a box as data sets write it.

    Args:
        numbers: four numbers; for ``pixel_xywh`` the third and fourth are the size, else the far corner.
        fmt: one of :data:`BOX_FORMATS`.
        width, height: the image in pixels.

    Returns:
        The box in the image's pixel frame, not clipped.

    Raises:
        ValueError: not four numbers, or an unknown format.
    """
    if fmt not in BOX_FORMATS:
        raise ValueError(f"unknown box format {fmt!r}: use one of {', '.join(BOX_FORMATS)}")
    if len(numbers) != 4:
        raise ValueError(f"a box has 4 numbers, not {len(numbers)}")
    a, b, c, d = (float(number) for number in numbers)
    pixels = pixel_frame(width, height)
    if fmt == "pixel_xyxy":
        return Box(a, b, c, d, pixels)
    if fmt == "pixel_xywh":
        return Box(a, b, a + c, b + d, pixels)
    frame = {"unit_xyxy": UNIT, "percent_xyxy": PERCENT, "relative_1000_xyxy": RELATIVE_1000}[fmt]
    return Box(a, b, c, d, frame).to(pixels)
