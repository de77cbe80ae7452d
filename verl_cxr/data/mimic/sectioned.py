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
"""`mimic_cxr_sectioned.csv`, which the program published with MIMIC-CXR writes: the sections of every report.

    study,impression,findings,last_paragraph,comparison
    s50414267,No acute cardiopulmonary process.,"There is no focal consolidation, ...",,

A row is kept as its place in the file, twelve bytes, and read when its film is.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from verl_cxr.data.adapters import BuildContext
from verl_cxr.files import RecordError
from verl_cxr.reports.sections import Sections

__all__ = ["SectionRow", "SectionedReports"]

_STUDY = re.compile(r"s([0-9]{8})").fullmatch
_SECTIONS = ("findings", "impression", "last_paragraph")
_MAX_ROW = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class SectionRow:
    """Where the sections of a report are.

    Attributes:
        offset: of the row in the file, in bytes.
        columns: places of findings, impression and last_paragraph in it.
    """

    path: Path
    offset: int
    columns: tuple[int, ...]

    def read(self) -> Sections:
        """
        Raises:
            RecordError: the row is not what it was when the file was indexed.
        """
        with self.path.open("rb") as file:
            file.seek(self.offset)
            try:
                row = next(csv.reader(_Lines(file, limit=_MAX_ROW)), [])
            except csv.Error as error:
                raise RecordError("", f"not a row of CSV: {error}", file=str(self.path)) from None
        if len(row) <= max(self.columns):
            raise RecordError("", f"too few cells: {len(row)}", file=str(self.path))
        cells = {name: row[column].strip() for name, column in zip(_SECTIONS, self.columns, strict=True)}
        return Sections({name: cell for name, cell in cells.items() if cell})


class SectionedReports:
    """The rows of the table by study.

    Raises:
        RecordError: the table lacks a column, or it is compressed.
    """

    def __init__(self, path: Path, context: BuildContext) -> None:
        self.path = path
        if path.suffix == ".gz":
            raise RecordError("", "compressed: unpack it, for its rows are read in any order", file=str(path))
        offsets, studies = array("q"), array("q")
        with path.open("rb") as file:
            lines = _Lines(file)
            rows = csv.reader(lines)
            header = [name.removeprefix("\ufeff") for name in next(rows, [])]
            for name in ("study", *_SECTIONS):
                if name not in header:
                    raise RecordError(
                        name, f"no such column: the table has {', '.join(header)[:200]}", file=str(path), row=1
                    )
            self.columns = tuple(header.index(name) for name in _SECTIONS)
            study_column, last = header.index("study"), max(*self.columns, header.index("study"))
            while True:
                start = lines.offset
                try:
                    row = next(rows, None)
                except csv.Error as error:
                    context.problem(path, rows.line_num, "", f"not a row of CSV: {error}")
                    continue
                if row is None:
                    break
                found = _STUDY(row[study_column]) if len(row) > last else None
                if found:
                    studies.append(int(found[1]))
                    offsets.append(start)
                elif row:
                    context.problem(path, rows.line_num, "study", f"not a report's row: {str(row)[:80]}")
        order = (
            np.argsort(np.frombuffer(studies, dtype=np.int64), kind="stable") if studies else np.array([], dtype=int)
        )
        self._studies = np.frombuffer(studies, dtype=np.int64)[order].astype(np.int32) if studies else order
        self._offsets = np.frombuffer(offsets, dtype=np.int64)[order] if studies else order

    def __len__(self) -> int:
        return len(self._studies)

    def place(self, subject: int, study: int) -> SectionRow | None:
        """Where the sections of a study's report are; None if the table has none. Of several rows, the last."""
        index = int(np.searchsorted(self._studies, study, side="right")) - 1
        if index < 0 or self._studies[index] != study:
            return None
        return SectionRow(self.path, int(self._offsets[index]), self.columns)


class _Lines:
    """Lines of a file as text, with the place of the next one."""

    def __init__(self, file: BinaryIO, limit: int | None = None) -> None:
        self._file = file
        self._limit = limit
        self.offset = file.tell()
        self._start = self.offset

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(-1 if self._limit is None else self._limit)
        if not line or (self._limit is not None and self.offset - self._start > self._limit):
            raise StopIteration
        self.offset += len(line)
        return line.decode("utf-8", errors="replace")
