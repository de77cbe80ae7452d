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
"""``verl-cxr data audit``: what two data sets share, before one is trained on and the other evaluated on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table

from verl_cxr.commands.shared import stop
from verl_cxr.data.audit import FilmSet, Overlap, compare, read_set
from verl_cxr.files import RecordError, replacing

__all__ = ["audit"]

_Set = typer.Argument(exists=True, help="A built data set, one of its parquet files, or grounded studies (JSONL).")


def audit(
    first: Annotated[Path, _Set],
    second: Annotated[Path, _Set],
    split_first: Annotated[str | None, typer.Option(help="Only these splits of the first, joined by commas.")] = None,
    split_second: Annotated[str | None, typer.Option(help="Only these splits of the second.")] = None,
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="Write the result as JSON too.")] = None,
) -> None:
    """Show which patients and films two data sets share; exit 1 if they share any."""
    try:
        sets = [read_set(path, _splits(split)) for path, split in ((first, split_first), (second, split_second))]
    except (RecordError, OSError, ValueError) as error:
        raise stop(error, code=2) from None
    for path, films in zip((first, second), sets, strict=True):
        if not films.films:
            raise stop(ValueError(f"{path} holds no film of these splits: an audit of nothing proves nothing"), code=2)
    overlap = compare(*sets)
    if out is not None:
        with replacing(out) as file:
            file.write(orjson.dumps(overlap.to_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    Console().print(_table(sets, overlap))
    if overlap:
        raise typer.Exit(1)


def _splits(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(part.strip() for part in text.split(",") if part.strip())


def _table(sets: list[FilmSet], overlap: Overlap) -> Table:
    first, second = sets
    table = Table("", "first", "second", "in both", "for instance", title="Audit")
    result = overlap.to_dict()
    for name, a, b in (
        ("patients", len(first.patients), len(second.patients)),
        ("films", len(first.films), len(second.films)),
        ("contents", len(first.contents), len(second.contents)),
    ):
        examples = ", ".join(" = ".join(e) if isinstance(e, list) else e for e in result[name]["examples"][:2])
        table.add_row(name, f"{a:,}", f"{b:,}", f"{result[name]['shared']:,}", examples)
    table.add_row("films without patient: not compared", f"{first.without_patient:,}", f"{second.without_patient:,}")
    table.add_row("films without readable file: not compared", f"{first.unreadable:,}", f"{second.unreadable:,}")
    return table
