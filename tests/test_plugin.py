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
"""verl's entry point: it refuses another verl, and says so where people see it."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
import verl  # noqa: F401 - loads the plug-in
from omegaconf import OmegaConf

from verl_cxr import plugin


def test_import_verl_loads_it() -> None:
    assert "verl_cxr.plugin" in sys.modules
    assert OmegaConf.has_resolver("cxr.kl")


def test_it_names_the_verl_that_the_package_requires() -> None:
    assert f"verl=={plugin.VERL_VERSION}" in (importlib.metadata.requires("verl-cxr") or [])


def test_another_verl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.10.0" if name == "verl" else real(name))
    with pytest.raises(plugin.UnsupportedVerlError, match=r'verl 0\.10\.0 is installed\. Run: pip install "verl==0\.9'):
        plugin.register()


def test_the_refusal_reaches_the_user_although_verl_passes_over_it(other_verl: Path) -> None:
    environment = dict(os.environ) | {"PYTHONPATH": str(other_verl)}
    command = [sys.executable, "-c", "import verl; print('imported')"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["imported"]
    assert "verl-cxr: the plug-in did not load; recipes that name it will fail." in done.stderr
    assert "UnsupportedVerlError: verl-cxr" in done.stderr
