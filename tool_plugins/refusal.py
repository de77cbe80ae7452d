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
"""Why a tool call is not executed, and the answer that tells the policy how to call rightly."""

from __future__ import annotations

from enum import Enum

from verl_cxr.trajectory import MALFORMED

__all__ = ["Refusal", "RefusedError"]


class Refusal(str, Enum):
    """What :attr:`verl_cxr.trajectory.Call.refused` starts with. The list is closed."""

    MALFORMED = MALFORMED
    """The text of the call is not JSON of the agreed form."""
    OVER_BUDGET = "over_budget"
    """The call is beyond the number that a question may have."""
    NO_TURN_LEFT = "no_turn_left"
    """The call stands in the last turn, after which nothing is executed."""
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    UNKNOWN_IMAGE = "unknown_image"
    UNKNOWN_REGION = "unknown_region"
    EMPTY_BOX = "empty_box"
    OUTSIDE = "outside"
    """The box does not meet the film."""
    TOO_SMALL = "too_small"
    """The crop would be enlarged beyond what the film holds."""
    TOO_THIN = "too_thin"
    UNAVAILABLE = "unavailable"
    """The service behind the tool did not answer."""
    NO_ROOM = "no_room"
    """The pictures of the call do not fit into what is left of the response."""


class RefusedError(Exception):
    """Raised by a tool; caught by the toolbox, which answers the policy with it.

    Attributes:
        reason: the code.
        advice: a sentence or two that the policy can act on.
    """

    def __init__(self, reason: Refusal, advice: str) -> None:
        super().__init__(f"{reason.value}: {advice}")
        self.reason, self.advice = reason, advice
