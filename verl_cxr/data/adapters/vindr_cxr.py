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
"""VinDr-CXR 1.0.0 (Nguyen et al. 2022; PhysioNet, credentialed): 18,000 PA films with boxes of findings.

On disk, as PhysioNet serves it::

    ROOT/train/<image_id>.dicom, ROOT/test/<image_id>.dicom     or .png, .jpg where they were converted
    ROOT/annotations/annotations_train.csv, annotations_test.csv

Boxes are pixels of the DICOM file; a row of `No finding` has none. The test films have the boxes of a consensus and no
rad_id. A training film was read by three radiologists (R1 to R17), each with rows of their own::

    image_id,rad_id,class_name,x_min,y_min,x_max,y_max
    000434271f63a053c4128a0ba6352c7f,R6,No finding,,,,
    00053190460d56c53cc3e57321387478,R9,Aortic enlargement,1112.8,693.3,1502.5,1057.6

`--readers` says what becomes of them: `union` keeps every box once, boxes of one class that overlap by more than half
(IoU) being one; `majority` keeps those that two readers drew; a reader's name, such as R9, takes that one's rows.
There are no reports: findings are sentences made of class names, and a study without any says "No finding."
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.fields import is_missing, number, reported, table_rows, under
from verl_cxr.data.found import FoundRegion, FoundStudy
from verl_cxr.data.tables import find_table
from verl_cxr.files import RecordError
from verl_cxr.geometry import box_from_numbers
from verl_cxr.study import Report

__all__ = ["vindr_cxr"]

_NO_FINDING = "no finding"
_NOBODY = {"union": "no sound row", "majority": "no two readers agree"}
_CORNERS = ("x_min", "y_min", "x_max", "y_max")
_SUFFIXES = (".dicom", ".dcm", ".png", ".jpg")
_SAME = 0.5  # IoU above which two readers' boxes of a class are one


class _Mark(NamedTuple):
    """A reader's row; no corners for one that is about the whole film."""

    reader: str
    name: str
    corners: tuple[float, ...] | None


@adapter("vindr_cxr")
def vindr_cxr(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of VinDr-CXR.")],
    readers: Annotated[
        str, typer.Option(help="Whose boxes of a training film: union, majority, or one reader, such as R9.")
    ] = "union",
) -> Iterator[FoundStudy]:
    """Read VinDr-CXR: films with boxes of findings, no reports.

    Raises:
        FileNotFoundError: there are no annotations.
        RecordError: a table is not what it should be, or the build is strict and a row is broken.
        ValueError: no such readers.
    """
    if readers not in _NOBODY and not (readers.startswith("R") and readers[1:].isdecimal()):
        raise ValueError(f"unknown --readers {readers!r}: use union, majority or a name such as R9")
    folder = root / "annotations" if (root / "annotations").is_dir() else root
    tables = {split: find_table(folder, f"annotations_{split}") for split in ("train", "test")}
    if not any(tables.values()):
        raise FileNotFoundError(f"{folder} holds no annotations_train.csv: give the folder of VinDr-CXR")
    for split, path in tables.items():
        if path is not None:
            yield from _split(path, split, root.resolve(), readers if split == "train" else "union", context)


def _split(path: Path, split: str, root: Path, readers: str, context: BuildContext) -> Iterator[FoundStudy]:
    marks: dict[str, list[_Mark]] = {}
    rows: dict[str, int] = {}
    for row, cells in table_rows(path, ["image_id", "class_name", *_CORNERS], context, optional=["rad_id"]):
        film = cells["image_id"].strip()
        rows.setdefault(film, row)
        found = marks.setdefault(film, [])
        mark = reported(_mark, cells, context=context, path=path, row=row, dropped=None)
        if mark is None:
            context.funnel.discard("broken row", unit="boxes")
        else:
            found.append(mark)
    for film in sorted(marks):
        context.funnel.count("films listed")
        chosen = _chosen(marks[film], readers)
        if not chosen:
            context.funnel.drop(_NOBODY.get(readers, "not read by this reader"))
            continue
        study = reported(
            _study, film, chosen, split, root, path, rows[film], context=context, path=path, row=rows[film]
        )
        if study is not None:
            yield study


def _mark(cells: dict[str, str]) -> _Mark:
    name = cells["class_name"].strip()
    if not name:
        raise RecordError("class_name", "missing")
    blank = [is_missing(cells[corner]) for corner in _CORNERS]
    if all(blank) or name.lower() == _NO_FINDING:
        return _Mark(cells.get("rad_id", ""), name, None)
    return _Mark(cells.get("rad_id", ""), name, tuple(number(cells, corner) for corner in _CORNERS))


def _chosen(marks: list[_Mark], readers: str) -> list[_Mark]:
    """The marks to keep, in a fixed order; none if the film was not read, or no two readers agree."""
    if readers not in _NOBODY:
        return _ordered([mark for mark in marks if mark.reader == readers])
    needed = 2 if readers == "majority" else 1
    kept: list[_Mark] = []
    voters: list[set[str]] = []
    for mark in _ordered(marks):
        for place, other in enumerate(kept):
            if mark.name == other.name and _same(mark, other):
                voters[place].add(mark.reader)
                break
        else:
            kept.append(mark)
            voters.append({mark.reader})
    return [mark for mark, who in zip(kept, voters, strict=True) if len(who) >= needed]


def _ordered(marks: list[_Mark]) -> list[_Mark]:
    return sorted(marks, key=lambda mark: (mark.name, mark.reader, mark.corners or ()))


def _same(mark: _Mark, other: _Mark) -> bool:
    if mark.corners is None or other.corners is None:
        return mark.corners is other.corners
    box, another = (box_from_numbers(corners, "pixel_xyxy", 1, 1) for corners in (mark.corners, other.corners))
    return box.iou(another) > _SAME


def _study(film: str, marks: list[_Mark], split: str, root: Path, file: Path, row: int) -> FoundStudy:
    names = list(dict.fromkeys(mark.name for mark in marks if mark.name.lower() != _NO_FINDING))
    return FoundStudy(
        id=film,
        image=_image(root, split, film),
        file=file,
        row=row,
        report=Report(findings=" ".join(_sentence(name) for name in names) or "No finding."),
        regions=tuple(
            FoundRegion(mark.name.lower(), mark.corners, "pixel_xyxy", _sentence(mark.name))
            for mark in marks
            if mark.corners is not None
        ),
        view="PA",
        split=split,
        source="VinDr-CXR",
        licence="PhysioNet Credentialed Health Data License 1.5.0",
    )


def _image(root: Path, split: str, film: str) -> Path:
    """The file of a film, in the first form that is there."""
    paths = [under(root, f"{split}/{film}{suffix}", "image_id") for suffix in _SUFFIXES]
    return next((path for path in paths if path.is_file()), paths[0])


def _sentence(name: str) -> str:
    return f"{name[0].upper()}{name[1:]}."
