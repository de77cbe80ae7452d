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
"""The cardiothoracic ratio (Danzer 1919): maximal heart width over maximal inner thorax width.

The heart's width is the sum of its two largest distances from the midline, to the right and to the left, which need
not lie at one level. The thorax is measured from rib to rib in one row, the widest above the costophrenic angles.
"""

from __future__ import annotations

import numpy as np

from verl_cxr.measure.chest import Chest
from verl_cxr.measure.masks.outlines import HEART
from verl_cxr.measure.measurement import UNITS, Line, Measurement
from verl_cxr.measure.shape import extent

__all__ = ["cardiothoracic_ratio"]


def cardiothoracic_ratio(chest: Chest) -> Measurement | None:
    """The ratio; None without a heart, or without a row that shows both lungs."""
    if chest.heart is None or chest.right is None or chest.left is None or chest.thorax is None:
        return None
    thorax = chest.thorax
    x1, top, x2, bottom = extent(chest.heart.mask)
    rows, columns = chest.grid
    at = int(np.searchsorted(thorax.rows, thorax.level))
    y, middle = (thorax.level + 0.5) / rows, thorax.middle / columns
    right_y, left_y = (_level(chest.heart.mask[:, column]) / rows for column in (x1, x2 - 1))
    return Measurement(
        name="ctr",
        value=(x2 - x1) / thorax.width,
        unit=UNITS["ctr"],
        structures=(chest.heart.name, chest.right.name, chest.left.name),
        approximate=chest.heart.name != HEART,
        lines=(
            Line("thorax", int(thorax.first[at]) / columns, y, int(thorax.last[at]) / columns, y),
            Line("heart", x1 / columns, right_y, middle, right_y),
            Line("heart", middle, left_y, x2 / columns, left_y),
            Line("midline", middle, top / rows, middle, bottom / rows),
        ),
    )


def _level(column: np.ndarray) -> float:
    held = np.flatnonzero(column)
    return float(held[0] + held[-1] + 1) / 2
