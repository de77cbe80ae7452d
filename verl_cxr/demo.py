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
"""The main job at laptop size: paper A's three stages on phantom films by verl's own trainer, and what they changed.

Nothing here trains: the stages are the commands of the recipes, run one after another, with their output in log files
and their progress on the screen.
"""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from verl_cxr.evaluate.interval import Estimate, mean_difference, mean_interval
from verl_cxr.evaluate.rollouts import film_means
from verl_cxr.local.assets import data_folder, model_folder
from verl_cxr.stages import RL, SFT, Screen, Stage, run_stage

__all__ = ["compare", "run_demo"]

_MEASURES = {"format": "format rate", "spatial": "mean IoU", "factual": "factual score", "reward": "reward"}

STAGES = (
    Stage("cxr_sft", SFT, "1 SFT on reports", "train/loss"),
    Stage("cxr_cold_start", SFT, "2 cold start on region traces", "train/loss"),
    Stage("cxr_grpo", RL, "3 GRPO with the cascaded reward", "critic/rewards/mean"),
)


def run_demo(out: Path, *, console: Console) -> bool:
    """Run all three stages under ``out`` and print what GRPO changed on held-out films.

    Returns:
        Whether the reward rose by more than the interval of the difference.

    Raises:
        StageFailedError: a stage stopped; the message holds the end of its log.
        FileExistsError: ``out`` holds an earlier demo, which this one would continue instead of repeating.
    """
    if (out / STAGES[0].recipe).exists():
        raise FileExistsError(f"{out} holds an earlier demo: remove it, or name another folder with --out")
    began = time.monotonic()
    console.print(f"Phantom films and a tiny Qwen3-VL in {out}; each stage logs to {out / 'logs'}.")
    data_folder(out)
    model_folder(out, "sft")
    with Screen(console) as screen:
        for stage in STAGES:
            run_stage(stage, out, screen)
    table, gain = compare(out / STAGES[-1].recipe / "validation")
    console.print(table)
    console.print(f"Outputs: {out}  ({(time.monotonic() - began) / 60:.1f} minutes)")
    rose = gain.low > 0
    console.print(f"GRPO {'raised' if rose else 'did NOT raise'} the held-out reward: difference {gain}.")
    return rose


def compare(dumps: Path) -> tuple[Table, Estimate]:
    """A table of the first and the last validation of a run, and the paired difference of their rewards.

    Args:
        dumps: verl's ``trainer.validation_data_dir``.

    Raises:
        FileNotFoundError: fewer than two validations.
    """
    steps = sorted(int(path.stem) for path in dumps.glob("*.jsonl"))
    if len(steps) < 2:
        raise FileNotFoundError(f"{dumps} holds {len(steps)} validation(s); comparing takes two")
    before, after = (film_means(dumps / f"{step}.jsonl", list(_MEASURES)) for step in (steps[0], steps[-1]))
    films = sorted(before)
    table = Table(
        title=f"{len(films)} held-out phantom films, seed 0; responses sampled at temperature 1; facts: lexicon\n"
        "mean [95 % bootstrap interval over films]"
    )
    table.add_column("")
    table.add_column("cold start")
    table.add_column(f"GRPO, step {steps[-1]}")
    for key, title in _MEASURES.items():
        row = (mean_interval([found[film][key] for film in films]) for found in (before, after))
        table.add_row(title, *map(str, row))
    gain = mean_difference([after[film]["reward"] for film in films], [before[film]["reward"] for film in films])
    return table, gain
