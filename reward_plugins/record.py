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
"""What a reward says about one response: the number that trains, and everything that explains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from reward_plugins.checks import numbers_of, row_of

__all__ = ["RegionScore", "RewardRecord"]


class RegionScore(NamedTuple):
    """One annotated region, by its canonical name.

    ``f1`` is None where it was not scored, or is undefined and left out of the mean.
    """

    name: str
    iou: float
    f1: float | None
    gated: bool
    """The gate is open: F1 counts (IoU > tau, or the gate is off and the region is predicted)."""
    predicted: int
    """How many times the response names the region; 0 means missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRecord:
    """Score of one response. A refused response has 0 for each score that was wanted, no regions, and the reason.

    Attributes:
        reward: what trains.
        format: the response passed the format gate.
        reason, detail: why not (a :class:`~verl_cxr.trace.FormatReason`'s value, and the place); None if it passed.
        reasoning, answer: the two sides of Table 4, before their weights.
        spatial, factual: mean IoU, and mean gated F1, over annotated regions. These four are None where they were not
            scored or there is nothing to compare with.
        unverifiable: a side that the reward needs has nothing to compare with (no located region, or no report), and
            counts 0. Watch it: such studies do not belong in the training set.
        extra_regions: distinct predicted regions that the study does not name. duplicate_regions: repetitions.
        degenerate_boxes, overrun_boxes: predicted boxes without area, and beyond the image.
        duplicate_findings: share of predicted regions whose finding is word for word that of an earlier region of
            another name. misplaced_findings: share whose finding is word for word that of another annotated region,
            and not that of its own. The two shortcuts that the paper names and does not measure.
        report_chars, response_chars: lengths, in characters.
    """

    reward: float
    format: bool
    reasoning: float | None
    spatial: float | None
    factual: float | None
    answer: float | None
    unverifiable: bool = False
    n_regions: int = 0
    annotated_regions: int = 0
    missing_regions: int = 0
    extra_regions: int = 0
    duplicate_regions: int = 0
    degenerate_boxes: int = 0
    overrun_boxes: int = 0
    iou_over_tau: float = 0.0
    duplicate_findings: float = 0.0
    misplaced_findings: float = 0.0
    report_chars: int = 0
    response_chars: int = 0
    regions: tuple[RegionScore, ...] = ()
    reason: str | None = None
    detail: str | None = None

    def numbers(self) -> dict[str, float]:
        """The numeric fields but ``reward``, one fixed set of keys, all finite: True is 1, what was not scored is 0.

        verl logs them beside the reward, for which it has a column of its own: a second ``reward`` would garble it.
        """
        return numbers_of(self, _NUMBERS)

    def to_dict(self, study_id: str) -> dict[str, Any]:
        """A row of ``verl-cxr score``: null where :meth:`numbers` has 0 for what was not scored."""
        row = {"id": study_id, "reward": self.reward} | row_of(self, _NUMBERS)
        row.update(reason=self.reason, detail=self.detail)
        row["regions"] = [
            {"name": r.name, "iou": r.iou, "f1": r.f1, "gated": r.gated, "predicted": r.predicted} for r in self.regions
        ]
        return row


_NUMBERS = (
    "format",
    "reasoning",
    "spatial",
    "factual",
    "answer",
    "unverifiable",
    "iou_over_tau",
    "n_regions",
    "annotated_regions",
    "missing_regions",
    "extra_regions",
    "duplicate_regions",
    "degenerate_boxes",
    "overrun_boxes",
    "duplicate_findings",
    "misplaced_findings",
    "report_chars",
    "response_chars",
)
