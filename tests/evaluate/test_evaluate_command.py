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
"""`verl-cxr evaluate reports` from files to files."""

import json

import pytest
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.evaluate.official import OfficialError, OfficialScores

REPORTS = {
    "a": "Small left pleural effusion.",
    "b": "No pneumothorax. The lungs are clear.",
    "c": "Mild cardiomegaly is unchanged.",
    "d": "Patchy opacity in the right lower lung.",
}
GOOD = dict(REPORTS, d="Patchy opacity at the right lung base.")
BAD = dict.fromkeys(REPORTS, "The lungs are clear.")


def study(name, text):
    return {"id": name, "width": 10, "height": 10, "regions": [], "report": {"findings": text}}


@pytest.fixture
def run(tmp_path):
    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    studies = write("S.jsonl", [study(name, text) for name, text in REPORTS.items()] + [study("e", None)])

    def run(*words, ours=(GOOD,), theirs=(), metrics="bleu2,bleu4,rougeL,facts"):
        args = ["evaluate", "reports", "--studies", studies, "--out", tmp_path / "out" / "O.json", "--metrics", metrics]
        for option, systems in (("--predictions", ours), ("--against", theirs)):
            for number, texts in enumerate(systems):
                rows = [{"id": name, "response": f"<answer>{text}</answer>"} for name, text in texts.items()]
                args += [option, write(f"{option}{number}.jsonl", rows)]
        result = CliRunner().invoke(app, [*map(str, args), *map(str, words)], env={"COLUMNS": "140"})
        out = tmp_path / "out" / "O.json"
        return result, json.loads(out.read_text()) if out.exists() else None

    return run


def test_one_system(run, tmp_path):
    result, out = run("--facts", "lexicon", "--samples", tmp_path / "samples.jsonl")
    assert result.exit_code == 0, result.output
    assert (out["n"], out["without_reference"]) == (4, ["e"])
    assert list(out["metrics"]) == ["bleu2", "bleu4", "rougeL", "facts_simple", "facts_partial", "facts_complete"]
    rouge = out["metrics"]["rougeL"]
    assert rouge["interval"][0] <= rouge["value"] <= rouge["interval"][1]
    assert (rouge["n"], rouge["defined"], rouge["standard_deviation"]) == (4, [4], None)
    assert "against" not in rouge
    assert "lexicon F1 (partial)" in result.output
    assert "RadGraph" not in result.output
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == list("abcd")
    assert sum(row["rougeL"] for row in rows) / 4 == pytest.approx(rouge["value"])
    assert rows[0]["bleu4"] == pytest.approx(1)


def test_seeds_give_mean_and_deviation(run):
    perfect = dict(REPORTS)
    result, out = run(ours=(GOOD, perfect, BAD), metrics="rougeL")
    rouge = out["metrics"]["rougeL"]
    one, two, three = rouge["seeds"]
    assert two == 1
    assert rouge["value"] == pytest.approx((one + two + three) / 3)
    deviations = [(value - rouge["value"]) ** 2 for value in rouge["seeds"]]
    assert rouge["standard_deviation"] == pytest.approx((sum(deviations) / 2) ** 0.5)
    assert f"{100 * rouge['value']:.2f} ± {100 * rouge['standard_deviation']:.2f}" in result.output
    assert len(out["predictions"]) == 3


def test_a_paired_difference(run):
    result, out = run(theirs=(BAD, BAD), metrics="bleu2,rougeL")
    for metric in out["metrics"].values():
        difference = metric["difference"]
        assert difference["mean"] == pytest.approx(metric["value"] - metric["against"]["value"])
        assert 0 < difference["low"] <= difference["mean"] <= difference["high"]
        assert difference["wins"] == 1
        assert len(metric["against"]["seeds"]) == 2
    assert "difference" in result.output


def test_what_was_not_computed_is_said(run):
    result, out = run(metrics="rougeL,facts,chexbert")
    assert result.exit_code == 0
    assert out["metrics"]["facts"] == {"skipped": out["metrics"]["facts"]["skipped"]}
    assert "facts was not computed: no fact scorer was named" in result.output
    assert "chexbert was not computed: CheXbert's weights" in result.output


def test_responses_without_an_answer_are_counted(run, tmp_path):
    path = tmp_path / "P.jsonl"
    path.write_text("".join(json.dumps({"id": n, "response": t}) + "\n" for n, t in REPORTS.items()))
    result, out = run("--predictions", path, metrics="rougeL")
    assert [file["answers"] for file in out["predictions"]] == [4, 0]
    assert "0 of 4 responses have an <answer>" in result.output.replace("\n", "")
    assert out["metrics"]["rougeL"]["seeds"][1] == 1


def test_official_numbers_stand_beside_ours(run, monkeypatch):
    asked = []

    def score(files, metrics):
        asked.append((len(files), len(files[0]), metrics))
        values = {"bleu": [0.1, 0.3], "bleu_2": [0.5, 0.5], "radgraph_partial": [0.7, 0.7]}
        return OfficialScores(values, {"f1chexbert": "OSError: no weights"}, {"radeval": "2.2.1"})

    monkeypatch.setattr("verl_cxr.commands.evaluate.score", score)
    result, out = run("--official", "--facts", "lexicon", ours=(GOOD, BAD), metrics="bleu2,bleu4,facts,chexbert")
    assert asked == [(2, 4, ["bleu2", "bleu4", "facts", "chexbert"])]
    assert out["official"]["values"]["bleu"] == [0.1, 0.3]
    lines = {line.split("│")[1].strip(): line for line in result.output.splitlines() if line.startswith("│")}
    assert lines["BLEU-4"].split("│")[4].strip() == "20.00"
    assert lines["lexicon F1 (partial)"].split("│")[4].strip() == "-"  # RadGraph's number is no lexicon's
    assert lines["RadEval's radgraph_partial"].split("│")[4].strip() == "70.00"
    assert "RadEval's f1chexbert was not computed: OSError: no weights" in result.output


def test_official_numbers_that_cannot_be_had_stop_the_command(run, monkeypatch):
    def score(files, metrics):
        raise OfficialError("pip failed")

    monkeypatch.setattr("verl_cxr.commands.evaluate.score", score)
    result, out = run("--official", metrics="rougeL")
    assert (result.exit_code, out) == (1, None)
    assert "error: pip failed" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metrics", "blue"], "unknown metric 'blue': use bleu2, bleu4"),
        (["--facts", "oracle"], "unknown fact scorer 'oracle'"),
        (["--facts", "lexicon", "--no-fact", "half"], "not 'half'"),
        (["--reference", "notes"], "unknown section 'notes'"),
        (["--split", "test"], "no study of the split 'test' has a report"),
    ],
)
def test_a_wrong_argument_says_what_would_be_right(run, words, message):
    result, out = run(*words)
    assert (result.exit_code, out) == (2, None)
    assert message in result.output


def test_predictions_that_do_not_fit_are_named(run):
    result, out = run(ours=({"a": "x"},))
    assert (result.exit_code, out) == (1, None)
    assert "3 of 4 studies have no prediction: 'b', 'c', 'd'" in result.output
