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
"""A sweep runs each job in a process of its own, and a failing job does not take the others with it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, os
import hydra
from hydra.core.hydra_config import HydraConfig

@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(config):
    folder = HydraConfig.get().runtime.output_dir
    seen = {"pid": os.getpid(), "parent": os.getppid(), "text": config.text}
    with open(os.path.join(folder, "seen.json"), "w") as file:
        json.dump(seen, file)
    if config.number == 2:
        raise ValueError("two is refused")

if __name__ == "__main__":
    main()
"""
CONFIG = """
defaults:
  - override hydra/launcher: one_process
  - _self_
number: 0
text: nothing
hydra: {sweep: {dir: sweep}}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    package = tmp_path / "elsewhere" / "stub"
    (package / "conf").mkdir(parents=True)
    (package / "conf" / "config.yaml").write_text(CONFIG)
    (package / "__init__.py").touch()
    (package / "app.py").write_text(PROGRAM)
    return package / "app.py"


def sweep(
    folder: Path, *command: str, path: Path | None = None
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Run a program in a folder; what it printed, and what each of its jobs saw."""
    environment = dict(os.environ) | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    found = sorted(folder.glob("sweep/*/seen.json"))
    return done, [json.loads(path.read_text()) for path in found]


def test_jobs_have_processes_of_their_own(program: Path, tmp_path: Path) -> None:
    done, seen = sweep(tmp_path, str(program), "--multirun", "number=1,3", "text='a, b = c'")
    assert done.returncode == 0, done.stderr
    assert [job["text"] for job in seen] == ["a, b = c"] * 2
    assert len({job["pid"] for job in seen}) == 2
    assert len({job["parent"] for job in seen}) == 1


def test_a_failing_job_is_reported_and_the_others_finish(program: Path, tmp_path: Path) -> None:
    done, seen = sweep(tmp_path, str(program), "--multirun", "number=1,2,3")
    assert len(seen) == 3
    assert done.returncode != 0
    log = done.stdout + done.stderr
    assert "two is refused" in log
    assert "job 1: FAILED with exit status 1" in log
    assert "job 2: done" in log
    assert "ended with exit status 1" in done.stderr


def test_a_module_is_run_as_a_module(program: Path, tmp_path: Path) -> None:
    path = program.parent.parent
    done, seen = sweep(tmp_path, "-m", "stub.app", "--multirun", "number=1", path=path)
    assert done.returncode == 0, done.stderr
    assert len(seen) == 1
    overrides = (tmp_path / "sweep" / "0" / ".hydra" / "overrides.yaml").read_text()
    assert overrides.split() == ["-", "number=1"]
