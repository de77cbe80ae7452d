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
"""What the environment puts between two turns, as one message: the answers to the calls, then the measurements.

One message, because verl's supervised data set reads each message by itself, and chat templates join tool messages that
follow one another; so the policy meets in both stages of training the very tokens that it meets when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from tool_plugins.refusal import Refusal
from tool_plugins.toolbox import Answered
from verl_cxr.trajectory import Call

__all__ = ["IMAGE", "Observation", "observe"]

IMAGE = "<image>"
"""Where a picture stands in the text, as in verl's data sets."""

_NOTHING = "No tool was called."
_NO_PICTURE = "The picture did not fit."


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """An observation.

    Attributes:
        answered: the calls of the turn, in order.
        package: text of the measurement package; empty without one.
    """

    answered: tuple[Answered, ...]
    package: str = ""

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls, for the log."""
        return tuple(each.call for each in self.answered)

    @property
    def images(self) -> list[Image.Image]:
        """The pictures, in the order in which the text shows them."""
        return [image for each in self.answered for image in each.images]

    @property
    def text(self) -> str:
        """The message, with :data:`IMAGE` where a picture stands."""
        lines, beyond = [], 0
        for number, each in enumerate(self.answered, start=1):
            if each.call.refused == Refusal.OVER_BUDGET.value:
                beyond += 1  # a policy that floods its plan is not answered by a flood
                if beyond > 1:
                    continue
            name = each.call.tool or "call"
            lines.append(f"{number}. {name}: {each.call.observation}" + "".join(f"\n{IMAGE}" for _ in each.images))
        if not lines:
            lines.append(_NOTHING)
        return "\n".join([*lines, *([self.package] if self.package else [])])

    def message(self) -> dict[str, Any]:
        """The message for a chat template."""
        images = iter(self.images)
        content: list[dict[str, Any]] = []
        for at, piece in enumerate(self.text.split(IMAGE)):
            if at:
                content.append({"type": "image", "image": next(images)})
            if piece:
                content.append({"type": "text", "text": piece})
        return {"role": "tool", "content": content}

    def with_fewer_pictures(self) -> Observation | None:
        """The observation without the pictures of the last call that has some; None: there is none."""
        for at in reversed(range(len(self.answered))):
            each = self.answered[at]
            if each.images:
                call = replace(
                    each.call,
                    refused=Refusal.NO_ROOM.value,
                    observation=f"{each.call.observation} {_NO_PICTURE}",
                    images=(),
                )
                return replace(self, answered=(*self.answered[:at], Answered(call), *self.answered[at + 1 :]))
        return None


def observe(answered: Sequence[Answered], package: str = "") -> Observation:
    """The observation of answered calls and a measurement package."""
    return Observation(tuple(answered), package)
