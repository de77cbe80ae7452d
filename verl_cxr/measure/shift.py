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
"""Thoracic shift: how far the mediastinum's midline lies from the thorax's, over the thorax's width.

Positive is towards the patient's left. The mediastinum is read above the heart, near the carina: lower down the heart,
which lies on the left in everyone, would look like a shift. The thorax's midline is the spine where it has a mask,
else the middle between the lungs' lateral borders, row by row.
"""

from __future__ import annotations

import numpy as np

from verl_cxr.measure.chest import Chest
from verl_cxr.measure.masks.outlines import CARDIOMEDIASTINUM, HEART
from verl_cxr.measure.measurement import UNITS, Line, Measurement
from verl_cxr.measure.shape import spans

__all__ = ["thoracic_shift"]


def thoracic_shift(chest: Chest) -> Measurement | None:
    """The shift; None without a mediastinum, a row that shows both lungs, or room above the heart."""
    if chest.right is None or chest.left is None or chest.axis is None or chest.thorax is None:
        return None
    if chest.axis_hidden:
        return None
    top, bottom = chest.axis_rows
    axis = spans(chest.axis.mask[top:bottom])
    rows, middles = axis.rows + top, (axis.first + axis.last) / 2
    if chest.spine is not None:
        spine = spans(chest.spine.mask)
        shared, at, beside = np.intersect1d(rows, spine.rows, return_indices=True)
        center = (spine.first[beside] + spine.last[beside]) / 2
    else:
        thorax = chest.thorax
        shared, at, beside = np.intersect1d(rows, thorax.rows, return_indices=True)
        center = (thorax.first[beside] + thorax.last[beside]) / 2
    if not shared.size:
        return None
    (height, width), y = chest.grid, float(shared.mean() + 0.5)
    mediastinum, midline = float(middles[at].mean()), float(center.mean())
    used = [chest.axis.name, *([chest.spine.name] if chest.spine else []), chest.right.name, chest.left.name]
    return Measurement(
        name="shift",
        value=(mediastinum - midline) / chest.thorax.width,
        unit=UNITS["shift"],
        structures=tuple(used),
        approximate=chest.axis.name == CARDIOMEDIASTINUM and not (chest.heart and chest.heart.name == HEART),
        lines=(
            Line("midline", midline / width, top / height, midline / width, bottom / height),
            Line("mediastinum", mediastinum / width, top / height, mediastinum / width, bottom / height),
            Line("shift", midline / width, y / height, mediastinum / width, y / height),
        ),
    )
