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
"""``verl-cxr data agent``: questions, and demonstrations of how to answer them, as the agent trains on them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console

from verl_cxr.commands.shared import counting, stop
from verl_cxr.data.adapters import Adapter, BuildContext
from verl_cxr.data.build import EmptyBuildError, Plan, build_rows
from verl_cxr.data.processed import processed_size_of
from verl_cxr.data.question_rows import AGENT_STAGES, AgentRows, Demonstration
from verl_cxr.data.workshop import BusyFolderError
from verl_cxr.files import RecordError
from verl_cxr.question import Question, read_questions
from verl_cxr.trace import TraceFormat, TraceFrame
from verl_cxr.trajectory import Trajectory, read_trajectories

__all__ = ["agent_command"]


def agent_command(
    questions: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Question records (JSONL).")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder to write into.")],
    demonstrations: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Trajectories about some of them (JSONL), for supervised training."
        ),
    ] = None,
    frame: Annotated[
        str, typer.Option(help="Frame of the boxes in calls: relative_1000, pixel_original or pixel_processed.")
    ] = "relative_1000",
    processor: Annotated[
        str | None, typer.Option(help="Model whose processor resizes the films, for pixel_processed.")
    ] = None,
    max_calls: Annotated[int, typer.Option(min=0, help="K_max, which the prompt states.")] = 5,
    data_source: Annotated[str, typer.Option(help="Name of the collection; verl groups its metrics by it.")] = "agent",
) -> None:
    """Write agent_grpo_SPLIT.parquet and, of questions with a trajectory, agent_sft_SPLIT.parquet.

    A question may have one trajectory; its pictures lie beside the file of trajectories, under the names in its calls.
    """
    console = Console()
    context = BuildContext(out=out.absolute(), seed=0)
    try:
        told = {} if demonstrations is None else _trajectories(demonstrations)
        maker = AgentRows(
            AGENT_STAGES if told else AGENT_STAGES[1:],
            data_source,
            films=context.out / "films",
            trace=TraceFormat(cast("TraceFrame", frame)),
            max_calls=max_calls,
            processed_size=None if processor is None else processed_size_of(processor),
        )

        def read(context: BuildContext) -> Iterator[Question | Demonstration]:
            for question in read_questions(questions):
                found = told.get(question.id)
                yield question if found is None else Demonstration(question, *found)

        with counting(console) as bars:
            task = bars.add_task("questions", total=None)
            files = build_rows(
                Adapter("questions", "Questions.", read),
                {},
                context,
                maker=maker,
                plan=Plan(keep_records=True, restart=True),
                command=["verl-cxr", *sys.argv[1:]],
                progress=lambda what, more: bars.update(task, advance=more if what == "studies" else 0),
            )
    except (RecordError, OSError, ValueError, EmptyBuildError, BusyFolderError) as error:
        raise stop(error, code=1) from None
    for name, rows in files.items():
        typer.echo(f"{out / name}: {rows} rows")


def _trajectories(path: Path) -> dict[str, tuple[Trajectory, tuple[Path, ...]]]:
    """The trajectory of each question, and the files of its pictures; the first where there are several."""
    found: dict[str, tuple[Trajectory, tuple[Path, ...]]] = {}
    for trajectory in read_trajectories(path):
        pictures = tuple(path.absolute().parent / name for call in trajectory.calls for name in call.images)
        found.setdefault(trajectory.id, (trajectory, pictures))
    return found
