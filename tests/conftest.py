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
"""Settings of all tests."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import settings

# The suite runs on the CPU, also where an accelerator is present, and one thread a process is fastest at these sizes.
os.environ["VERL_PLATFORM"] = "cpu"
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples on every run, and no deadline: a shared machine may stall any one of them.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def other_verl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH that makes the installed verl look like version 0.9.0."""
    folder = tmp_path_factory.mktemp("other-verl")
    metadata = folder / "verl-0.9.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: verl\nVersion: 0.9.0\n")
    return folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's wheel, built from a copy of the checkout, so that no earlier build can leak into it."""
    root = Path(__file__).parents[1]
    source, out = tmp_path_factory.mktemp("source") / "checkout", tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "build", "dist", "outputs", "shared", "*.egg-info", "__pycache__")
    shutil.copytree(root, source, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", out, source]
    subprocess.run(command, check=True)
    return next(out.glob("verl_cxr-*.whl"))


@pytest.fixture(scope="session")
def wheel_python(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An interpreter that has the wheel, this environment's other packages, and no way to the checkout."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    # a folder named in a .pth file is searched, but its own .pth files, which lead to the checkout, are not read
    folders = dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("purelib", "platlib"))
    (site / "zz_others.pth").write_text("\n".join(folders))
    return python
