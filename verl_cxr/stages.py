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
"""Commands that run one after another, with their output in log files and their progress on the screen."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["RL", "SFT", "SFT_ON_TWO", "Screen", "Stage", "StageFailedError", "run_stage"]

SFT = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "-m", "verl.trainer.sft_trainer")
SFT_ON_TWO = (*SFT[:4], "2", *SFT[5:])
"""The same in two processes of one thread."""
RL = ("-m", "verl.trainer.main_ppo")
_QUIET_SECONDS = 20.0


class StageFailedError(RuntimeError):
    """A stage's command ended with an error."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of a demo and the number to watch in its log.

    Attributes:
        name: of its log, and of its folder unless `overrides` say otherwise.
        overrides: further arguments of the command.
    """

    recipe: str
    trainer: tuple[str, ...]
    title: str
    watch: str
    name: str = ""
    overrides: tuple[str, ...] = ()

    def command(self, assets: Path) -> list[str]:
        """What a user would type, from this interpreter."""
        chosen = [f"+recipe={self.recipe}", "+scale=local", f"cxr.assets={assets}", *self.overrides]
        return [sys.executable, *self.trainer, *chosen]


class Screen:
    """Progress bars on a terminal; elsewhere (a log, CI) a line now and then."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(
            *columns, TextColumn("{task.fields[note]}"), console=console, disable=not console.is_terminal
        )
        self._console = console
        self._said = 0.0

    def __enter__(self) -> Screen:
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


def run_stage(stage: Stage, out: Path, screen: Screen) -> None:
    """Run a stage; its log is ``OUT/logs/NAME.log``.

    Raises:
        StageFailedError: it stopped; the message holds the end of its log.
    """
    log = out / "logs" / f"{stage.name or stage.recipe}.log"
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


def _show(stage: Stage, line: str, screen: Screen, task: TaskID) -> None:
    if total := re.search(r"Total steps: (\d+)|'total_training_steps': (\d+)", line):
        screen.show(task, total=int(total[1] or total[2]))
    if step := re.search(r"\bstep:(\d+) - ", line):
        value = re.search(re.escape(stage.watch) + r":(?:np\.float64\()?(-?[\d.]+)", line)
        screen.show(task, step=int(step[1]), note=f"{stage.watch} {float(value[1]):.3f}" if value else None)
