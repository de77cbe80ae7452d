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
"""``verl-cxr data``: build data sets for verl's trainers, and a tiny model that fits them.

``verl-cxr data build`` has one sub-command an adapter (:mod:`verl_cxr.data.adapters`), with the adapter's own options
and those that every build shares.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from verl_cxr.commands.data_agent import agent_command
from verl_cxr.commands.data_audit import audit
from verl_cxr.commands.data_describe import describe_command
from verl_cxr.commands.data_questions import questions_app
from verl_cxr.commands.shared import counting, stop, with_options
from verl_cxr.data.adapters import Adapter, BuildContext, load_adapters
from verl_cxr.data.audit import leak_guard
from verl_cxr.data.build import EmptyBuildError, Plan, build
from verl_cxr.data.engine import make_engine
from verl_cxr.data.facets import require_facets
from verl_cxr.data.maker import require_share
from verl_cxr.data.processed import processed_size_of
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions
from verl_cxr.data.sample import Sample
from verl_cxr.data.workshop import BusyFolderError
from verl_cxr.files import RecordError
from verl_cxr.study import read_studies
from verl_cxr.trace import TraceFormat, TraceFrame

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Build data sets for training.")
build_app = typer.Typer(no_args_is_help=True)


def _shared(
    *,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder to write into.")],
    stage: Annotated[str, typer.Option(help="sft, cold_start, grpo, several joined by commas, or all.")] = "all",
    seed: Annotated[int, typer.Option(min=0, help="Seed of whatever is random.")] = 0,
    limit: Annotated[
        str | None, typer.Option(help="Training rows to draw for each stage: 13000, or sft=120000,grpo=74000.")
    ] = None,
    fraction: Annotated[str | None, typer.Option(help="Share of the training rows to draw: 0.25 or 25%.")] = None,
    stratify: Annotated[
        str, typer.Option(help="Keep the proportions of these in what is drawn: view, source, region, label.")
    ] = "",
    validate_fraction: Annotated[
        str, typer.Option(help="Share of the training patients to hold out as the split validate: 0.05 or 5%.")
    ] = "0",
    guard: Annotated[
        list[Path] | None,
        typer.Option(exists=True, help="A set that is evaluated on: nothing of it trains. Repeatable."),
    ] = None,
    frame: Annotated[
        str, typer.Option(help="Frame of the boxes in the text: relative_1000, pixel_original or pixel_processed.")
    ] = "relative_1000",
    processor: Annotated[
        str | None, typer.Option(help="Model whose processor resizes the films, for pixel_processed.")
    ] = None,
    data_source: Annotated[
        str | None, typer.Option(help="Name by which validation metrics are grouped. Default: the adapter's.")
    ] = None,
    image_max_side: Annotated[
        int | None, typer.Option(min=32, help="Scale films down to this many pixels on the longer side.")
    ] = None,
    decode_films: Annotated[
        bool, typer.Option("--decode-films", help="Decode every film to find damaged ones, which takes long.")
    ] = False,
    embed_images: Annotated[bool, typer.Option("--embed-images", help="Store films in the rows, not paths.")] = False,
    shard_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of a file, beyond which there are several.")
    ] = None,
    keep_lateral: Annotated[bool, typer.Option("--keep-lateral", help="Keep lateral films.")] = False,
    write_studies: Annotated[
        bool, typer.Option("--write-studies", help="Write studies.jsonl, every record read, as well.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first broken record or film.")] = False,
    engine: Annotated[
        str, typer.Option(help="Who does the work: local, or ray (RAY_ADDRESS names a cluster).")
    ] = "local",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes, or Ray tasks at a time.")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw away an interrupted build instead of continuing it.")
    ] = False,
) -> None:
    """The options that every build has; never called, read for its signature."""


def _run(adapter: Adapter, options: dict[str, Any]) -> None:
    shared = {name: options.pop(name) for name in inspect.signature(_shared).parameters}
    console = Console()
    try:
        rows = RowOptions(
            data_source=shared["data_source"] or adapter.name,
            trace=TraceFormat(cast(TraceFrame, shared["frame"])),
            embed_images=shared["embed_images"],
            processed_size=processed_size_of(shared["processor"]) if shared["processor"] else None,
        )
        stages = _stages(shared["stage"])
        plan = Plan(
            sample=Sample(_limit(shared["limit"], stages), _share(shared["fraction"]), _names(shared["stratify"])),
            engine=make_engine(shared["engine"], shared["workers"]),
            keep_records=shared["write_studies"],
            shard_rows=shared["shard_rows"],
            restart=shared["restart"],
        )
        require_facets(plan.sample.stratify)
        validate_fraction = _share(shared["validate_fraction"]) or 0.0
        require_share(validate_fraction)
        guard = tuple(path.resolve() for path in shared["guard"] or ())
        leak_guard(guard)  # read now, so that a set that is none is refused before the work begins
    except (OSError, ValueError) as error:
        raise stop(error, code=2) from None
    context = BuildContext(
        out=shared["out"].resolve(), seed=shared["seed"], strict=shared["strict"], lateral=shared["keep_lateral"]
    )
    try:
        with counting(console) as bars:
            files = build(
                adapter,
                options,
                context,
                stages=stages,
                rows=rows,
                max_side=shared["image_max_side"],
                decode=shared["decode_films"],
                validate_fraction=validate_fraction,
                guard=guard,
                plan=plan,
                command=["verl-cxr", *sys.argv[1:]],
                progress=_Bars(bars, adapter.name, context),
                say=lambda sentence: typer.echo(sentence, err=True),
            )
    except EmptyBuildError as error:
        console.print(context.funnel.table())
        raise stop(error, code=1) from None
    except (RecordError, OSError, ValueError, ImportError, BusyFolderError) as error:
        raise stop(error, code=1) from None
    console.print(context.funnel.table())
    for sentence in _warnings(stages, files):
        typer.echo(sentence, err=True)
    typer.echo(f"wrote {context.out}")


class _Bars:
    """A bar for each thing that a build does."""

    def __init__(self, bars: Progress, adapter: str, context: BuildContext) -> None:
        self._bars, self._adapter, self._context = bars, adapter, context
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, more: int) -> None:
        if what not in self._tasks:
            title = {"studies": f"{self._adapter} studies", "films": "films, in parts"}.get(what, what)
            self._tasks[what] = self._bars.add_task(title, total=None)
        total = self._context.total if what == "studies" else None
        self._bars.update(self._tasks[what], advance=more, total=total)


def _warnings(stages: Iterable[Stage], files: Iterable[str]) -> Iterator[str]:
    """What is missing for training."""
    splits = {name.rpartition(".")[0].partition("-")[0] for name in files}
    lacking = [s.value for s in stages if f"{s.value}_train" in splits and f"{s.value}_validate" not in splits]
    if lacking:
        yield (
            f"note: no validation rows for {', '.join(lacking)}, which the recipes read. Hold some patients out with "
            "--validate-fraction 0.05, or name others with data.val_files=FILE"
        )


def _limit(text: str | None, stages: Iterable[Stage]) -> int | dict[str, int] | None:
    if text is None:
        return None
    if text.strip().isdecimal():
        return int(text)
    limits: dict[str, int] = {}
    for part in _names(text):
        name, _, number = (word.strip() for word in part.partition("="))
        if name not in [stage.value for stage in stages] or not number.isdecimal():
            raise ValueError(f"a limit is a number, or STAGE=NUMBER for stages that are built, not {part!r}")
        limits[name] = int(number)
    return limits


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"a share is a number such as 0.25, or 25%, not {text!r}") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _stages(text: str) -> list[Stage]:
    if text == "all":
        return list(Stage)
    try:
        return [Stage(name.strip()) for name in text.split(",")]
    except ValueError:
        raise ValueError(
            f"unknown stage in {text!r}: use all, or some of {', '.join(s.value for s in Stage)}"
        ) from None


for _adapter in load_adapters().values():
    build_app.command(_adapter.name, help=_adapter.summary)(
        with_options(partial(_run, _adapter), _adapter.studies, _shared)
    )
app.add_typer(build_app, name="build", help="Turn a data set into verl's parquet files.")
app.add_typer(questions_app, name="questions", help="Turn a question set into question records.")
app.command("audit")(audit)
app.command("agent")(agent_command)
app.command("describe")(describe_command)


@app.command("tiny-model")
def tiny_model(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder to write the checkpoint into.")],
    studies: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="Grounded studies (JSONL) whose texts it will write.")
    ],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights.")] = 0,
    image_size: Annotated[int, typer.Option(help="Films are scaled down to this square; a multiple of 32.")] = 128,
    frame: Annotated[str, typer.Option(help="Frame of the boxes in the text.")] = "relative_1000",
) -> None:
    """Build a Qwen3-VL of about a million parameters, with random weights."""
    from verl_cxr.tiny import TinySizes, build_tiny_model, training_texts

    try:
        texts = training_texts(read_studies(studies), TraceFormat(cast(TraceFrame, frame)))
        path = build_tiny_model(out, texts=texts, seed=seed, sizes=TinySizes(image_size=image_size))
    except (RecordError, OSError, ValueError) as error:
        raise stop(error, code=1) from None
    typer.echo(f"wrote {path}")
