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
"""Fields of other people's JSON and CSV rows, checked as they are read; what is wrong with one names the field."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.tables import read_rows
from verl_cxr.files import RecordError, kind_of

__all__ = [
    "is_missing",
    "listed",
    "named",
    "number",
    "numbers",
    "object_of",
    "reported",
    "reporter",
    "table_rows",
    "text",
    "under",
    "whole",
]

T = TypeVar("T")
Row = Mapping[str, Any]


def reported(
    make: Callable[..., T | None],
    *args: Any,
    context: BuildContext,
    path: Path,
    row: int | None,
    dropped: str | None = "broken record",
) -> T | None:
    """What `make(*args)` returns; None after a broken record was reported, and counted as dropped.

    Raises:
        RecordError: the build is strict.
    """
    try:
        return make(*args)
    except RecordError as error:
        if dropped:
            context.funnel.drop(dropped)
        context.problem(error.file or path, error.row or row, error.field, error.problem)
        return None


def reporter(context: BuildContext, path: Path) -> Callable[[RecordError], None]:
    """What `verl_cxr.files.read_records` calls with a broken row: it is reported, and counted as dropped."""

    def report(error: RecordError) -> None:
        context.funnel.drop("broken record")
        context.problem(error.file or path, error.row, error.field, error.problem)

    return report


def table_rows(
    path: Path, required: Iterable[str], context: BuildContext, *, optional: Iterable[str] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV table by column, each with its last line; an optional column that is not there is left out.

    Raises:
        RecordError: a required column is missing, or `context` is strict and a row is broken.
        FileNotFoundError: no such file.
    """
    there = _header(path)
    columns = [*required, *(column for column in optional if column in there)]
    for row, cells in read_rows(path, columns, context):
        yield row, dict(zip(columns, cells, strict=True))


def _header(path: Path) -> list[str]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            lines = io.TextIOWrapper(cast(BinaryIO, file), encoding="utf-8-sig", errors="replace", newline="")
            return next(csv.reader(lines), [])
    except FileNotFoundError:
        raise
    except (csv.Error, EOFError, OSError, zlib.error):
        return []  # read_rows says what is wrong


def is_missing(value: object) -> bool:
    """Whether a cell is empty: null, blank, or the NaN that pandas writes."""
    if isinstance(value, str):
        return not value.strip() or value.strip().lower() == "nan"
    return value is None or (isinstance(value, float) and math.isnan(value))


def text(row: Row, key: str) -> str | None:
    """The text of a field, without white space around it; None if it is missing or blank.

    Raises:
        RecordError: it is something else than text.
    """
    value = row.get(key)
    if is_missing(value):
        return None
    if not isinstance(value, str):
        raise RecordError(key, f"must be text, not {kind_of(value)}")
    return value.strip()


def named(row: Row, key: str) -> str:
    """The text or whole number of a field, as text, which must be there: a name or an id.

    Raises:
        RecordError: it is missing, or something else.
    """
    value = row.get(key)
    if type(value) is int:
        return str(value)
    found = text(row, key)
    if found is None:
        raise RecordError(key, "missing")
    return found


def listed(row: Row, key: str) -> list[Any]:
    """The list of a field; empty if it is missing.

    Raises:
        RecordError: it is something else.
    """
    value = row.get(key)
    if is_missing(value):
        return []
    if not isinstance(value, list):
        raise RecordError(key, f"must be a list, not {kind_of(value)}")
    return value


def object_of(value: object, field: str = "") -> dict[str, Any]:
    """The value, which must be a JSON object.

    Raises:
        RecordError: it is something else.
    """
    if not isinstance(value, dict):
        raise RecordError(field, f"must be an object, not {kind_of(value)}")
    return value


def number(row: Row, key: str) -> float:
    """The finite number of a field, also of one that holds it as text, as CSV does.

    Raises:
        RecordError: it is missing or something else.
    """
    value = row.get(key)
    if is_missing(value):
        raise RecordError(key, "missing: should be a number")
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise RecordError(key, f"not a number: {str(value)[:40]!r}") from None
    if not math.isfinite(found):
        raise RecordError(key, f"not a finite number: {str(value)[:40]!r}")
    return found


def whole(row: Row, key: str) -> int:
    """The whole number of a field, also written as text or as `12.0`.

    Raises:
        RecordError: it is missing or something else.
    """
    found = number(row, key)
    if not found.is_integer():
        raise RecordError(key, f"not a whole number: {found}")
    return int(found)


def numbers(value: object, field: str, count: int = 4) -> tuple[float, ...]:
    """The numbers of a box.

    Raises:
        RecordError: it is no list of so many finite numbers.
    """
    if not isinstance(value, list) or len(value) != count:
        raise RecordError(field, f"must be {count} numbers, not {str(value)[:60]}")
    return tuple(number({field: part}, field) for part in value)


def under(root: Path, name: str, field: str) -> Path:
    """The path of a file that a data set names, inside its root.

    Raises:
        RecordError: the name leads out of the root, or is no name of a file.
    """
    folder = os.path.abspath(root)
    path = Path(os.path.abspath(os.path.join(folder, name.replace("\\", "/"))))
    if "\0" in name or not path.is_relative_to(folder) or path == Path(folder):
        raise RecordError(field, f"lies outside the root: {name[:80]!r}, should be a path inside {folder}")
    return path
