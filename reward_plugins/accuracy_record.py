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
"""What the accuracy-gated reward says about one trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from reward_plugins.checks import numbers_of, row_of

__all__ = ["AccuracyRecord", "MeasurementScore"]


class MeasurementScore(NamedTuple):
    """One measurement of the table, beside one trajectory."""

    name: str
    relevant: bool
    """r_k: it bears on the question."""
    exposed: bool
    """b_k: the gate let the policy see it."""
    agrees: bool
    """s_k: rationale and answer speak of it, and rightly. False unless it was exposed."""
    contradicts: bool
    """They say what it denies. False unless it was exposed."""
    hallucinated: bool
    """They give a number for it that the policy was not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRecord:
    """Score of one trajectory.

    Attributes:
        reward: what trains.
        format: R_format before its weight: the trajectory is well formed.
        correct: R_acc.
        consistency: R_CXR, in [0, 1].
        tool_calls: R_tool, the calls that cost: all, refused ones included, up to ``max_calls``.
        answered: an answer could be read.
        calls, refused_calls: of the policy.
        gate_asked, gate_open: the gate was asked; it let measurements through.
        relevant, exposed, applicable: how many measurements bear on the question, were shown, and both (sum of a_k).
        agreeing, contradicted: how many of those the text agrees with, and denies.
        withheld: measurements that were known and not shown.
        hallucinated_measurement: a number is given for a measurement that was not shown.
        turns, answer_chars: of the policy; characters of its last turn.
        answer: as it was read; None if it could not be.
        answer_reason: a :class:`~verl_cxr.answers.Reason`'s value.
        problem: why the format is wrong, a :class:`~reward_plugins.accuracy_format.Problem`'s value.
        gate_reasons: why measurements were withheld.
        measurements: the parts of R_CXR.
    """

    reward: float
    format: bool
    correct: bool
    consistency: float
    tool_calls: int
    answered: bool
    calls: int
    refused_calls: int
    gate_asked: bool
    gate_open: bool
    relevant: int
    exposed: int
    applicable: int
    agreeing: int
    contradicted: int
    withheld: int
    hallucinated_measurement: bool
    turns: int
    answer_chars: int
    answer: tuple[str, ...] | None
    answer_reason: str
    problem: str | None
    gate_reasons: tuple[str, ...]
    measurements: tuple[MeasurementScore, ...]

    def numbers(self) -> dict[str, float]:
        """The numeric fields but ``reward``, one fixed set of keys, all finite; verl logs them beside the reward."""
        return numbers_of(self, _NUMBERS)

    def to_dict(self, question_id: str) -> dict[str, Any]:
        """A row of ``verl-cxr score``."""
        row = {"id": question_id, "reward": self.reward} | row_of(self, _NUMBERS)
        row["answer"] = None if self.answer is None else list(self.answer)
        row.update(answer_reason=self.answer_reason, problem=self.problem, gate_reasons=list(self.gate_reasons))
        row["measurements"] = [score._asdict() for score in self.measurements]
        return row


_NUMBERS = (
    "format",
    "correct",
    "consistency",
    "tool_calls",
    "answered",
    "calls",
    "refused_calls",
    "gate_asked",
    "gate_open",
    "relevant",
    "exposed",
    "applicable",
    "agreeing",
    "contradicted",
    "withheld",
    "hallucinated_measurement",
    "turns",
    "answer_chars",
)
