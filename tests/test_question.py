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
"""The question record: what enters, what is refused and with which words."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.question import Kind, Question, QuestionError, letter, read_questions, write_questions

RECORD = {
    "id": "q1",
    "images": ["films/a.png", "films/b.png"],
    "question": "Which lung is abnormal?",
    "options": ["Left", "Right", "Both"],
    "answer": ["Right"],
    "kind": "multiple_choice",
    "category": ["Abnormality"],
    "split": "train",
    "view": "PA",
    "source": "ours",
    "licence": "CC0",
    "extra": {"study": "s1", "n": 2},
}


def record(**changes):
    return RECORD | changes


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_record_becomes_a_question():
    question = Question.from_dict(RECORD, root="/data")
    assert question == Question(
        id="q1",
        images=(Path("/data/films/a.png"), Path("/data/films/b.png")),
        question="Which lung is abnormal?",
        options=("Left", "Right", "Both"),
        answer=("Right",),
        kind=Kind.MULTIPLE_CHOICE,
        category=("Abnormality",),
        split="train",
        view="PA",
        source="ours",
        licence="CC0",
        extra={"study": "s1", "n": 2},
    )
    assert question.to_dict(root="/data") == RECORD
    assert len({question, question}) == 1


def test_least_that_a_question_has():
    question = Question.from_dict({"id": "q", "question": "Why?", "answer": ["Because."], "kind": "open"})
    assert (question.images, question.options, question.category, question.extra) == ((), (), (), {})
    assert (question.split, question.view, question.source, question.licence) == (None, None, None, None)


def test_options_as_they_are_prompted():
    question = Question.from_dict(RECORD)
    assert question.with_options_text() == "Which lung is abnormal?\nA) Left\nB) Right\nC) Both"
    assert question.letters == ("B",)
    assert Question.from_dict(record(options=[], kind="open")).with_options_text() == "Which lung is abnormal?"
    assert Question.from_dict(record(options=[], kind="open")).letters == ()
    labels = Question.from_dict(record(kind="multi_label", answer=["Both", "Left"]))
    assert labels.letters == ("C", "A")


def test_letters_go_on_behind_z():
    assert [letter(place) for place in (0, 25, 26, 27, 51, 52, 701, 702)] == [
        "A", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA",
    ]  # fmt: skip


@given(st.integers(0, 20_000))
def test_no_two_options_share_a_letter(place):
    assert letter(place) != letter(place + 1)
    assert len(letter(place)) <= len(letter(place + 1))


def test_a_question_of_labels_may_have_no_answer():
    assert Question.from_dict(record(kind="multi_label", answer=[])).answer == ()


@pytest.mark.parametrize("answer", ["yes", "no", "Yes"])
def test_a_closed_question(answer):
    closed = Question.from_dict(record(options=[], kind="closed", answer=[answer]))
    assert closed.kind is Kind.CLOSED
    assert Question.from_dict(record(options=["Yes", "No"], kind="closed", answer=["No"])).letters == ("B",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": None}, "field 'id': missing"),
        ({"id": " "}, "field 'id': must not be empty"),
        ({"id": 3}, "field 'id': must be text"),
        ({"question": ""}, "field 'question': must not be empty"),
        ({"kind": "essay"}, "field 'kind': 'essay' is not a kind: use one of multiple_choice, closed"),
        ({"kind": None}, "field 'kind': missing"),
        ({"answer": None}, "field 'answer': missing: give a list"),
        ({"answer": "Right"}, "field 'answer': must be a list of texts, not text"),
        ({"answer": ["right"]}, r"field 'answer\[0\]': 'right' is none of the options"),
        ({"answer": ["Right", "Right"]}, r"field 'answer\[1\]': 'Right' repeats"),
        ({"answer": []}, "field 'answer': must not be empty"),
        ({"answer": [float("nan")]}, r"field 'answer\[0\]': must be text, not a number"),
        ({"options": ["Left", "Right", "Left"]}, r"field 'options\[2\]': 'Left' repeats"),
        ({"options": ["Left", None]}, r"field 'options\[1\]': must be text, not null"),
        ({"options": ["Right", " "]}, r"field 'options\[1\]': must not be empty"),
        ({"options": ["Right"]}, "field 'options': a multiple-choice question has at least 2, not 1"),
        ({"kind": "two_option"}, "field 'options': a two-option question has 2, not 3"),
        ({"kind": "open"}, "field 'options': an open question has none"),
        ({"kind": "closed", "options": []}, r"field 'answer\[0\]': a closed question is answered by yes or no"),
        (
            {"kind": "closed", "options": [], "answer": ["yes", "no"]},
            "field 'answer': a closed question has one, not 2",
        ),
        ({"images": "a.png"}, "field 'images': must be a list of texts"),
        ({"images": ["../a.png"]}, r"field 'images\[0\]': '../a.png' lies outside"),
        ({"images": ["a/../../a.png"]}, r"field 'images\[0\]'"),
        ({"view": "top"}, "field 'view': 'top' is not a view"),
        ({"extra": []}, "field 'extra': must be an object, not a list"),
        ({"category": "a"}, "field 'category': must be a list"),
        ({"split": 1}, "field 'split': must be text or null"),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(QuestionError, match=message):
        Question.from_dict(record(**changes), root="/data")


def test_files_keep_questions_as_they_are(tmp_path):
    questions = [Question.from_dict(record(id=f"q{number}"), root=tmp_path) for number in range(3)]
    for name in ("q.jsonl", "q.jsonl.gz"):
        assert write_questions(tmp_path / name, questions) == 3
        assert list(read_questions(tmp_path / name)) == questions
    assert json.loads((tmp_path / "q.jsonl").read_text().splitlines()[0])["images"][0] == "films/a.png"
    assert gzip.decompress((tmp_path / "q.jsonl.gz").read_bytes()) == (tmp_path / "q.jsonl").read_bytes()


def test_films_elsewhere_keep_their_path(tmp_path):
    question = Question.from_dict(record(images=["/films/a.png"]), root=tmp_path)
    write_questions(tmp_path / "q.jsonl", [question])
    assert list(read_questions(tmp_path / "q.jsonl")) == [question]
    assert list(read_questions(tmp_path / "q.jsonl", root="/elsewhere")) == [question]


def test_errors_of_a_file_name_the_row(tmp_path):
    path = write(tmp_path / "q.jsonl", RECORD, "", record(id="q2", kind="essay"))
    with pytest.raises(QuestionError, match=r"q\.jsonl, row 3, field 'kind'"):
        list(read_questions(path))
    path = write(tmp_path / "q.jsonl", RECORD, RECORD)
    with pytest.raises(QuestionError, match="row 2, field 'id': 'q1' is already the id of row 1"):
        list(read_questions(path))
    with pytest.raises(QuestionError, match="row 1: not JSON"):
        list(read_questions(write(tmp_path / "q.jsonl", "{")))


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "q.jsonl"
    good = Question.from_dict(RECORD)
    write_questions(path, [good])
    before = path.read_bytes()
    with pytest.raises(QuestionError, match="'q1' repeats"):
        write_questions(path, [good, good])
    odd = Question.from_dict(record(id="q2", extra={"a": {1, 2}}))
    with pytest.raises(QuestionError, match="question 'q2' cannot be written as JSON"):
        write_questions(path, [good, odd])
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["q.jsonl"]
