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
"""Stages of the demos: their command, their log, their progress, and what a failure says."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from verl_cxr.demo import STAGES
from verl_cxr.stages import SFT, SFT_ON_TWO, Screen, Stage, StageFailedError, run_stage


def program(text: str, **options: str) -> Stage:
    return Stage("none", ("-c", text), "a stage", "train/loss", **options)


def test_a_stage_is_the_command_that_a_user_would_type(tmp_path: Path) -> None:
    assert STAGES[2].command(tmp_path) == [
        sys.executable, "-m", "verl.trainer.main_ppo", "+recipe=cxr_grpo", "+scale=local", f"cxr.assets={tmp_path}",
    ]  # fmt: skip
    assert [a for a, b in zip(SFT, SFT_ON_TWO, strict=True) if a != b] == ["1"]
    with_more = Stage("x", ("-m", "y"), "", "", overrides=("a=1",))
    assert with_more.command(tmp_path)[-1] == "a=1"


def test_a_stage_is_logged_under_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(force_terminal=False, width=100)
    with Screen(console) as screen:
        run_stage(program("print('Total steps: 4'); print('step:3 - train/loss:0.25')", name="one"), tmp_path, screen)
    assert "step:3 - train/loss:0.25" in (tmp_path / "logs" / "one.log").read_text()
    shown = capsys.readouterr().out
    assert "a stage: step 3 of 4 train/loss 0.250" in shown


def test_a_failure_shows_the_end_of_the_log(tmp_path: Path) -> None:
    failing = program("print('the cause'); raise SystemExit(3)")
    with Screen(Console(quiet=True)) as screen, pytest.raises(StageFailedError, match="status 3") as caught:
        run_stage(failing, tmp_path, screen)
    assert str(caught.value).endswith("the cause")
    assert "none.log" in str(caught.value)
