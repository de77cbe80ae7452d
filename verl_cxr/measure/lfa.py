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
"""Lung-field asymmetry: ln(A_R / A_L), positive where the right lung is the larger one.

Its normal value depends on what a lung mask includes: masks with the lung behind the heart have a median of -0.105,
masks without it are positive. So its limits belong to the mask backend.
"""

from __future__ import annotations

import math
from itertools import pairwise

from verl_cxr.measure.chest import Chest, Part
from verl_cxr.measure.measurement import UNITS, Line, Measurement
from verl_cxr.measure.shape import extent

__all__ = ["lung_field_asymmetry"]


def lung_field_asymmetry(chest: Chest) -> Measurement | None:
    """The asymmetry; None unless both lungs have a mask."""
    if chest.right is None or chest.left is None:
        return None
    return Measurement(
        name="lfa",
        value=math.log(chest.right.area / chest.left.area),
        unit=UNITS["lfa"],
        structures=(chest.right.name, chest.left.name),
        lines=tuple(line for part in (chest.right, chest.left) for line in _frame(part)),
    )


def _frame(part: Part) -> tuple[Line, ...]:
    rows, columns = part.mask.shape
    x1, y1, x2, y2 = extent(part.mask)
    left, top, right, bottom = x1 / columns, y1 / rows, x2 / columns, y2 / rows
    corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    return tuple(Line(part.name, *start, *end) for start, end in pairwise(corners))
