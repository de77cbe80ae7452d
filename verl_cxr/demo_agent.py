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
"""The evidence agent at laptop size: paper B's two stages on questions about phantoms, and what they changed.

1. Supervised training on demonstrations of an expert who calls tools too often.
2. GRPO with the accuracy-gated reward, whose first and last validation are compared.
3. The cold start without any evidence, which tells questions that the base model answers from those it does not.
4. The final policy with the gate forced open: what a number that should have been withheld does to an answer.
"""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from verl_cxr.agent_report import Validation, counterfactual, gate_table, outcome, outcome_table
from verl_cxr.local.assets import data_folder, latest_checkpoint, model_folder
from verl_cxr.stages import RL, SFT_ON_TWO, Screen, Stage, run_stage

__all__ = ["run_agent_demo"]

_GRPO, _BASE, _FORCED = "x_ragent_grpo", "x_ragent_base", "x_ragent_forced"
_ONLY = ("trainer.val_only=true", "trainer.resume_mode=disable")


def run_agent_demo(out: Path, *, console: Console) -> bool:
    """Run all stages under ``out`` and print what GRPO changed on held-out questions.

    Returns:
        Whether accuracy rose, or calls fell at no lower accuracy, by more than the interval of the difference.

    Raises:
        StageFailedError: a stage stopped; the message holds the end of its log.
        FileExistsError: ``out`` holds an earlier demo, which this one would continue instead of repeating.
    """
    if (out / "x_ragent_sft").exists():
        raise FileExistsError(f"{out} holds an earlier demo: remove it, or name another folder with --out")
    began = time.monotonic()
    console.print(f"Questions about phantom films and a tiny Qwen3-VL in {out}; each stage logs to {out / 'logs'}.")
    data_folder(out, "agent_sft")
    model_folder(out, "agent_sft")
    with Screen(console) as screen:
        for stage in _trained():
            run_stage(stage, out, screen)
        for stage in _validated(out):
            run_stage(stage, out, screen)
    before, after = Validation.first_and_last(out / _GRPO / "validation")
    base, forced = (Validation.first_and_last(out / name / "validation")[1] for name in (_BASE, _FORCED))
    changed = outcome(before, after)
    for table in (
        outcome_table(before, after, base),
        gate_table(out / _GRPO / "trajectories", after.step),
        counterfactual(after, forced),
    ):
        console.print(table)
    console.print(f"Outputs: {out}  ({(time.monotonic() - began) / 60:.1f} minutes)")
    console.print(str(changed))
    return changed.better


def _trained() -> tuple[Stage, ...]:
    return (
        Stage("x_ragent_sft", SFT_ON_TWO, "1 cold start on demonstrations", "train/loss"),
        Stage(_GRPO, RL, "2 GRPO with the accuracy-gated reward", "critic/rewards/mean"),
    )


def _validated(out: Path) -> tuple[Stage, ...]:
    """The two stages that only validate: the cold start without evidence, and the last policy without a gate."""
    final = latest_checkpoint(out / _GRPO)
    if final is None:
        raise FileNotFoundError(f"{out / _GRPO} holds no checkpoint in Hugging Face form")
    without = ("cxr.agent.routing=none", "cxr.agent.measurements=none")
    return (
        Stage(
            _GRPO,
            RL,
            "3 the cold start without evidence",
            "val",
            name=_BASE,
            overrides=(*_ONLY, *without, f"trainer.experiment_name={_BASE}"),
        ),
        Stage(
            _GRPO,
            RL,
            "4 the policy with the gate forced open",
            "val",
            name=_FORCED,
            overrides=(
                *_ONLY,
                "cxr.gate.enabled=false",
                f"cxr.model={final}",
                f"trainer.experiment_name={_FORCED}",
            ),
        ),
    )
