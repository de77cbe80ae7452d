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
"""Rows of the CSV tables that archives come with, one by one; a broken row is reported and passed over."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from verl_cxr.data.adapters import BuildContext
from verl_cxr.files import RecordError

__all__ = ["find_table", "read_rows"]


def find_table(folder: Path, pattern: str) -> Path | None:
    """The file of a folder that matches `pattern`, with `.csv` or `.csv.gz` behind it; of several the last by name."""
    found = [path for suffix in (".csv", ".csv.gz") for path in folder.glob(pattern + suffix)]
    return max(found, key=lambda path: path.name, default=None)


def read_rows(path: Path, columns: Sequence[str], context: BuildContext) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Read some columns of a table by name.

    Args:
        path: CSV with a header, gzipped if it is named `.gz`.

    Yields:
        The row, as the number of its last line in the file, and the cells in the order of `columns`. Of a gzip file
        that is cut off, the rows before the cut.

    Raises:
        RecordError: the header lacks a column, or `context` is strict and a row is broken.
        FileNotFoundError: no such file.
    """
    with _open(path) as file:
        rows = csv.reader(file)
        try:
            header = next(rows, [])
        except (csv.Error, EOFError, OSError, zlib.error) as error:
            raise RecordError("", f"not a CSV table: {error}", file=str(path), row=1) from None
        missing = [column for column in columns if column not in header]
        if missing:
            found = ", ".join(header)[:200]
            raise RecordError(missing[0], f"no such column: the table has {found}", file=str(path), row=1)
        places = [header.index(column) for column in columns]
        last = max(places)
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                context.problem(path, rows.line_num, "", f"not a row of CSV: {error}")
                continue
            except (EOFError, OSError, zlib.error) as error:
                context.problem(path, rows.line_num + 1, "", f"damaged gzip file, the rest of it is lost: {error}")
                return
            if len(row) > last:
                yield rows.line_num, tuple([row[place] for place in places])
            elif row:
                message = f"too few cells: {len(row)}, where the header has {len(header)}"
                context.problem(path, rows.line_num, columns[-1], message)


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return path.open(encoding="utf-8-sig", errors="replace", newline="")
