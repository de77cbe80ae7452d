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
"""`verl-cxr data questions`: what it writes, what it says, and how it fails."""

import json

import pytest
from reading import film, shared
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.question import read_questions

ROW = {
    "img_id": 1, "img_name": "a.png", "question": "Is it normal?", "answer": "Yes", "q_lang": "en", "location": "Lung",
    "modality": "X-Ray", "answer_type": "CLOSED", "base_type": "vqa", "content_type": "Abnormality", "qid": 1,
}  # fmt: skip


def run(*args):
    return CliRunner().invoke(app, ["data", "questions", *map(str, args)])


@pytest.fixture
def tree(tmp_path):
    film(tmp_path / "a.png")
    rows = [ROW, ROW | {"qid": 2, "answer": None}, ROW | {"qid": 3, "img_name": "b.png"}, ROW | {"qid": 1}]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    return tmp_path


def test_what_it_writes_and_says(tree):
    out, funnel = tree / "out" / "q.jsonl", tree / "out" / "funnel.json"
    result = run("slake", "--root", tree, "--out", out, "--funnel", funnel)
    assert result.exit_code == 0
    assert [(question.id, question.images) for question in read_questions(out)] == [
        ("slake-1", (tree / "a.png",)), ("slake-3", (tree / "b.png",)),
    ]  # fmt: skip
    account = json.loads(funnel.read_text())
    assert account["lines"] == {"questions listed": 4, "questions with an unusable image": 1}
    assert account["dropped"] == {"broken record": 1, "id occurs before": 1}
    assert account["written"] == [{"split": "train", "kind": "closed", "questions": 2}]
    assert {problem["problem"] for problem in account["problems"]} == {
        "missing", "image file missing", "question listed twice",
    }  # fmt: skip
    for words in ("questions listed", "dropped: broken record", "train.json, row 2, field 'answer': missing", "wrote"):
        assert words in result.output


def test_the_same_rows_give_the_same_bytes(tree):
    for name in ("q1.jsonl", "q2.jsonl"):
        assert run("slake", "--root", tree, "--out", tree / name).exit_code == 0
    assert (tree / "q1.jsonl").read_bytes() == (tree / "q2.jsonl").read_bytes()


@pytest.mark.parametrize(("choice", "ids"), [("drop", ["slake-1"]), ("ignore", ["slake-1", "slake-3"])])
def test_images_that_are_missing(tree, choice, ids):
    result = run("slake", "--root", tree, "--out", tree / "q.jsonl", "--missing-images", choice)
    assert [question.id for question in read_questions(tree / "q.jsonl")] == ids
    assert ("dropped: image file missing" in result.output) == (choice == "drop")
    assert ("image file missing" in result.output) == (choice != "ignore")


def test_strict_stops_at_the_first_and_keeps_the_file_in_place(tree):
    out = tree / "q.jsonl"
    out.write_text("before")
    result = run("slake", "--root", tree, "--out", out, "--strict")
    assert result.exit_code == 1
    assert "error: " in result.output
    assert "train.json, row 2, field 'answer': missing" in result.output
    assert out.read_text() == "before"
    assert sorted(path.name for path in tree.iterdir()) == ["a.png", "q.jsonl", "train.json"]


def test_nothing_to_write_is_an_error_and_keeps_the_file_in_place(tree):
    out = tree / "q.jsonl"
    out.write_text("before")
    result = run("slake", "--root", tree, "--out", out, "--language", "zh")
    assert result.exit_code == 1
    assert "dropped: another language" in result.output
    assert "error: no question came out" in result.output
    assert out.read_text() == "before"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["slake", "--out", "q.jsonl"], 2),
        (["slake", "--root", "/nowhere", "--out", "q.jsonl"], 2),
        (["unknown", "--root", ".", "--out", "q.jsonl"], 2),
    ],
)
def test_wrong_arguments(args, code):
    assert run(*args).exit_code == code


def test_an_unknown_choice_of_images(tree):
    result = run("slake", "--root", tree, "--out", tree / "q.jsonl", "--missing-images", "skip")
    assert result.exit_code == 2
    assert "use one of report, drop, ignore" in result.output


def test_a_folder_without_rows(tmp_path):
    result = run("slake", "--root", tmp_path, "--out", tmp_path / "q.jsonl")
    assert result.exit_code == 1
    assert "error: " in result.output
    assert not (tmp_path / "q.jsonl").exists()


def test_real_rows_with_their_images(tmp_path):
    result = run("vqa_rad", "--root", shared("vqa_rad"), "--out", tmp_path / "q.jsonl.gz", "--strict")
    assert result.exit_code == 0
    questions = list(read_questions(tmp_path / "q.jsonl.gz"))
    assert len(questions) == 620
    assert all(question.images[0].is_file() for question in questions)


def test_help_lists_every_set():
    result = run("--help")
    for name in ("slake", "vqa_rad", "rad_restruct", "chexbench", "chestagentbench", "mimic_cxr_vqa", "gemex"):
        assert name in result.output
    assert "--missing-images" in run("chexbench", "--help").output
