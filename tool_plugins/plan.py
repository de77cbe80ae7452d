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
"""The plan of a turn: the tool calls in its text, in the form that Qwen's chat templates teach (Hermes)::

    <tool_call>
    {"name": "roi_crop", "arguments": {"region": "left lung"}}
    </tool_call>

verl's own parser passes over a call that it cannot read; here it is kept, refused, and counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Planned", "parse_plan"]

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_FORM = 'Write {"name": "TOOL", "arguments": {...}} between <tool_call> and </tool_call>.'


@dataclass(frozen=True, slots=True)
class Planned:
    """One call of a plan.

    Attributes:
        problem: why its text cannot be read as a call, in words for the policy; None: it can.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def parse_plan(text: str) -> list[Planned]:
    """Every call in a turn's text, in order. Never raises; linear in the text."""
    calls = []
    for piece in text.split(_OPENING)[1:]:
        inner, closing, _ = piece.partition(_CLOSING)
        calls.append(_read(inner) if closing else Planned("", problem=f"{_CLOSING} is missing. {_FORM}"))
    return calls


def _read(text: str) -> Planned:
    try:
        record = json.loads(text, parse_constant=_no_constant)
        arguments = record.get("arguments", {}) if isinstance(record, dict) else None
        if isinstance(arguments, str):  # some models write the arguments as JSON within JSON
            arguments = json.loads(arguments, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return Planned("", problem=f"It is not JSON ({str(error)[:80]}). {_FORM}")
    if not isinstance(record, dict) or not isinstance(record.get("name"), str) or not record["name"].strip():
        return Planned("", problem=f"It has no name. {_FORM}")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return Planned(record["name"].strip(), problem=f"The arguments are no object. {_FORM}")
    return Planned(record["name"].strip(), arguments)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")
