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
"""Executes the calls of a plan: within the budget, one by one or side by side, and never at the price of a crash."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from tool_plugins.case import Case
from tool_plugins.plan import Planned
from tool_plugins.refusal import Refusal, RefusedError
from tool_plugins.tool import Result, Tool, harmless
from verl_cxr.trajectory import Call

__all__ = ["Answered", "Toolbox", "refused"]


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """A call with the pictures that it brought."""

    call: Call
    images: tuple[Image.Image, ...] = ()


class Toolbox:
    """The tools that a policy may call.

    Args:
        tools: with distinct names.
        max_calls: K_max, how many calls of a trajectory are executed.
    """

    def __init__(self, tools: Sequence[Tool], *, max_calls: int = 5) -> None:
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            raise ValueError(f"tools need distinct names, not {', '.join(tool.name for tool in tools)}")
        self.max_calls = max_calls

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's form, for the chat template."""
        return [tool.schema for tool in self.tools.values()]

    def check(self, planned: Planned, *, turn: int, made: int) -> Answered | None:
        """The refusal of a call that is not to be executed; None: it is.

        Args:
            made: how many calls the trajectory had before this one, refused ones included.
        """
        if planned.problem is not None:
            return refused(planned, Refusal.MALFORMED, planned.problem, turn=turn)
        if made >= self.max_calls:
            allowed = f"A question may have {self.max_calls} calls." if self.max_calls else "No call is allowed."
            return refused(planned, Refusal.OVER_BUDGET, allowed, turn=turn)
        if planned.tool not in self.tools:
            names = ", ".join(self.tools) or "none"
            return refused(planned, Refusal.UNKNOWN_TOOL, f"Tools are: {names}.", turn=turn)
        return None

    def execute(self, planned: Planned, case: Case, *, turn: int) -> Answered:
        """Execute a call that `check` let pass.

        Raises:
            Exception: the tool is broken; wrong arguments are answered instead.
        """
        began = time.monotonic()
        try:
            result = self.tools[planned.tool](planned.arguments, case)
        except RefusedError as error:
            answered = refused(planned, error.reason, error.advice, turn=turn)
            return replace(answered, call=replace(answered.call, seconds=time.monotonic() - began))
        return succeeded(planned, result, turn=turn, seconds=time.monotonic() - began)

    def answer(self, plan: Sequence[Planned], case: Case, *, turn: int, made: int = 0) -> list[Answered]:
        """Answer a whole plan, call by call."""
        return [
            self.check(planned, turn=turn, made=made + at) or self.execute(planned, case, turn=turn)
            for at, planned in enumerate(plan)
        ]


def succeeded(planned: Planned, result: Result, *, turn: int, seconds: float) -> Answered:
    """An executed call."""
    call = Call(
        tool=planned.tool,
        arguments=_loggable(planned.arguments),
        observation=harmless(result.text),
        images=tuple(f"{planned.tool}-{at}" for at in range(len(result.images))),
        seconds=seconds,
        turn=turn,
    )
    return Answered(call, result.images)


def refused(planned: Planned, reason: Refusal, advice: str, *, turn: int) -> Answered:
    """A call that was not executed."""
    text = harmless(advice)
    return Answered(
        Call(
            tool=harmless(planned.tool),
            arguments=_loggable(planned.arguments),
            refused=reason.value,
            observation=f"Refused. {text}",
            turn=turn,
        )
    )


def _loggable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in arguments.items()}
