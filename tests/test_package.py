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
"""Everything works from the built wheel, in an empty folder, without the checkout."""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

COMPOSE = """
import json
import hydra_configs, hydra_plugins.verl_cxr, recipes, reward_plugins, tool_plugins, verl, verl_cxr
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

homes = [module.__file__ for module in (verl_cxr, reward_plugins, tool_plugins, hydra_configs, hydra_plugins.verl_cxr)]
composed = []
with initialize_config_module("verl.trainer.config", version_base=None):
    for trainer, names in {"ppo_trainer": ["cxr_grpo"], "sft_trainer_engine": ["cxr_sft", "cxr_cold_start"]}.items():
        for name in names:
            for scale in ("node8", "multinode", "megatron", "local"):
                overrides = [f"+recipe={name}", f"+scale={scale}", "cxr.data=/data", "cxr.model=/model"]
                OmegaConf.to_container(compose(trainer, overrides=overrides), resolve=True)
                composed.append((name, scale))
print(json.dumps({"homes": homes, "composed": composed}))
"""


def in_wheel(python: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"COLUMNS": "120"}
    return subprocess.run([python, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_holds_the_packages_their_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"verl_cxr", "reward_plugins", "tool_plugins", "hydra_configs", "hydra_plugins", "recipes"}
    assert "hydra_plugins/__init__.py" not in names  # a namespace that other distributions share
    root = Path(__file__).parents[1]
    shipped = {".yaml", ".jinja", ".txt", ".md", ".sh", ".jsonl", ".py", ".typed"}
    tracked = subprocess.run(["git", "ls-files", *tops], cwd=root, capture_output=True, text=True, check=False)
    if tracked.returncode == 0:
        expected = {name for name in tracked.stdout.split("\n") if Path(name).suffix in shipped}
        assert expected <= set(names)
    for name in (
        "verl_cxr/py.typed",
        "verl_cxr/vocabularies/chest_imagenome.yaml",
        "verl_cxr/data/prompts/trace.txt",
        "verl_cxr/tiny/chat_template.jinja",
        "verl_cxr/facts/lexicon.yaml",
        "hydra_configs/recipe/cxr_grpo.yaml",
        "hydra_configs/scale/local.yaml",
    ):
        assert name in names


def test_every_recipe_composes_from_the_wheel(wheel_python: Path, tmp_path: Path) -> None:
    done = in_wheel(wheel_python, tmp_path, "-c", COMPOSE)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert all(home.startswith(str(wheel_python.parents[1])) for home in said["homes"]), said["homes"]
    assert len(said["composed"]) == 12
    assert list(tmp_path.iterdir()) == []


def test_the_trainers_command_finds_the_recipe(wheel_python: Path, tmp_path: Path) -> None:
    overrides = ("+recipe=cxr_grpo", "+scale=node8", "cxr.data=/data", "cxr.model=/model", "--cfg=job")
    done = in_wheel(wheel_python, tmp_path, "-m", "verl.trainer.main_ppo", *overrides)
    assert done.returncode == 0, done.stderr
    assert "tau: 0.25" in done.stdout
    assert "name: StrictReplayBuffer" in done.stdout


@pytest.mark.parametrize("command", [[], ["score"], ["data", "build", "phantom"], ["doctor"]], ids=" ".join)
def test_the_command_line_helps(command: list[str], wheel_python: Path, tmp_path: Path) -> None:
    done = in_wheel(wheel_python, tmp_path, "-I", str(wheel_python.parent / "verl-cxr"), *command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_data_and_score_work_from_the_wheel(wheel_python: Path, tmp_path: Path) -> None:
    program = str(wheel_python.parent / "verl-cxr")
    build = ("data", "build", "phantom", "--out", "data", "--count", "3", "--validate", "1", "--size", "64")
    done = in_wheel(wheel_python, tmp_path, program, *build)
    assert done.returncode == 0, done.stderr
    study = json.loads((tmp_path / "data" / "studies.jsonl").read_text().splitlines()[0])
    (tmp_path / "responses.jsonl").write_text(json.dumps({"id": study["id"], "response": "no trace"}) + "\n")
    score = ("score", "--studies", "data/studies.jsonl", "--responses", "responses.jsonl", "--facts", "lexicon")
    done = in_wheel(wheel_python, tmp_path, program, *score, "--out", "scores.jsonl")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "scores.jsonl").read_text())["reward"] == 0
