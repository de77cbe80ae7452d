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
"""The CPU as a verl platform (``verl.plugin.platform``, verl 0.9.1)."""

from __future__ import annotations

import resource
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

__all__ = ["CpuPlatform", "register"]


def _resident(*_: Any, **__: Any) -> int:
    return int(psutil.Process().memory_info().rss)


def _peak(*_: Any, **__: Any) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _CpuModule(types.ModuleType):
    """``torch.cpu`` plus the calls that verl makes on every device module: memory statistics (bytes) and RNG state."""

    memory_allocated = memory_reserved = staticmethod(_resident)
    max_memory_allocated = max_memory_reserved = staticmethod(_peak)

    @staticmethod
    def empty_cache() -> None: ...

    @staticmethod
    def reset_peak_memory_stats(*_: Any) -> None: ...

    reset_accumulated_memory_stats = reset_peak_memory_stats

    @staticmethod
    def get_device_name(*_: Any) -> str:
        return "CPU"

    @staticmethod
    def manual_seed(seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    @staticmethod
    def get_rng_state(*_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *_: Any) -> None:
        torch.set_rng_state(state)

    @staticmethod
    def mem_get_info(*_: Any) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


_module = _CpuModule("verl_cxr.local.cpu")


class CpuPlatform(PlatformBase):
    """One CPU worker is one device. Chosen by ``VERL_PLATFORM`` only: it never wins verl's auto-detection."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False

    def current_device(self) -> str:
        # verl hands this to Tensor.to(); a CPU has no index, so the name is the only valid answer
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        # verl's resource check knows "GPU" and "NPU" only: the worker takes a logical GPU (ray_init.num_gpus)
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def register() -> None:
    """Add the platform to verl's registry under the name ``cpu``."""
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
