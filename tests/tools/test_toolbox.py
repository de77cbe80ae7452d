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
"""Budget, refusals and observations."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from PIL import Image

from tool_plugins.case import Case
from tool_plugins.observation import IMAGE, observe
from tool_plugins.options import AgentOptions
from tool_plugins.plan import Planned, parse_plan
from tool_plugins.refusal import Refusal, RefusedError
from tool_plugins.tool import Result, function_schema, harmless
from tool_plugins.toolbox import Toolbox
from verl_cxr.trajectory import MALFORMED, Trajectory


class Echo:
    """Answers with its arguments, and as many pictures as asked for."""

    name = "echo"
    schema = function_schema("echo", "Echo.")

    def __call__(self, arguments: Mapping[str, Any], case: Case) -> Result:
        if "no" in arguments:
            raise RefusedError(Refusal.BAD_ARGUMENTS, "Say yes.")
        pictures = tuple(Image.new("RGB", (64, 64), (place, 0, 0)) for place in range(arguments.get("pictures", 0)))
        return Result(str(arguments.get("say", "hello")), pictures)


@pytest.fixture
def toolbox() -> Toolbox:
    return Toolbox([Echo()], max_calls=2)


def echo(**arguments: Any) -> Planned:
    return Planned("echo", arguments)


def test_calls_beyond_the_budget_are_refused_and_kept(toolbox: Toolbox, case: Case) -> None:
    answered = toolbox.answer([echo()] * 4, case, turn=0)
    assert [each.call.refused for each in answered] == [None, None, "over_budget", "over_budget"]
    assert "2 calls" in answered[2].call.observation


def test_the_budget_counts_over_rounds(toolbox: Toolbox, case: Case) -> None:
    assert [each.call.refused for each in toolbox.answer([echo()] * 2, case, turn=1, made=1)] == [None, "over_budget"]


def test_a_refused_call_counts_too(toolbox: Toolbox, case: Case) -> None:
    answered = toolbox.answer([echo(no=1), Planned("zoom"), echo()], case, turn=0)
    assert [each.call.refused for each in answered] == ["bad_arguments", "unknown_tool", "over_budget"]
    assert answered[1].call.observation == "Refused. Tools are: echo."


def test_a_malformed_call_is_malformed_for_the_reward(toolbox: Toolbox, case: Case) -> None:
    (answered,) = toolbox.answer(parse_plan("<tool_call>crop it</tool_call>"), case, turn=0)
    assert answered.call.refused == MALFORMED
    assert answered.call.malformed


def test_names_are_distinct() -> None:
    with pytest.raises(ValueError, match="distinct names"):
        Toolbox([Echo(), Echo()])


def test_a_broken_tool_is_no_refusal(toolbox: Toolbox, case: Case) -> None:
    with pytest.raises(TypeError):
        toolbox.answer([echo(pictures="three")], case, turn=0)


def test_an_observation_shows_pictures_where_its_text_says(toolbox: Toolbox, case: Case) -> None:
    answered = toolbox.answer([echo(say="a", pictures=2), echo(say="b")], case, turn=0)
    observation = observe(answered, "The package.")
    assert observation.text == f"1. echo: a\n{IMAGE}\n{IMAGE}\n2. echo: b\nThe package."
    content = observation.message()["content"]
    assert [part["type"] for part in content] == ["text", "image", "text", "image", "text"]
    assert [part["image"] for part in content if part["type"] == "image"] == observation.images
    joined = "".join(part.get("text", IMAGE) for part in content)
    assert joined == observation.text


def test_an_empty_plan_is_observed_too() -> None:
    assert observe([], "The package.").text == "No tool was called.\nThe package."


def test_a_flood_is_answered_once(toolbox: Toolbox, case: Case) -> None:
    observation = observe(toolbox.answer([echo()] * 500, case, turn=0))
    assert len(observation.calls) == 500
    assert observation.text.count("\n") == 2


def test_pictures_are_dropped_from_the_end(toolbox: Toolbox, case: Case) -> None:
    full = observe(toolbox.answer([echo(pictures=1), echo(pictures=2)], case, turn=0), "P.")
    fewer = full.with_fewer_pictures()
    assert fewer is not None
    assert fewer.text == f"1. echo: hello\n{IMAGE}\n2. echo: hello The picture did not fit.\nP."
    assert [call.refused for call in fewer.calls] == [None, "no_room"]
    none = fewer.with_fewer_pictures()
    assert none is not None
    assert (none.images, none.with_fewer_pictures()) == ([], None)


@pytest.mark.parametrize(
    "text", ["<image>", "<|im_end|>", "</tool_response>", "a<video>b", "<|vision_start|>", "<answer>"]
)
def test_no_text_of_a_tool_is_mark_up(toolbox: Toolbox, case: Case, text: str) -> None:
    assert text not in harmless(f"x {text} y")
    answered = toolbox.answer([echo(say=text), Planned(text)], case, turn=0)
    assert text not in observe(answered).text
    assert harmless("a < b, 3 <4") == "a < b, 3 <4"


def test_a_log_of_any_call_is_a_trajectory(toolbox: Toolbox, case: Case) -> None:
    answered = toolbox.answer([echo(pictures=1), Planned("", problem="none"), echo(no=[1, {"a": None}])], case, turn=0)
    trajectory = Trajectory("q", ("plan", "answer"), tuple(each.call for each in answered))
    assert Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict()))) == trajectory


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"routing": "sometimes"}, "routing='sometimes'"),
        ({"measurements": "yes"}, "measurements='yes'"),
        ({"max_calls": -1}, "max_calls=-1"),
        ({"rounds": 0}, "rounds=0"),
        ({"rounds": True}, "rounds=True"),
        ({"max_zoom": 0.5}, "max_zoom"),
        ({"tools": ["zoom"]}, "there is no tool 'zoom'"),
        ({"zoom": 1}, "no option 'zoom'"),
        ({"routing": "all"}, "needs static_calls"),
        ({"routing": "all", "static_calls": [{"name": "zoom"}]}, "static call"),
        ({"routing": "all", "static_calls": [{"name": "roi_crop", "arguments": {}}] * 6}, "more than max_calls"),
    ],
)
def test_wrong_options_are_refused(section: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        AgentOptions.from_mapping(section)
