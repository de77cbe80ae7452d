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
"""`verl-cxr score --reward accuracy-gated` on files."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.rewards.trajectories import HEART, RIGHT, WRONG, rollout
from verl_cxr.cli import app
from verl_cxr.question import write_questions
from verl_cxr.trajectory import Trajectory, write_trajectories

ROLLOUTS = [
    rollout(WRONG, calls=2, shown={"ctr": 0.58}),
    rollout(RIGHT, calls=2, shown={"ctr": 0.58}),
    rollout("I cannot say.", withheld={"ctr": 0.58}),
]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def run(trajectories: list[Trajectory], *words: str) -> Any:
        questions, responses, out = (tmp_path / name for name in ("Q.jsonl", "TRAJ.jsonl", "O.jsonl"))
        write_questions(questions, [HEART])
        write_trajectories(responses, trajectories)
        command = [
            "score",
            "--reward",
            "accuracy-gated",
            "--questions",
            questions,
            "--responses",
            responses,
            "--out",
            out,
        ]
        result = CliRunner().invoke(app, [*map(str, command), *words])
        return result, [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else None

    return run


def test_one_row_a_trajectory_in_order(run: Any) -> None:
    result, rows = run(ROLLOUTS)
    assert result.exit_code == 0, result.output
    assert [row["reward"] for row in rows] == pytest.approx([0.2, 1.6, 0.0])
    assert [row["answer"] for row in rows] == [["Pneumothorax"], ["Cardiomegaly"], None]
    assert [row["answer_reason"] for row in rows] == ["found", "found", "refused"]
    assert [row["problem"] for row in rows] == [None, None, "missing_tag"]
    assert rows[2]["gate_reasons"] == ["not_pa"]
    assert rows[1]["measurements"][0] == {
        "name": "ctr", "relevant": True, "exposed": True, "agrees": True, "contradicts": False, "hallucinated": False,
    }  # fmt: skip
    assert "3 trajectories, mode: gated" in result.output


def test_options(run: Any) -> None:
    _, rows = run(ROLLOUTS, "--option", "mode=ungated", "--option", "lambda_m=1")
    assert [row["reward"] for row in rows] == pytest.approx([1.1, 2.1, 0.0])
    assert run([])[1] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--option", "lambda_t=0.2"], "must be less than 1"),
        (["--option", "max_calls=many"], "max_calls='many': use a number"),
        (["--option", "tau=1"], "unknown option 'tau'"),
        (["--option", "table=/no/such.yaml"], "/no/such.yaml"),
        (["--tau", "0.5"], "reward 'accuracy-gated' has no use for --tau"),
        (["--facts", "exact"], "has no use for --facts"),
        (["--frame", "relative_1000"], "has no use for --frame"),
    ],
)
def test_a_wrong_argument(run: Any, words: list[str], message: str) -> None:
    result, rows = run(ROLLOUTS, *words)
    assert (result.exit_code, rows) == (2, None)
    assert message in result.output


def test_a_trajectory_of_no_question(run: Any) -> None:
    result, rows = run([Trajectory("lung", ("A",))])
    assert (result.exit_code, rows) == (1, None)
    assert "TRAJ.jsonl, field 'id': 'lung' is not the id of a question of" in result.output
