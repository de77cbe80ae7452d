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
"""``verl-cxr facts``: get RadGraph's weights, check them, and read a data set's references before training."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from verl_cxr.commands.shared import counting, stop
from verl_cxr.facts.radgraph_options import RadGraphOptions
from verl_cxr.facts.scorer import FactServiceError
from verl_cxr.files import RecordError

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="RadGraph's weights, and the store of its graphs.")

_CHUNK = 2048  # texts between two writes to the store

Model = Annotated[str, typer.Option(help="radgraph-xl or radgraph.")]
Weights = Annotated[
    Path | None, typer.Option(help="Folder of the weights. Default: the radgraph package's cache.", file_okay=False)
]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
Store = Annotated[Path, typer.Option(help="The store (SQLite), on a disk of this machine.", dir_okay=False)]


@app.command()
def warm(
    data: Annotated[Path, typer.Option(help="Studies (JSONL) or verl's RL rows (parquet).", dir_okay=False)],
    store: Store,
    model: Model = "radgraph-xl",
    weights: Weights = None,
    device: Device = "cpu",
    store_gib: Annotated[float, typer.Option(help="Bound on the store's file, in GiB.")] = 1.0,
    reports: Annotated[bool, typer.Option("--reports", help="Also the whole reports, for verify=answer|both.")] = False,
) -> None:
    """Read the references of a data set into a store, so that training finds them there."""
    from verl_cxr.facts.reader import open_reader
    from verl_cxr.facts.references import reference_texts

    try:
        options = RadGraphOptions(
            model_type=model,
            weights=None if weights is None else str(weights),
            device=device,
            store=str(store),
            store_gib=store_gib,
        )
    except ValueError as error:
        raise stop(error, code=2) from None
    console = Console()
    start = time.monotonic()
    try:
        texts = list(reference_texts(data, reports=reports))
        reader = open_reader(options)
        with counting(console) as progress:
            task = progress.add_task("references", total=len(texts))
            todo = iter(texts)
            while chunk := list(itertools.islice(todo, _CHUNK)):
                reader(chunk)
                progress.update(task, advance=len(chunk))
        reader.close()
    except (RecordError, OSError, FactServiceError) as error:
        raise stop(error, code=1) from None
    counts = reader.counts
    typer.echo(
        f"{len(texts)} distinct references: {counts.read} read, {counts.store} were there "
        f"({time.monotonic() - start:.1f} s). wrote {store}"
    )


@app.command()
def stats(store: Store) -> None:
    """Say what a store holds."""
    from verl_cxr.facts.store import FactStore

    try:
        found = FactStore.read_stats(store)
    except FactServiceError as error:
        raise stop(error, code=1) from None
    table = Table(
        "annotator", "fingerprint", "graphs", "last used", title=f"{found.path}: {found.bytes / 2**20:.1f} MiB"
    )
    for model in found.models:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(model.last_used)) if model.graphs else "-"
        table.add_row(model.name, model.fingerprint[:12], f"{model.graphs:,}", used)
    Console().print(table)


@app.command()
def fetch(
    out: Annotated[Path, typer.Option(help="Folder to put the weights into, to be copied where they are needed.")],
    model: Model = "radgraph-xl",
) -> None:
    """Download weights and the encoder's tokenizer. Needs network; nothing else in this project does so by itself."""
    from verl_cxr.facts.weights import fetch as fetch_weights

    try:
        files = fetch_weights(model, out)
    except ValueError as error:
        raise stop(error, code=2) from None
    except (FactServiceError, OSError) as error:
        raise stop(error, code=1) from None
    typer.echo(f"{model} is complete in {files.folder}\ncheck it: verl-cxr facts check --model {model} --weights {out}")


@app.command()
def check(model: Model = "radgraph-xl", weights: Weights = None, device: Device = "cpu") -> None:
    """Read the sentence of the package's README, and compare with what the package says about it."""
    from verl_cxr.facts.published import PUBLISHED
    from verl_cxr.facts.reader import open_reader

    try:
        options = RadGraphOptions(model_type=model, weights=None if weights is None else str(weights), device=device)
        published = PUBLISHED[model]
    except ValueError as error:
        raise stop(error, code=2) from None
    try:
        problems = published.problems(open_reader(options))
    except FactServiceError as error:
        raise stop(error, code=1) from None
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise stop(ValueError(f"{model} does not give what the package publishes: do not trust it"), code=1)
    typer.echo(f"{model} gives {published.what}")
