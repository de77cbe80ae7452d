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
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from verl_cxr.commands.shared import counting, stop
from verl_cxr.data.adapters import Adapter, BuildContext, load_adapters
from verl_cxr.data.build import EmptyBuildError, build
from verl_cxr.data.processed import processed_size_of
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions
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
    limit: Annotated[int | None, typer.Option(min=1, help="Use at most so many studies, drawn with the seed.")] = None,
    frame: Annotated[
        str, typer.Option(help="Frame of the boxes in the text: relative_1000, pixel_original or pixel_processed.")
    ] = "relative_1000",
    processor: Annotated[
        str | None, typer.Option(help="Model whose processor resizes the films, for pixel_processed.")
    ] = None,
    data_source: Annotated[
        str | None, typer.Option(help="Name by which validation metrics are grouped. Default: the adapter's.")
    ] = None,
    embed_images: Annotated[bool, typer.Option("--embed-images", help="Store films in the rows, not paths.")] = False,
    keep_lateral: Annotated[bool, typer.Option("--keep-lateral", help="Keep lateral films.")] = False,
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
    except ValueError as error:
        raise stop(error, code=2) from None
    context = BuildContext(out=shared["out"].resolve(), seed=shared["seed"])
    try:
        with counting(console) as progress:
            task = progress.add_task(f"{adapter.name} studies", total=None)
            build(
                adapter,
                options,
                context,
                stages=stages,
                rows=rows,
                lateral=shared["keep_lateral"],
                limit=shared["limit"],
                command=["verl-cxr", *sys.argv[1:]],
                progress=lambda: progress.update(task, advance=1, total=context.total),
            )
    except EmptyBuildError as error:
        console.print(context.funnel.table())
        raise stop(error, code=1) from None
    except (RecordError, OSError, ValueError) as error:
        raise stop(error, code=1) from None
    console.print(context.funnel.table())
    typer.echo(f"wrote {context.out}")


def _stages(text: str) -> list[Stage]:
    if text == "all":
        return list(Stage)
    try:
        return [Stage(name.strip()) for name in text.split(",")]
    except ValueError:
        raise ValueError(
            f"unknown stage in {text!r}: use all, or some of {', '.join(s.value for s in Stage)}"
        ) from None


def _command(adapter: Adapter) -> Callable[..., None]:
    """A function with the adapter's options and the shared ones, as typer wants it."""

    def command(**options: Any) -> None:
        _run(adapter, options)

    own = [
        parameter
        for parameter in inspect.signature(adapter.studies, eval_str=True).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    parameters = [*own, *inspect.signature(_shared, eval_str=True).parameters.values()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


for _adapter in load_adapters().values():
    build_app.command(_adapter.name, help=_adapter.summary)(_command(_adapter))
app.add_typer(build_app, name="build", help="Turn a data set into verl's parquet files.")


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
