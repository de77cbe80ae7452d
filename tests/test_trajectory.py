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
"""The trajectory record: what comes back from disk is what went there, and what is wrong is named with its place."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rewards.trajectories import CALL, evidence, rollout
from verl_cxr.trajectory import MALFORMED, Call, Trajectory, TrajectoryError, read_trajectories, write_trajectories

FULL = Trajectory(
    "q1",
    ("A plan.", "A rationale. <answer>B</answer>"),
    (replace(CALL, images=("crop-0.png",), seconds=0.25), Call("", {}, refused=f"{MALFORMED}: not JSON", turn=0)),
    ("A crop of the heart.",),
    evidence({"ctr": 0.58}, {"lfa": -0.2}),
    cut=True,
    timings={"turn_0": 0.5, "tools": 0.25},
)


def test_a_record_comes_back_through_json() -> None:
    assert Trajectory.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL
    assert FULL.answer_text == "A rationale. <answer>B</answer>"
    assert [call.malformed for call in FULL.calls] == [False, True]


def test_only_id_and_turns_are_required() -> None:
    assert Trajectory.from_dict({"id": "q", "turns": ["A"]}) == Trajectory("q", ("A",))


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    several = [FULL, FULL, rollout(), rollout(withheld={"ctr": 0.6})]  # rollouts of one question share its id
    assert write_trajectories(path, several) == 4
    assert list(read_trajectories(path)) == several
    before = path.read_bytes()
    write_trajectories(path, several)
    assert path.read_bytes() == before


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    turns=st.lists(TEXT, min_size=1, max_size=4),
    calls=st.lists(st.builds(Call, TEXT, st.dictionaries(TEXT, st.integers(0, 9)), st.none() | TEXT, TEXT), max_size=4),
    cut=st.booleans(),
)
def test_any_record_comes_back(turns: list[str], calls: list[Call], cut: bool) -> None:
    one = Trajectory("q", tuple(turns), tuple(calls), cut=cut)
    assert Trajectory.from_dict(json.loads(json.dumps(one.to_dict()))) == one


CALL_ROW = {"tool": "roi_crop", "arguments": {}}


@pytest.mark.parametrize(
    ("changes", "place", "problem"),
    [
        ({"id": None}, "id", "must be the text id"),
        ({"id": ""}, "id", "must be the text id"),
        ({"turns": []}, "turns", "missing: give the texts of the policy"),
        ({"turns": None}, "turns", "missing"),
        ({"turns": "A"}, "turns", "must be a list of texts, not text"),
        ({"turns": ["A", 7]}, "turns[1]", "must be text, not a number"),
        ({"observations": [None]}, "observations[0]", "must be text, not null"),
        ({"calls": {}}, "calls", "must be a list of tool calls, not an object"),
        ({"calls": ["x"]}, "calls[0]", "a call is an object, not text"),
        ({"calls": [{}]}, "calls[0].tool", "must be text, not null"),
        ({"calls": [CALL_ROW | {"arguments": []}]}, "calls[0].arguments", "must be an object or null"),
        ({"calls": [CALL_ROW | {"refused": True}]}, "calls[0].refused", "must be the reason or null"),
        ({"calls": [CALL_ROW | {"turn": 1}]}, "calls[0].turn", "index of one of the 1 turns, not 1"),
        ({"calls": [CALL_ROW | {"turn": True}]}, "calls[0].turn", "index of one"),
        ({"calls": [CALL_ROW | {"seconds": -1}]}, "calls[0].seconds", "must be a number of seconds"),
        ({"calls": [CALL_ROW | {"images": "x"}]}, "calls[0].images", "must be a list of texts"),
        ({"evidence": []}, "evidence", "must be an object or null"),
        ({"evidence": {}}, "evidence.decision", "must be an object"),
        ({"cut": "no"}, "cut", "must be true or false, not text"),
        ({"timings": {"a": "b"}}, "timings.a", "must be a number of seconds"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], place: str, problem: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"id": "q", "turns": ["A"]}) + "\n" + json.dumps({"id": "q", "turns": ["A"]} | changes))
    with pytest.raises(TrajectoryError) as error:
        list(read_trajectories(path))
    assert str(error.value).startswith(f"{path}, row 2, field '{place}': ")
    assert problem in str(error.value)
