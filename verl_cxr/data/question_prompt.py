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
"""What the evidence agent is asked about a question: `verl_cxr/data/prompts/question.txt`."""

from __future__ import annotations

from verl_cxr.data.prompt import IMAGE_PLACEHOLDER, template
from verl_cxr.geometry import Frame
from verl_cxr.question import Kind, Question

__all__ = ["question_prompt"]

_FORMS = {
    Kind.MULTIPLE_CHOICE: "one of the options",
    Kind.TWO_OPTION: "one of the options",
    Kind.CLOSED: "yes or no",
    Kind.MULTI_LABEL: "all that apply, or none",
    Kind.OPEN: "a few words",
}


def question_prompt(question: Question, frame: Frame, *, max_calls: int = 5) -> str:
    """The user's message about a question, with one placeholder for each of its films.

    Args:
        frame: in which tools expect boxes.
        max_calls: K_max.
    """
    return template("question.txt").substitute(
        images=IMAGE_PLACEHOLDER * len(question.images),
        question=question.with_options_text(),
        calls=max_calls,
        coordinates=_coordinates(frame),
        form=_FORMS[question.kind],
    )


def _coordinates(frame: Frame) -> str:
    if frame.name == "relative_1000":
        return "[x1, y1, x2, y2], integers from 0 to 1000 relative to the width and height of the image"
    if frame.name == "pixel":
        return f"[x1, y1, x2, y2], pixels of the image, which is {frame.width:.0f} wide and {frame.height:.0f} high"
    raise ValueError(f"no wording for boxes in the frame {frame.name!r}: use relative_1000 or pixel")
