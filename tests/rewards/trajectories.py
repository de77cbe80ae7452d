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
"""Questions, evidence and trajectories for the tests of the accuracy-gated reward."""

from collections.abc import Mapping
from typing import Any

from verl_cxr.measure import UNITS, Evidence, GateDecision, GateReason, Measurement
from verl_cxr.question import Kind, Question
from verl_cxr.trajectory import Call, Trajectory

HEART = Question(
    "heart", (), "What does the film show?", ("Cardiomegaly", "Pneumothorax", "Normal heart size"), ("Cardiomegaly",),
    Kind.MULTIPLE_CHOICE,
)  # fmt: skip
RIGHT = "<think>The heart is enlarged, CTR 0.58.</think><answer>A</answer>"
WRONG = "<think>The heart is enlarged, CTR 0.58.</think><answer>B</answer>"
CALL = Call("roi_crop", {"region": "heart"}, observation="A crop of the heart.")


def measured(**values: float) -> tuple[Measurement, ...]:
    return tuple(Measurement(name, value, UNITS[name], ("heart",)) for name, value in values.items())  # type: ignore[arg-type,index]


def evidence(
    shown: Mapping[str, float] | None = None, withheld: Mapping[str, float] | None = None, **options: Any
) -> Evidence:
    """Evidence with an open gate where something is shown, else with a closed one, of a film that is not PA."""
    decision = GateDecision(bool(shown), () if shown else (GateReason.NOT_PA,), "PA" if shown else "AP")
    return Evidence(decision, measured(**(shown or {})), measured(**(withheld or {})), {"masks": "phantom"}, **options)


def rollout(
    text: str = RIGHT,
    *,
    calls: int | tuple[Call, ...] = 0,
    shown: Mapping[str, float] | None = None,
    withheld: Mapping[str, float] | None = None,
    question: Question = HEART,
    **options: Any,
) -> Trajectory:
    """Two turns, the second of which is ``text``."""
    made = (CALL,) * calls if isinstance(calls, int) else calls
    found = evidence(shown, withheld) if shown or withheld else None
    return Trajectory(question.id, ("A wide heart.", text), made, ("Observations.",), found, **options)
