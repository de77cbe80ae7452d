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
"""What every command does the same way: end with an error, show progress and average."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["counting", "key_values", "means", "stop", "with_options"]


def stop(error: Exception, *, code: int) -> typer.Exit:
    """Print the error; raise what comes back. ``code`` is 2 for a wrong argument, 1 for whatever else went wrong."""
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(code)


def counting(console: Console) -> Progress:
    """A bar that counts what is done and tells how long it took."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


def with_options(
    run: Callable[[dict[str, Any]], None], own: Callable[..., Any], shared: Callable[..., None]
) -> Callable[..., None]:
    """A function for typer that hands the options of two signatures to ``run``.

    Args:
        own, shared: the keyword-only parameters of the first, and those of the second, are the options.
    """

    def command(**options: Any) -> None:
        run(options)

    parameters = [
        *(each for each in inspect.signature(own, eval_str=True).parameters.values() if each.kind is each.KEYWORD_ONLY),
        *inspect.signature(shared, eval_str=True).parameters.values(),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def key_values(texts: Sequence[str]) -> dict[str, str]:
    """Options that are written KEY=VALUE.

    Raises:
        ValueError: a text is not of that form, or a key is given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"option {text!r} is not KEY=VALUE")
        if key in values:
            raise ValueError(f"option {key!r} is given twice")
        values[key] = value
    return values


def means(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str], *, title: str) -> Table:
    """A table of means, each over the rows that have the value.

    Args:
        rows: of an output file.
        names: what to call a value, and its key in a row.
    """
    table = Table("", "mean", "of", title=title)
    for name, key in names.items():
        values = [float(row[key]) for row in rows if row[key] is not None]
        table.add_row(name, f"{fmean(values):.4f}" if values else "-", str(len(values)))
    return table
