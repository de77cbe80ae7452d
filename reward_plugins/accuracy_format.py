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
"""R_format of the accuracy-gated reward: the last turn is a rationale, then one answer in its tags, and no more."""

from __future__ import annotations

import re
from enum import Enum

from verl_cxr.trajectory import Trajectory

__all__ = ["Problem", "problem_of", "rationale_of"]

_OPENING, _CLOSING, _CALL = "<answer>", "</answer>", "<tool_call>"
_THOUGHT = re.compile(r"</?think>")


class Problem(str, Enum):
    """Why a trajectory is not well formed."""

    CUT = "cut"
    """The response ended at the length limit."""
    MALFORMED_CALL = "malformed_call"
    """A tool call whose text could not be read as one."""
    CALL_IN_ANSWER = "call_in_answer"
    """A tool call in the last turn, which nobody executes."""
    MISSING_TAG = "missing_tag"
    REPEATED_TAG = "repeated_tag"
    TEXT_AFTER_ANSWER = "text_after_answer"
    EMPTY_ANSWER = "empty_answer"
    NO_RATIONALE = "no_rationale"


def problem_of(trajectory: Trajectory) -> Problem | None:
    """What is wrong with the form of a trajectory; None if nothing is."""
    if trajectory.cut:
        return Problem.CUT
    if any(call.malformed for call in trajectory.calls):
        return Problem.MALFORMED_CALL
    text = trajectory.answer_text
    if _CALL in text:
        return Problem.CALL_IN_ANSWER
    if text.count(_OPENING) > 1 or text.count(_CLOSING) > 1:
        return Problem.REPEATED_TAG
    rationale, opening, rest = text.partition(_OPENING)
    answer, closing, after = rest.partition(_CLOSING)
    if not opening or not closing:
        return Problem.MISSING_TAG
    if after.strip():
        return Problem.TEXT_AFTER_ANSWER
    if not answer.strip():
        return Problem.EMPTY_ANSWER
    return None if _THOUGHT.sub("", rationale).strip() else Problem.NO_RATIONALE


def rationale_of(text: str) -> str:
    """What a last turn says before its answer; all of it where it tags no answer."""
    return _THOUGHT.sub("\n\n", text.rpartition(_OPENING)[0] if _OPENING in text else text)
