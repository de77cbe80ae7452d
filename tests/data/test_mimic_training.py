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
"""verl's own trainer on what the MIMIC-CXR adapter built, for two steps on this CPU."""

import json
import os
import subprocess
import sys

import pytest
from mimic_tree import make_tree
from typer.testing import CliRunner

from verl_cxr.cli import app

pytestmark = pytest.mark.engine

SMALL = (
    "data.train_batch_size=4",
    "data.max_response_length=24",
    "actor_rollout_ref.rollout.n=4",
    "trainer.val_before_train=false",
    "trainer.total_training_steps=2",
    "trainer.logger=[console,file]",
)
PATIENCE_S = 900  # a minute on two idle cores


def test_grpo_runs_on_a_build_of_it(tmp_path):
    tree = make_tree(tmp_path / "tree", 80)
    data, model, metrics = tmp_path / "data", tmp_path / "model", tmp_path / "metrics.jsonl"
    arguments = ["--root", tree.mimic, "--imagenome", tree.imagenome, "--out", data, "--write-studies"]
    for command in (
        ["data", "build", "mimic_cxr", *arguments],
        ["data", "tiny-model", "--out", model, "--studies", data / "studies.jsonl"],
    ):
        result = CliRunner().invoke(app, [*map(str, command)])
        assert result.exit_code == 0, result.output
    assets = [f"cxr.data={data}", f"cxr.model={model}"]
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "+recipe=cxr_grpo", *assets, *SMALL, "+scale=local"]
    with (tmp_path / "run.log").open("w") as log:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | {"VERL_FILE_LOGGER_PATH": str(metrics)},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, (tmp_path / "run.log").read_text(errors="replace")[-8000:]
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    regions = [row["data"]["reward/annotated_regions/mean"] for row in rows if "actor/lr" in row["data"]]
    assert len(regions) == 2
    assert all(count >= 1 for count in regions)
