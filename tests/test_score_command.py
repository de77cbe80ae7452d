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
"""`verl-cxr score` and the lazy command line around it."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from verl_cxr.cli import COMMANDS, app, load

STUDY = {
    "id": "s1", "width": 1000, "height": 500, "report": {"findings": "Clear."},
    "regions": [{"name": "right lung", "box": [100, 50, 300, 150], "frame": "pixel_xyxy", "finding": "clear"}],
}  # fmt: skip


def response(box, finding="clear"):
    region = {"region": "right lung", "box": box, "finding": finding}
    return f"<think>{json.dumps([region])}</think><answer>Clear.</answer>"


GOOD = response([100, 100, 300, 300])


@pytest.fixture
def run(tmp_path):
    """Run the command on rows of responses; its result and the rows that it wrote (None: no file)."""

    def run(rows, *words, studies=(STUDY,), facts="exact"):
        paths = [tmp_path / name for name in ("S.jsonl", "R.jsonl", "O.jsonl")]
        for path, lines in zip(paths, (studies, rows), strict=False):
            path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        files = [word for pair in zip(("--studies", "--responses", "--out"), paths, strict=True) for word in pair]
        result = CliRunner().invoke(app, ["score", *map(str, files), "--facts", facts, *map(str, words)])
        out = paths[2]
        return result, [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else None

    return run


def test_rows_keep_their_order_and_carry_the_stamp(run):
    rows = [{"id": "s1", "response": text} for text in ("no", GOOD, "no", response([0, 0, 1, 1]), GOOD)]
    result, out = run(rows)
    assert result.exit_code == 0, result.output
    assert [row["reward"] for row in out] == [0, 2, 0, 0, 2]
    assert {row["facts"] for row in out} == {"exact"}
    assert list(out[0])[:3] == ["id", "reward", "format"]
    assert [row["reason"] for row in out] == ["missing_tag", None, "missing_tag", None, None]


def test_the_summary_names_the_scorer_and_the_means(run):
    result, _ = run([{"id": "s1", "response": "no"}, {"id": "s1", "response": GOOD}])
    assert "2 responses, facts: exact" in result.output
    assert "1.0000" in result.output
    assert "0.5000" in result.output


def test_no_response_is_an_empty_file(run):
    result, out = run([])
    assert (result.exit_code, out) == (0, [])


def test_all_pairs_reach_the_scorer_in_one_call(run, monkeypatch):
    calls = []

    class Counting:
        name = "counting"

        def score(self, pairs):
            calls.append(list(pairs))
            return [0.5] * len(pairs)

    monkeypatch.setattr("verl_cxr.commands.score_cascade.make_scorer", lambda spec: Counting())
    rows = [{"id": "s1", "response": response([100, 100, 300, 300], f"f{i}")} for i in range(3)]
    _, out = run(rows, "--option", "verify=both")
    assert [row["reward"] for row in out] == [2.0, 2.0, 2.0]
    assert calls == [[pair for i in range(3) for pair in ((f"f{i}", "clear"), ("Clear.", "Clear."))]]


def test_frames(run):
    rows = [{"id": "s1", "response": response([100, 50, 300, 150])}]
    assert run(rows, "--frame", "pixel_original")[1][0]["reward"] == 2.0
    processed = [{"id": "s1", "response": response([50, 25, 150, 75]), "processed_size": [500, 250]}]
    assert run(processed, "--frame", "pixel_processed")[1][0]["reward"] == 2.0
    result, _ = run(rows, "--frame", "pixel_processed")
    assert result.exit_code == 1
    assert "row 1, field 'processed_size': missing" in result.output


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        ([{"id": "s1", "response": "x"}, "{"], "R.jsonl, row 2: not JSON"),
        (["[]"], "R.jsonl, row 1: a row is a JSON object, not a list"),
        ([{"response": "x"}], "R.jsonl, row 1, field 'id': missing"),
        ([{"id": "s1"}], "R.jsonl, row 1, field 'response': missing"),
        ([{"id": "s1", "response": None}], "R.jsonl, row 1, field 'response': must be text, not null"),
        ([{"id": 1, "response": "x"}], "R.jsonl, row 1, field 'id': must be text, not a number"),
        ([{"id": "s1", "response": "x"}, {"id": "s2", "response": "x"}], "row 2, field 'id': 's2' is not the id"),
        ([{"id": "s1", "response": "x", "processed_size": [0, 1]}], "R.jsonl, row 1, field 'processed_size': must be"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_and_nothing_is_written(run, rows, place):
    result, out = run(rows)
    assert result.exit_code == 1
    assert place in result.output
    assert out is None


def test_a_bad_study_is_named(run):
    result, out = run([], studies=[STUDY, STUDY])
    assert (result.exit_code, out) == (1, None)
    assert "S.jsonl, row 2, field 'id': 's1' is already the id of row 1" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--reward", "oracle"], "unknown reward 'oracle': use one of cascade, accuracy-gated"),
        (["--reward", "accuracy-gated"], "reward 'accuracy-gated' needs --questions"),
        (["--tau", "2"], "tau=2.0: use a number from 0 to 1"),
        (["--option", "taw=2"], "unknown option 'taw'"),
        (["--option", "verify"], "option 'verify' is not KEY=VALUE"),
        (["--option", "verify=none"], "verify='none': use one of reasoning, answer, both"),
        (["--option", "tau=0.5", "--tau", "0.5"], "option 'tau' is given twice"),
        (["--option", "vocabulary=nose"], "no vocabulary 'nose'"),
        (["--frame", "pixels"], "unknown trace frame 'pixels'"),
        (["--facts", "oracle"], "unknown fact scorer 'oracle'"),
        (["--facts", "precomputed:/nowhere.jsonl"], "/nowhere.jsonl"),
    ],
)
def test_a_wrong_argument_says_what_would_be_right(run, words, message):
    result, out = run([{"id": "s1", "response": GOOD}], *words)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert out is None


def test_a_scorer_that_fails_stops_the_command(run, monkeypatch):
    from verl_cxr.facts import FactServiceError

    class Down:
        name = "down"

        def score(self, pairs):
            raise FactServiceError("the annotator is down")

    monkeypatch.setattr("verl_cxr.commands.score_cascade.make_scorer", lambda spec: Down())
    result, out = run([{"id": "s1", "response": GOOD}])
    assert (result.exit_code, out) == (1, None)
    assert "error: the annotator is down" in result.output


def test_files_that_are_not_there():
    result = CliRunner().invoke(
        app, ["score", "--studies", "/no", "--responses", "/no", "--out", "/no", "--facts", "exact"]
    )
    assert result.exit_code == 2
    assert "--studies" in result.output


# --- the command line


def test_help_lists_every_command_and_imports_none():
    program = (
        "import sys; from verl_cxr.cli import app\n"
        "try: app(['--help'])\n"
        "finally: print([m for m in sys.modules if m.split('.')[0] in ('torch', 'verl', 'ray', 'reward_plugins')"
        " or m.startswith('verl_cxr.commands')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    for name, command in COMMANDS.items():
        assert name in done.stdout
        assert command.summary in done.stdout
    assert done.stdout.rstrip().endswith("[]")


def test_an_unknown_command_is_an_error():
    result = CliRunner().invoke(app, ["scores"])
    assert result.exit_code == 2
    assert "No such command" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads(name):
    assert load(name) is not None
    assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0
