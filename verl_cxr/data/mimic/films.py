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
"""The films that MIMIC-CXR-JPG's tables list, in a compact form and a fixed order.

    mimic-cxr-2.0.0-metadata.csv.gz   dicom_id, subject_id, study_id, ..., ViewPosition, Rows, Columns, ...
    mimic-cxr-2.0.0-split.csv.gz      dicom_id, study_id, subject_id, split (train, validate, test)

2.1.0 keeps these names and adds `mimic-cxr-2.1.0-test-set-labeled.csv`, 687 studies that must not be trained on. The
377,110 films take about 30 MB; they are ordered by patient, study, view (PA first) and dicom_id.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.tables import find_table, read_rows

__all__ = ["Film", "FilmTable"]

PA, AP, LATERAL, OTHER, UNSTATED = range(5)
VIEWS = ("PA", "AP", "LATERAL", "OTHER", "")
_VIEW_OF = {"PA": PA, "AP": AP, "LATERAL": LATERAL, "LL": LATERAL, "": UNSTATED}
SPLITS = ("train", "validate", "test")
_NO_SPLIT = len(SPLITS)
_DICOM = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{8}){4}").fullmatch
_NUMBER = re.compile(r"[1-9][0-9]{7}").fullmatch
_MAX_SIDE = 10**6
_COLUMNS = ("dicom_id", "subject_id", "study_id", "ViewPosition", "Rows", "Columns")


@dataclass(frozen=True, slots=True)
class Film:
    """A row of the tables.

    Attributes:
        view: PA, AP, LATERAL, OTHER for a view that is none of them, or empty if none is stated.
        width, height: in pixels; 0 where the metadata do not state them.
        split: train, validate, test, or None if the split table does not list the film.
        first: whether it is the first film of its study in this order.
        shared_patient: whether a film of the same patient is in an evaluation split.
    """

    dicom: str
    subject: int
    study: int
    view: str
    width: int
    height: int
    split: str | None
    first: bool
    shared_patient: bool


class FilmTable:
    """The films of a folder of MIMIC-CXR-JPG.

    Attributes:
        repeated: rows that list a film again; the first row of a film holds.
        tested: studies of the labelled test set, of 2.1.0.

    Raises:
        FileNotFoundError: a table is missing.
        RecordError: a table lacks a column.
    """

    def __init__(self, root: Path, context: BuildContext) -> None:
        path = _table(root, "metadata")
        ids, numbers = bytearray(), array("q")
        for row, (dicom, subject, study, view, rows, columns) in read_rows(path, _COLUMNS, context):
            if not _DICOM(dicom):
                message = f"not a film's id: {dicom[:60]!r}, should be five groups of 8 hexadecimal digits"
                context.problem(path, row, "dicom_id", message)
            elif not (_NUMBER(subject) and _NUMBER(study)):
                field, value = ("study_id", study) if _NUMBER(subject) else ("subject_id", subject)
                context.problem(path, row, field, f"not a number of 8 digits: {value[:60]!r}")
            else:
                width, height = _side(columns), _side(rows)
                if not (width and height):
                    message = f"no size of the film: Rows {rows[:20]!r}, Columns {columns[:20]!r}"
                    context.problem(path, row, "Rows", message)
                ids += dicom.encode()
                numbers.extend((int(subject), int(study), _VIEW_OF.get(view.strip(), OTHER), width, height, row))
        dicoms, order = _unique(ids)
        table = np.frombuffer(numbers, dtype=np.int64).reshape(-1, 6)
        for index in sorted(set(range(len(table))) - set(order.tolist())) if len(order) < len(table) else ():
            context.problem(path, int(table[index, 5]), "dicom_id", "film listed twice: its first row is used")
        self.repeated = len(table) - len(order)
        table = table[order, :5]
        split = self._splits(root, dicoms, context)
        by_study = np.lexsort((dicoms, table[:, 2], table[:, 1], table[:, 0]))
        self._dicoms, self._split = dicoms[by_study], split[by_study]
        self._table = table[by_study].astype(np.int32)
        evaluated = np.unique(self._table[(self._split > 0) & (self._split < _NO_SPLIT), 0])
        self._shared = np.isin(self._table[:, 0], evaluated)
        self._first = np.ones(len(self._table), dtype=bool)
        self._first[1:] = self._table[1:, 1] != self._table[:-1, 1]
        self.tested = _tested(root, context)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def studies(self) -> int:
        """How many reports the films belong to."""
        return int(self._first.sum())

    def count(self, *views: str) -> int:
        """How many films have one of these views."""
        return int(np.isin(self._table[:, 2], [VIEWS.index(view) for view in views]).sum())

    def __iter__(self) -> Iterator[Film]:
        for index in range(len(self._table)):
            subject, study, view, width, height = self._table[index].tolist()
            split = int(self._split[index])
            yield Film(
                dicom=self._dicoms[index].decode(),
                subject=subject,
                study=study,
                view=VIEWS[view],
                width=width,
                height=height,
                split=None if split == _NO_SPLIT else SPLITS[split],
                first=bool(self._first[index]),
                shared_patient=bool(self._shared[index]),
            )

    def _splits(self, root: Path, dicoms: npt.NDArray[np.bytes_], context: BuildContext) -> npt.NDArray[np.int8]:
        """The split of each film, by its place in `dicoms`, which are sorted."""
        path = _table(root, "split")
        ids, codes = bytearray(), array("b")
        for row, (dicom, name) in read_rows(path, ("dicom_id", "split"), context):
            if not _DICOM(dicom):
                context.problem(path, row, "dicom_id", f"not a film's id: {dicom[:60]!r}")
            elif name not in SPLITS:
                context.problem(
                    path, row, "split", f"unknown split: {name[:40]!r}, should be one of {', '.join(SPLITS)}"
                )
            else:
                ids += dicom.encode()
                codes.append(SPLITS.index(name))
        split = np.full(len(dicoms), _NO_SPLIT, dtype=np.int8)
        if not codes or not len(dicoms):
            return split
        listed = np.frombuffer(bytes(ids), dtype="S44")
        place = np.minimum(np.searchsorted(dicoms, listed), len(dicoms) - 1)
        known = dicoms[place] == listed
        values = np.frombuffer(codes, dtype=np.int8)[known]
        # Of a film in two splits the strictest holds: an evaluation film must not be trained on.
        order = np.argsort(values, kind="stable")
        split[place[known][order]] = values[order]
        return split


def _table(root: Path, kind: str) -> Path:
    path = find_table(root, f"mimic-cxr-2.*.0-{kind}")
    if path is None:
        raise FileNotFoundError(f"{root} holds no mimic-cxr-2.0.0-{kind}.csv.gz: give the folder of MIMIC-CXR-JPG")
    return path


def _unique(ids: bytearray) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]]:
    """The sorted distinct ids, and where each occurs first."""
    if not ids:
        return np.array([], dtype="S44"), np.array([], dtype=np.int64)
    dicoms, first = np.unique(np.frombuffer(bytes(ids), dtype="S44"), return_index=True)
    return dicoms, first


def _side(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 8 and 0 < int(text) <= _MAX_SIDE else 0


def _tested(root: Path, context: BuildContext) -> frozenset[int]:
    path = find_table(root, "mimic-cxr-2.*.0-test-set-labeled")
    if path is None:
        return frozenset()
    return frozenset(int(study) for _, (study,) in read_rows(path, ["study_id"], context) if study.isdecimal())
