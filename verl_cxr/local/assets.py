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
"""What ``+scale=local`` runs on when nothing else is named: phantom films and a tiny model, made on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

__all__ = ["data_folder", "latest_checkpoint", "made_once", "model_folder"]

_STAGE_BEFORE = {"cold_start": "cxr_sft", "grpo": "cxr_cold_start", "agent_grpo": "x_ragent_sft"}
NO_MODEL = "no model named: building a tiny Qwen3-VL with random weights"


def data_folder(assets: str | Path, stage: str = "grpo") -> Path:
    """``ASSETS/data``: phantom studies as parquet for all three stages. Made once; safe under several processes.

    For a stage of the evidence agent ``ASSETS/agent-data``, see :mod:`verl_cxr.local.agent_assets`.
    """
    if _is_agent(stage):
        from verl_cxr.local.agent_assets import agent_data_folder

        return agent_data_folder(assets)
    from verl_cxr.data.adapters import BuildContext, load_adapters
    from verl_cxr.data.build import build
    from verl_cxr.data.card import CARD_NAME
    from verl_cxr.data.prompt import Stage
    from verl_cxr.data.rows import RowOptions

    def make(folder: Path) -> None:
        build(
            load_adapters()["phantom"],
            {},
            BuildContext(out=folder, seed=0),
            stages=list(Stage),
            rows=RowOptions(data_source="phantom"),
            command=["verl-cxr", "data", "build", "phantom", "--out", str(folder)],
        )

    return made_once(Path(assets) / "data", CARD_NAME, "no data named: making phantom films", make)


def model_folder(assets: str | Path, stage: str) -> Path:
    """The newest checkpoint of the stage before ``stage`` under ``assets``; without one, ``ASSETS/tiny-model``."""
    before = _STAGE_BEFORE.get(stage)
    if before is not None:
        checkpoint = latest_checkpoint(Path(assets).absolute() / before)
        if checkpoint is not None:
            return checkpoint
        _say(f"no checkpoint of {before} in {assets}: {stage} starts from random weights, so expect a reward near 0")
    if _is_agent(stage):
        from verl_cxr.local.agent_assets import agent_model_folder

        return agent_model_folder(assets)
    return _tiny_model(assets)


def latest_checkpoint(run: Path) -> Path | None:
    """The Hugging Face folder of the last complete checkpoint under a verl run, or None."""
    found = [path.parent for path in run.glob("global_step_*/**/huggingface/model*.safetensors")]
    return max(
        found, key=lambda folder: int(folder.relative_to(run).parts[0].removeprefix("global_step_")), default=None
    )


def _tiny_model(assets: str | Path) -> Path:
    from verl_cxr.study import read_studies
    from verl_cxr.tiny import build_tiny_model, training_texts
    from verl_cxr.trace import TraceFormat

    def make(folder: Path) -> None:
        studies = read_studies(data_folder(assets) / "studies.jsonl")
        build_tiny_model(folder, texts=training_texts(studies, TraceFormat()), seed=0)

    return made_once(Path(assets) / "tiny-model", "config.json", NO_MODEL, make)


def _is_agent(stage: str) -> bool:
    return stage.startswith("agent_")


def made_once(folder: Path, mark: str, notice: str, make: Callable[[Path], None]) -> Path:
    """The folder, absolute, made if it does not hold the file ``mark``; safe under several processes.

    Args:
        notice: why and what is made, told to the user.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / mark).exists():
            _say(f"{notice} in {folder}")
            make(folder)
    return folder


def _say(text: str) -> None:
    """Tell the user, on the standard error."""
    print(f"verl-cxr: {text}", file=sys.stderr, flush=True)
