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
"""What of a response is scored, and that predictions and studies belong together."""

import json

import pytest

from verl_cxr.evaluate.predictions import read_predictions, references, scored_text
from verl_cxr.files import RecordError
from verl_cxr.study import Report, Study


def study(name, split=None, **report):
    return Study(name, None, 10, 10, None, split, Report(**report), ())


STUDIES = [study("a", findings="F.", impression="I."), study("b", "test", impression="J."), study("c")]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("<think>[]</think><answer> Clear lungs.\n</answer>", "Clear lungs."),
        ("<think>broken<answer>Clear.</answer> trailing", "Clear."),
        ("<answer>draft</answer><answer>final</answer>", "final"),
        ("<answer>draft</answer><answer>cut off", "draft"),
        ("<answer>lost <answer>kept</answer>", "kept"),
        ("<answer></answer>", ""),
        ("Clear lungs.", None),
        ("<think>[]</think><answer>cut off", None),
        ("</answer>Clear<answer>", None),
        ("<ANSWER>Clear</ANSWER>", None),
    ],
)
def test_the_scored_text(response, text):
    assert scored_text(response) == text


def test_the_scored_text_takes_linear_time():
    assert scored_text("<answer>" * 20_000 + "x" * 100_000) is None


def test_references():
    both = references(STUDIES)
    assert both.texts == {"a": "F. I.", "b": "J."}
    assert both.without == ("c",)
    assert references(STUDIES, "findings").texts == {"a": "F."}
    assert references(STUDIES, "impression", split="test").texts == {"b": "J."}
    with pytest.raises(ValueError, match=r"no study of the split 'validate' has a report to compare with \(both\)"):
        references(STUDIES, split="validate")
    with pytest.raises(ValueError, match="unknown section 'notes': use both, findings, impression"):
        references(STUDIES, "notes")


def read(tmp_path, *rows):
    path = tmp_path / "P.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_predictions(path, references(STUDIES))


def row(name, response="x"):
    return {"id": name, "response": response}


def test_predictions_take_the_order_of_the_studies(tmp_path):
    found = read(tmp_path, row("b", "<answer>B</answer>"), row("c"), row("a", "A"))
    assert (found.texts, found.answers) == (("A", "B"), 1)
    assert found.pairs(references(STUDIES)) == [("A", "F. I."), ("B", "J.")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("a")], r"P\.jsonl, field 'id': 1 of 2 studies have no prediction: 'b'"),
        ([row("a"), row("b"), row("z")], r"P\.jsonl, row 3, field 'id': 'z' is not the id of a study"),
        ([row("a"), row("a")], "row 2, field 'id': 'a' is already the id of row 1: give each seed a file of its own"),
        ([row("c"), row("c")], "row 2, field 'id': 'c' is already the id of row 1"),
        ([{"id": "a"}], "row 1, field 'response': missing"),
        ([row("a", 3)], "row 1, field 'response': must be text, not a number"),
        ([row(7)], "row 1, field 'id': must be text, not a number"),
        ([[]], "row 1: a row is a JSON object, not a list"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path, rows, message):
    with pytest.raises(RecordError, match=message):
        read(tmp_path, *rows)
