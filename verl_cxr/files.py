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
"""Files of records, one JSON object a line: read row by row, written whole or not at all."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import orjson

__all__ = ["RecordError", "distinct", "kind_of", "read_records", "replacing", "write_lines"]


class _Named(Protocol):
    @property
    def id(self) -> str: ...


_Record = TypeVar("_Record", bound=_Named)


class RecordError(ValueError):
    """A row that is not what it should be: names file, row (1-based line) and field, what is wrong, what is right."""

    def __init__(self, field: str, problem: str, *, file: str | None = None, row: int | None = None) -> None:
        self.field, self.problem, self.file, self.row = field, problem, file, row
        place = [part for part in (file, f"row {row}" if row else None, f"field {field!r}" if field else None) if part]
        super().__init__(f"{', '.join(place)}: {problem}" if place else problem)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.field, self.problem, self.file, self.row)  # so that it crosses processes

    def at(self, file: str | os.PathLike[str], row: int) -> RecordError:
        """The same error with its place in a file."""
        return type(self)(self.field, self.problem, file=os.fspath(file), row=row)


def _again(kind: type[RecordError], field: str, problem: str, file: str | None, row: int | None) -> RecordError:
    return kind(field, problem, file=file, row=row)


def read_records(
    path: str | os.PathLike[str],
    *,
    error: type[RecordError] = RecordError,
    broken: Callable[[RecordError], None] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the objects of a JSONL file (gzipped if it is named ``.gz``), each with its row; blank lines are no records.

    Args:
        broken: called with each error instead of raising it; the reading goes on behind a row that is no object.

    Raises:
        RecordError: (or the class ``error``) the first row that is not a JSON object, or a damaged gzip file.
        FileNotFoundError: no such file.
    """
    report = broken or _raise
    path = Path(path)
    row = 0
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        try:
            for row, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    record = orjson.loads(line)
                except orjson.JSONDecodeError as cause:
                    report(error("", f"not JSON: {cause}", file=str(path), row=row))
                    continue
                if not isinstance(record, dict):
                    report(error("", f"a row is a JSON object, not {kind_of(record)}", file=str(path), row=row))
                    continue
                yield row, record
        except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
            report(error("", f"damaged gzip file: {cause}", file=str(path), row=row + 1))


def distinct(records: Iterable[_Record], *, error: type[RecordError] = RecordError) -> Iterator[_Record]:
    """The records as they come.

    Raises:
        RecordError: (or the class ``error``) an id repeats.
    """
    ids: set[str] = set()
    for record in records:
        if record.id in ids:
            raise error("id", f"{record.id!r} repeats")
        ids.add(record.id)
        yield record


def write_lines(path: str | os.PathLike[str], lines: Iterable[bytes]) -> int:
    """Write lines, each with its end (gzipped if the name ends in ``.gz``), whole or not at all; returns how many."""
    path, count = Path(path), 0
    with replacing(path) as raw:
        # No name and no time in the gzip header: the same lines give the same bytes.
        out = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.suffix == ".gz" else raw
        for line in lines:
            out.write(line)
            count += 1
        if out is not raw:
            out.close()
    return count


def _raise(error: RecordError) -> None:
    raise error from None


def kind_of(value: object) -> str:
    """The JSON name of a value's type, for messages."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a binary file that takes the place of ``path`` when the block ends well; else ``path`` stays as it was."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
