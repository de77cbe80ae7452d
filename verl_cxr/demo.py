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

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from verl_cxr.evaluate.interval import Estimate, mean_difference, mean_interval
from verl_cxr.evaluate.rollouts import film_means
from verl_cxr.local.assets import data_folder, model_folder

__all__ = ["Stage", "StageFailedError", "compare", "run_demo"]

_MEASURES = {"format": "format rate", "spatial": "mean IoU", "factual": "factual score", "reward": "reward"}
_SFT = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "-m", "verl.trainer.sft_trainer"]
_QUIET_SECONDS = 20.0
_RL = ["-m", "verl.trainer.main_ppo"]


class StageFailedError(RuntimeError):
    """A stage's command ended with an error."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of the demo and the number to watch in its log."""

    recipe: str
    trainer: list[str]
    title: str
    watch: str

    def command(self, assets: Path) -> list[str]:
        """What a user would type, from this interpreter."""
        return [sys.executable, *self.trainer, f"+recipe={self.recipe}", "+scale=local", f"cxr.assets={assets}"]


STAGES = (
    Stage("cxr_sft", _SFT, "1 SFT on reports", "train/loss"),
    Stage("cxr_cold_start", _SFT, "2 cold start on region traces", "train/loss"),
    Stage("cxr_grpo", _RL, "3 GRPO with the cascaded reward", "critic/rewards/mean"),
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
    with _Screen(console) as screen:
        for stage in STAGES:
            _run(stage, out, screen)
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


class _Screen:
    """Progress bars on a terminal; elsewhere (a log, CI) a line now and then."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(
            *columns, TextColumn("{task.fields[note]}"), console=console, disable=not console.is_terminal
        )
        self._console = console
        self._said = 0.0

    def __enter__(self) -> _Screen:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, title: str) -> TaskID:
        """Announce a stage."""
        if not self._console.is_terminal:
            self._console.print(f"{title}: starting")
        return self._bars.add_task(title, total=None, note="starting")

    def show(self, task: TaskID, *, step: int | None = None, total: int | None = None, note: str | None = None) -> None:
        """Update what is known of a stage."""
        self._bars.update(task, completed=step, total=total)
        if note is not None:
            self._bars.update(task, note=note)
        if not self._console.is_terminal and step and time.monotonic() - self._said > _QUIET_SECONDS:
            self._said = time.monotonic()
            state = self._bars.tasks[task]
            self._console.print(f"{state.description}: step {step} of {state.total or '?'} {state.fields['note']}")


def _run(stage: Stage, out: Path, screen: _Screen) -> None:
    log = out / "logs" / f"{stage.recipe}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = stage.command(out)
    task = screen.begin(stage.title)
    with log.open("w") as file:
        print("$", *command, file=file, flush=True)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", file=file, flush=True)
                _show(stage, line, screen, task)
        finally:
            process.terminate()
            code = process.wait()
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise StageFailedError(f"{stage.title} ended with exit status {code}; the end of {log}:\n{tail}")
    screen.show(task, note="done")


def _show(stage: Stage, line: str, screen: _Screen, task: TaskID) -> None:
    if total := re.search(r"Total steps: (\d+)|'total_training_steps': (\d+)", line):
        screen.show(task, total=int(total[1] or total[2]))
    if step := re.search(r"\bstep:(\d+) - ", line):
        value = re.search(re.escape(stage.watch) + r":(?:np\.float64\()?(-?[\d.]+)", line)
        screen.show(task, step=int(step[1]), note=f"{stage.watch} {float(value[1]):.3f}" if value else None)
