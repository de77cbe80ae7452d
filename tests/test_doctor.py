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
"""``verl-cxr doctor``: exit 1 with the reason when verl cannot use the plug-in."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from verl_cxr import doctor
from verl_cxr.doctor import FEATURES, Fault, Probe, problems, state, unmet

LIVE = Probe(platform="cpu", devices=1, live=True, recipes=True)


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verl_cxr.cli", "doctor"]
    environment = dict(os.environ) | {"COLUMNS": "200"} | environment
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_healthy_installation() -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    assert "The plug-in is live; verl runs on the CPU." in done.stdout
    for name in ("python", "verl", "torch", "transformers", "ray", "vllm", "megatron-core", "radgraph"):
        assert f" {name} " in done.stdout
    for feature in FEATURES:
        assert feature.name in done.stdout


def test_another_verl_fails_with_the_command_that_cures_it(other_verl: Path) -> None:
    done = run(PYTHONPATH=str(other_verl))
    assert done.returncode == 1
    assert "verl 0.9.0 is installed, not ==0.9.1. Run: pip install 'verl==0.9.1'" in done.stderr
    assert "verl does not load the plug-in: UnsupportedVerlError" in done.stderr


def test_plug_ins_switched_off_fail_with_the_variable_that_did_it() -> None:
    done = run(VERL_USE_EXTERNAL_PLUGINS="none")
    assert done.returncode == 1
    assert "VERL_USE_EXTERNAL_PLUGINS=none keeps it out. Unset it, or set it to verl_cxr" in done.stderr


def test_nothing_is_missing_here() -> None:
    assert unmet() == []
    assert problems(LIVE) == []


def test_a_missing_package_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.version

    def version(name: str) -> str:
        if name == "orjson":
            raise doctor.PackageNotFoundError(name)
        return "4.0.0" if name == "transformers" else real(name)

    monkeypatch.setattr(doctor, "version", version)
    assert {fault.name for fault in unmet()} == {"orjson", "transformers"}
    assert "orjson is not installed. Run: pip install 'orjson'" in problems(LIVE)
    assert any(text.startswith("transformers 4.0.0 is installed, not <5.11,>=5.9") for text in problems(LIVE))


def test_an_extra_of_verl_is_followed_to_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {fault.name for fault in unmet("vllm")}
    if doctor.installed("vllm") is None:
        assert {"vllm", "mbridge"} & names
    wanted = {
        "verl-cxr": ["plain", 'verl[deep]==1 ; extra == "vllm"'],
        "verl": ["base", 'low>=2 ; extra == "deep"', 'verl[deeper] ; extra == "deep"', 'lost ; extra == "deeper"'],
    }
    versions = {"verl": "1", "low": "1.5"}
    monkeypatch.setattr(doctor, "requires", lambda name: wanted.get(name))
    monkeypatch.setattr(doctor, "installed", versions.get)
    assert unmet("vllm") == [Fault("low", "1.5", ">=2"), Fault("lost", None, "")]
    assert unmet() == [Fault("plain", None, "")]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Probe(cause="ImportError: no torch"), "`import verl` fails: ImportError: no torch"),
        (replace(LIVE, live=False, cause="ValueError: broken"), "verl does not load the plug-in: ValueError: broken"),
        (replace(LIVE, recipes=False), "Hydra does not find hydra_plugins.verl_cxr"),
        (replace(LIVE, torchvision="RuntimeError: nms"), "torchvision cannot be imported"),
    ],
)
def test_problems_say_why(found: Probe, said: str) -> None:
    assert len(problems(found)) == 1
    assert said in problems(found)[0]


def test_no_entry_point_means_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "entry_points", lambda group: entry_points(group="no.such.group"))
    assert "its entry point is not in the metadata" in problems(replace(LIVE, live=False))[0]


def test_a_feature_says_what_it_lacks() -> None:
    features = {feature.platform: feature for feature in FEATURES}
    assert state(features["cpu"], LIVE) == []
    on_gpu = replace(LIVE, platform="cuda", devices=8)
    assert "put VERL_PLATFORM=cpu before the command" in state(features["cpu"], on_gpu)[0]
    assert "no accelerator here" in state(features["accelerator"], LIVE)
    assert "no accelerator here" not in state(features["accelerator"], on_gpu)
    assert "no accelerator here" in state(features["accelerator"], replace(on_gpu, devices=0))


def test_every_extra_has_a_feature() -> None:
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    table = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = {line.partition(" = ")[0] for line in table.strip().splitlines()}
    assert extras == {extra for feature in FEATURES for extra in feature.extras}


def test_an_extra_that_the_metadata_does_not_know_is_said() -> None:
    assert state(doctor.Feature("new", ("brand-new",)), LIVE) == [
        "the metadata of verl-cxr is older than its code: install it again"
    ]


def test_missing_weights_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    feature = next(feature for feature in FEATURES if feature.weights)
    monkeypatch.setattr(doctor, "unmet", lambda extra=None: [])
    real = doctor.locate
    monkeypatch.setattr(doctor, "locate", lambda name: real(name, tmp_path))
    assert state(feature, LIVE) == [
        f"no radgraph-xl weights in {tmp_path}/radgraph-xl: config.json, weights.th, vocabulary/ missing"
    ]
    monkeypatch.setattr(doctor, "locate", lambda name: None)
    assert state(feature, LIVE) == []


def test_a_verl_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PROBE", "import time; time.sleep(60)")
    assert doctor.probe(timeout_s=0.5).cause == "it took longer than 0 s"
    monkeypatch.setattr(doctor, "_PROBE", "raise ImportError('no such module')")
    assert doctor.probe().cause == "ImportError: no such module"
