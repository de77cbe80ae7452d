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
"""The CPU as a verl platform, and when a process takes it."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
import torch
from verl.plugin.platform import PlatformRegistry, get_platform
from verl.utils import device

from verl_cxr import local
from verl_cxr.local.environment import DEFAULTS, set_defaults
from verl_cxr.local.platform import CpuPlatform


def fresh_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process that inherits nothing which the plug-in has set in this one."""
    inherited = {name: value for name, value in os.environ.items() if name not in DEFAULTS}
    return subprocess.run(
        [sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True, check=False
    )


def test_verl_runs_on_it() -> None:
    assert isinstance(get_platform(), CpuPlatform)
    assert device.get_device_name() == "cpu"
    assert device.get_nccl_backend() == "gloo"
    assert torch.zeros(2).to(device.get_device_id()).device.type == "cpu"


def test_it_never_wins_detection() -> None:
    assert PlatformRegistry.get("cpu") is CpuPlatform
    assert not CpuPlatform().is_platform_available(use_smi_check=True)
    assert CpuPlatform().is_available()


def test_ray_counts_a_worker_as_a_logical_gpu() -> None:
    assert CpuPlatform().ray_resource_name() == "GPU"
    assert CpuPlatform().device_count() == 1


def test_device_module_answers_what_verl_asks() -> None:
    module = CpuPlatform.device_module
    resident = psutil.Process().memory_info().rss
    assert module.memory_allocated() == pytest.approx(resident, rel=0.2)
    assert module.max_memory_allocated() >= 0.8 * resident
    available, total = module.mem_get_info()
    assert 0 < available <= total
    state = module.get_rng_state()
    first = torch.rand(3)
    module.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)
    module.manual_seed_all(7)
    seeded = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(1), seeded)
    module.empty_cache()
    module.reset_peak_memory_stats()
    assert module.current_device() == torch.cpu.current_device()  # anything else is torch.cpu's own


def platforms(monkeypatch: pytest.MonkeyPatch, **available: bool) -> None:
    """Pretend that verl knows these platforms, present or not."""

    def kind(present: bool) -> Any:
        return lambda: SimpleNamespace(is_platform_available=lambda use_smi_check: present)

    monkeypatch.setattr(PlatformRegistry, "_platforms", {name: kind(present) for name, present in available.items()})


@pytest.mark.parametrize(
    ("choice", "accelerator", "ray_worker", "expected"),
    [
        ("cpu", False, False, True),
        ("cpu", True, False, True),
        ("CPU ", True, True, True),
        ("nvidia", False, False, False),
        ("npu", True, False, False),
        (None, False, False, True),
        ("", False, False, True),
        (None, True, False, False),
        (None, False, True, False),
        (None, True, True, False),
    ],
)
def test_wanted(
    choice: str | None, accelerator: bool, ray_worker: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if choice is None:
        monkeypatch.delenv("VERL_PLATFORM", raising=False)
    else:
        monkeypatch.setenv("VERL_PLATFORM", choice)
    platforms(monkeypatch, nvidia=accelerator, npu=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: ray_worker)
    assert local.wanted() is expected


def test_defaults_do_not_override_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DEFAULTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    set_defaults()
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert os.environ["RAY_AUTH_MODE"] == "token"
    unset = DEFAULTS.keys() - {"OMP_NUM_THREADS", "RAY_AUTH_MODE"}
    assert {name: os.environ[name] for name in unset} == {name: DEFAULTS[name] for name in unset}


@pytest.mark.parametrize(("before", "after"), [("", None), ("0", "0")])
def test_an_empty_device_list_is_unset(before: str, after: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    set_defaults()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == after


def test_torchvision_needs_the_shim_here_and_works_with_it() -> None:
    """On a build of torchvision that loads by itself the shim does nothing; here it makes image processors load."""
    alone = fresh_process("import torchvision")
    with_shim = fresh_process(
        "from verl_cxr.local import torchvision_shim as shim\n"
        "shim.install(); shim.install()\n"
        "import torch, torchvision\n"
        "from torchvision.transforms.v2 import functional as F\n"
        "assert F.resize(torch.zeros(3, 8, 8), [4, 4]).shape == (3, 4, 4)\n"
        "from transformers import Qwen3VLVideoProcessor\n"
        "print(len(shim._declared))"
    )
    assert with_shim.returncode == 0, with_shim.stderr
    if alone.returncode:
        assert "operator torchvision::nms does not exist" in alone.stderr
        assert with_shim.stdout.strip() == "1"


def test_on_another_platform_nothing_of_verl_changes() -> None:
    code = (
        "import sys, verl\n"
        "from omegaconf import OmegaConf\n"
        "from verl.plugin.platform import PlatformRegistry\n"
        "assert 'cpu' not in PlatformRegistry.registered_names()\n"
        "assert OmegaConf.has_resolver('cxr.kl')\n"
        "ours = {name for name in sys.modules if name.startswith('verl_cxr.local.')}\n"
        "assert ours == {'verl_cxr.local.environment'}, ours\n"
        "import os; assert 'RAY_AUTH_MODE' not in os.environ\n"
    )
    done = fresh_process(code, VERL_PLATFORM="nvidia")
    assert done.returncode == 0, done.stderr


def test_without_an_accelerator_the_plug_in_takes_the_cpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has an accelerator, and verl takes it")
    code = (
        "import os, verl\n"
        "from verl.plugin.platform import get_platform\n"
        "print(get_platform().device_name, os.environ['VERL_PLATFORM'])\n"
    )
    done = fresh_process(code)
    assert done.stdout.split() == ["cpu", "cpu"], done.stderr


def test_local_scale_on_another_platform_names_its_cure(tmp_path: Path) -> None:
    code = (
        "import os, runpy, sys\n"
        "from verl_cxr.local import torchvision_shim\n"
        "torchvision_shim.install()  # a machine with an accelerator has a torchvision that loads by itself\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "sys.argv = ['main_ppo', '+recipe=cxr_grpo', '+scale=local']\n"
        "runpy.run_module('verl.trainer.main_ppo', run_name='__main__')\n"
    )
    done = fresh_process(code, VERL_PLATFORM="nvidia")
    assert done.returncode != 0
    assert "Put VERL_PLATFORM=cpu before the command, or choose +scale=node8." in done.stderr
