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
"""Reading the calls of a turn."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tool_plugins.plan import Planned, parse_plan


def written(*calls: object) -> str:
    return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


def test_calls_are_read_in_order() -> None:
    text = "I see a film.\n" + written({"name": "a", "arguments": {"x": [1]}}, {"name": "b", "arguments": {}})
    assert parse_plan(text) == [Planned("a", {"x": [1]}), Planned("b", {})]


def test_a_turn_without_a_call_is_an_empty_plan() -> None:
    assert parse_plan("No tool is needed: {}") == []
    assert parse_plan("") == []


@pytest.mark.parametrize("arguments", [{}, None])
def test_missing_arguments_are_none(arguments: object) -> None:
    call = {"name": "a"} if arguments is None else {"name": "a", "arguments": arguments}
    assert parse_plan(written(call)) == [Planned("a")]


def test_arguments_may_be_json_within_json() -> None:
    assert parse_plan(written({"name": "a", "arguments": '{"x": 1}'})) == [Planned("a", {"x": 1})]


@pytest.mark.parametrize(
    "inner",
    [
        "",
        "crop the left lung",
        '{"name": "a", "arguments": {"x": 1}',
        "{'name': 'a'}",
        '{"name": "a", "arguments": {"x": NaN}}',
        '{"arguments": {}}',
        '{"name": 3}',
        '{"name": " "}',
        "[]",
        "null",
        '{"name": "a", "arguments": [1]}',
        '{"name": "a", "arguments": 1}',
        '{"name": "a", "arguments": "x"}',
        "[" * 100_000,
    ],
)
def test_what_is_no_call_is_kept_with_its_problem(inner: str) -> None:
    plan = parse_plan(f"<tool_call>{inner}</tool_call>")
    assert len(plan) == 1
    assert plan[0].problem is not None
    assert '{"name": "TOOL", "arguments": {...}}' in plan[0].problem  # what would be right
    assert len(plan[0].problem) < 300


def test_a_call_that_is_not_closed_is_kept() -> None:
    plan = parse_plan('<tool_call>{"name": "a"}\n<tool_call>{"name": "b"}</tool_call>')
    assert [(call.tool, call.problem is None) for call in plan] == [("", False), ("b", True)]


@given(st.text(alphabet='<>/tool_call{}"name:arguments,[]1 \n', max_size=300))
def test_nothing_raises(text: str) -> None:
    assert len(parse_plan(text)) == text.count("<tool_call>")
