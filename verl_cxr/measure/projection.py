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
"""g_view: is a film an upright PA projection of a chest? An AP film that might be PA is refused as uncertain."""

from __future__ import annotations

from verl_cxr.measure.gate import GateReason
from verl_cxr.measure.thresholds import Thresholds
from verl_cxr.measure.view.reading import ViewReading

__all__ = ["check_view"]


def check_view(reading: ViewReading, thresholds: Thresholds) -> tuple[GateReason, ...]:
    """What speaks against a measurement; empty for a PA film. An orientation that a backend does not know passes."""
    reasons = []
    probabilities = reading.probabilities
    if probabilities is None:
        reasons.append(GateReason.VIEW_UNKNOWN)
    elif probabilities["OTHER"] >= thresholds.other_reject:
        reasons.append(GateReason.NOT_CHEST)
    elif probabilities["PA"] <= thresholds.pa_reject:
        reasons.append(GateReason.NOT_PA)
    elif probabilities["PA"] < thresholds.pa_accept:
        reasons.append(GateReason.VIEW_UNCERTAIN)
    for probability, reason in (
        (reading.rotated, GateReason.ROTATED),
        (reading.inverted, GateReason.INVERTED),
        (reading.flipped, GateReason.FLIPPED),
    ):
        if probability is not None and probability >= thresholds.orientation_reject:
            reasons.append(reason)
    return tuple(reasons)
