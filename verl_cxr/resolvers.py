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
"""OmegaConf resolvers of ``hydra_configs``: ``${cxr.NAME:...}``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

__all__ = ["register"]


def register() -> None:
    """Register every ``cxr.*`` resolver. Idempotent."""
    resolvers: dict[str, Callable[..., Any]] = {
        "files": _files,
        "kl": _kl,
        "local_device": _local_device,
        "local_data": _local_data,
        "local_model": _local_model,
        "margin": _margin,
        "package_file": _package_file,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(f"cxr.{name}", resolver, replace=True)


def _files(data: str, stage: str, split: str) -> str | list[str]:
    """What a stage reads of ``cxr.data``: the one file of a built folder, its shards, or a split of a JSONL file."""
    from verl_cxr.data.parquet import data_files

    if data.endswith((".jsonl", ".jsonl.gz")):
        return f"{data}@{split}"
    found = data_files(Path(data), stage, split)
    if len(found) > 1:
        return [str(path) for path in found]
    if not found and split == "validate" and data_files(Path(data), stage, "train"):
        raise FileNotFoundError(
            f"{data} holds no {stage}_validate.parquet. Hold some patients out: verl-cxr data build ... "
            "--validate-fraction 0.05. Or name other rows: data.val_files=FILE. Or train without validation: "
            f"data.val_files={'null' if stage != 'grpo' else '${data.train_files} trainer.val_before_train=false'} "
            "trainer.test_freq=-1"
        )
    return f"{data}/{stage}_{split}.parquet"


def _kl(reference: str) -> bool:
    """Whether the loss holds a KL term to the reference policy."""
    if reference not in ("initial", "none"):
        raise ValueError(f"cxr.reference is 'initial' (the policy at step 0) or 'none', not '{reference}'")
    return reference == "initial"


def _margin(lambda_t: float, max_calls: int, format_weight: float) -> float:
    """By how much a right answer outranks a wrong one under the accuracy-gated reward; an error if it does not."""
    from reward_plugins.accuracy_options import margin

    return margin(lambda_t, max_calls, format_weight)


def _local_device() -> str:
    """The device of ``+scale=local``; an error with its cure where verl runs on an accelerator."""
    from verl.plugin.platform import get_platform

    device = str(get_platform().device_name)
    if device != "cpu":
        raise RuntimeError(
            f"+scale=local runs on the CPU, but verl's platform here is '{device}'. "
            "Put VERL_PLATFORM=cpu before the command, or choose +scale=node8."
        )
    return device


def _package_file(path: str) -> str:
    """Absolute path of a file inside an installed package, such as ``tool_plugins/agent_loops.yaml``."""
    from importlib.resources import files

    package, _, rest = path.partition("/")
    found = files(package) / rest
    if not found.is_file():
        raise FileNotFoundError(f"the package {package} has no file {rest}")
    return str(found)


def _local_data(assets: str, stage: str = "grpo") -> str:
    """The folder of phantom data for ``stage`` under ``assets``, made now if it does not exist."""
    from verl_cxr.local.assets import data_folder

    return str(data_folder(assets, stage))


def _local_model(assets: str, stage: str) -> str:
    """The newest checkpoint of the stage before ``stage`` under ``assets``, or a fresh tiny Qwen3-VL."""
    from verl_cxr.local.assets import model_folder

    return str(model_folder(assets, stage))
