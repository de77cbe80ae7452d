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
"""The funnel: counts, drops, problems, and their order."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.funnel import Funnel, Line
from verl_cxr.files import RecordError

PLAN = (Line("films", paper=100), Line("lateral", dropped=True), Line("pairs", paper=60))


def text_of(funnel):
    out = io.StringIO()
    Console(file=out, width=100).print(funnel.table())
    return out.getvalue()


def test_planned_lines_stand_in_their_order_beside_the_paper():
    funnel = Funnel()
    funnel.plan(*PLAN)
    funnel.drop("unplanned")
    funnel.drop("lateral")
    funnel.drop("no box", stage="grpo")
    funnel.count("pairs", 3)
    funnel.total("films", 7)
    funnel.total("films", 7)
    funnel.keep("grpo", "train")
    found = funnel.to_dict()
    assert found["lines"] == [
        {"line": "films", "count": 7, "paper": 100},
        {"line": "pairs", "count": 3, "paper": 60},
    ]
    assert [drop["reason"] for drop in found["dropped"]] == ["lateral", "unplanned", "no box"]
    assert funnel.rows == 1
    shown = text_of(funnel)
    places = [shown.index(label) for label in ("films", "dropped: lateral", "pairs", "dropped: unplanned", "no box")]
    assert places == sorted(places)
    assert "100" in shown


def test_a_planned_line_is_shown_when_nothing_was_counted():
    funnel = Funnel()
    funnel.plan(*PLAN)
    assert "-0" in text_of(funnel)
    assert funnel.to_dict()["dropped"] == []


def test_problems_are_counted_by_kind_with_a_few_examples():
    context = BuildContext(out=None, seed=0)
    for row in range(8):
        context.problem("a.csv", row, "split", f"unknown split: {row}")
    context.problem("b.csv", None, "", "not a zip file")
    (zipped, split) = context.funnel.to_dict()["problems"]
    assert (zipped["problem"], zipped["count"]) == ("not a zip file", 1)
    assert (split["problem"], split["count"], len(split["examples"])) == ("unknown split", 8, 5)
    assert split["examples"][1] == "a.csv, row 1, field 'split': unknown split: 1"
    assert context.funnel.problems == 9


def test_problems_of_endless_kinds_stay_bounded():
    funnel = Funnel()
    for number in range(1000):
        funnel.problem(RecordError("x", f"kind {number}"))
    found = funnel.to_dict()["problems"]
    assert len(found) <= 101
    assert sum(problem["count"] for problem in found) == 1000


def test_a_strict_build_stops():
    context = BuildContext(out=None, seed=0, strict=True)
    with pytest.raises(RecordError) as caught:
        context.problem("a.csv", 3, "split", "unknown split: x")
    assert (caught.value.file, caught.value.row, caught.value.field) == ("a.csv", 3, "split")
    assert context.funnel.problems == 0


events = st.lists(
    st.tuples(st.sampled_from(["drop", "count", "keep", "problem", "discard", "read"]), st.sampled_from("abc"))
)


def play(funnel, happened):
    for kind, name in happened:
        if kind == "drop":
            funnel.drop(name, stage="grpo" if name == "a" else "all")
        elif kind == "count":
            funnel.count(name)
        elif kind == "keep":
            funnel.keep("sft", name)
        elif kind == "problem":
            funnel.problem(RecordError("f", f"{name}: detail", file="x"))
        elif kind == "discard":
            funnel.discard(name, unit="boxes")
        else:
            funnel.read += 1
    return funnel


@given(events)
def test_a_saved_funnel_comes_back(happened):
    funnel = Funnel()
    funnel.plan(*PLAN)
    found = play(funnel, happened).to_dict()
    assert Funnel.from_dict(found).to_dict() == found


@given(events, events)
def test_parts_merge_into_the_whole(first, second):
    whole, part, other = Funnel(), Funnel(), Funnel()
    for funnel in (whole, part, other):
        funnel.plan(*PLAN)
    play(whole, first + second)
    play(part, first).merge(play(other, second))
    mine, all_of_it = part.to_dict(), whole.to_dict()
    mine["lines"].sort(key=lambda line: line["line"])
    all_of_it["lines"].sort(key=lambda line: line["line"])
    assert mine == all_of_it
