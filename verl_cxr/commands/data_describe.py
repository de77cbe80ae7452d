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
"""``verl-cxr data describe``: counts of a data set, and a contact sheet with its boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table

from verl_cxr.commands.shared import counting, stop
from verl_cxr.data.describe import Description, describe
from verl_cxr.data.facets import FACETS
from verl_cxr.data.prompt import Stage
from verl_cxr.data.sheet import contact_sheet
from verl_cxr.files import RecordError, replacing

__all__ = ["describe_command"]


def describe_command(
    path: Annotated[
        Path, typer.Argument(exists=True, help="A built data set, one of its parquet files, or studies (JSONL).")
    ],
    sheet: Annotated[
        Path | None, typer.Option(dir_okay=False, help="PNG file for a contact sheet of films with their boxes.")
    ] = None,
    films: Annotated[int, typer.Option(min=1, help="Films on the sheet.")] = 12,
    columns: Annotated[int, typer.Option(min=1, help="Films side by side.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed by which the films are drawn.")] = 0,
    stage: Annotated[
        Stage | None, typer.Option(help="Stage of a folder to describe. Default: the one whose rows say most.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Values shown of each kind.")] = 15,
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="Write all counts as JSON too.")] = None,
) -> None:
    """Show counts by split, view, region and label, and draw a contact sheet."""
    console = Console()
    try:
        with counting(console) as bars:
            task = bars.add_task("studies", total=None)
            found = describe(
                path,
                films=films if sheet else 0,
                seed=seed,
                stage=stage,
                progress=lambda more: bars.update(task, advance=more),
            )
        if out is not None:
            with replacing(out) as file:
                file.write(orjson.dumps(found.to_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        if sheet is not None:
            with replacing(sheet) as file:
                contact_sheet(found.drawn, columns=columns).save(file, format="PNG")
    except (RecordError, OSError, ValueError) as error:
        raise stop(error, code=1) from None
    _print(console, found, top)
    if sheet is not None:
        typer.echo(f"wrote {sheet}")


def _print(console: Console, found: Description, top: int) -> None:
    if found.files:
        files = Table("file", "rows")
        for name, rows in found.files.items():
            files.add_row(name, f"{rows:,}")
        console.print(files)
    splits = list(found.splits)
    table = Table("", *splits, "all", title=f"Studies: {found.source}")
    table.add_row("all", *(f"{found.splits[split]:,}" for split in splits), f"{found.splits.total():,}")
    table.add_row("without a patient", *([""] * len(splits)), f"{found.without_patient:,}", end_section=True)
    for facet in (name for name in FACETS if name in found.counts):
        values = found.ordered(facet)
        title = "label (lexicon)" if facet == "label" else facet
        for value, counts in values[:top]:
            table.add_row(f"{title}: {value}", *(f"{counts[split]:,}" for split in splits), f"{counts.total():,}")
        if len(values) > top:
            table.add_row(f"{title}: {len(values) - top} more", *([""] * len(splits)), "")
        table.add_section()
    console.print(table)
