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
"""MS-CXR 0.1, 1.0.0 and 1.1.0 (Boecking et al. 2022; PhysioNet, credentialed): 1,162 phrases with boxes on MIMIC-CXR.

On disk::

    ROOT/MS_CXR_Local_Alignment_v1.1.0.csv                      one row a box
    FILMS/files/p10/p10000032/s50414267/02aa804e-....jpg        MIMIC-CXR-JPG, by --films; `path` starts at files/

Columns; a box is x, y, width and height in pixels of the film, a phrase of several boxes has several rows::

    category_name,label_text,path,dicom_id,x,y,w,h,image_width,image_height        split, from 1.1.0 on
    Pleural Effusion,Small left effusion,files/p10/...jpg,02aa804e-...,1500,1800,400,500,2544,3056,test

A study is a film with all its phrases: a region is a box, named by the category, with the phrase as its finding. The
report is the phrases, not the radiologist's report. These films are evaluation data unless the table says otherwise:
a film without split is `test`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.fields import number, reported, table_rows, under, whole
from verl_cxr.data.found import FoundRegion, FoundStudy
from verl_cxr.data.tables import find_table
from verl_cxr.files import RecordError
from verl_cxr.study import Report

__all__ = ["ms_cxr"]

_COLUMNS = ("category_name", "label_text", "path", "dicom_id", "x", "y", "w", "h", "image_width", "image_height")
_PATIENT = re.compile(r"(?:^|/)(p\d{8})/")


class _Phrase(NamedTuple):
    """One row of the table."""

    film: str
    place: str
    size: tuple[int, int]
    split: str | None
    region: FoundRegion


@adapter("ms_cxr")
def ms_cxr(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, help="Folder of MS-CXR, or its table.")],
    films: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of MIMIC-CXR-JPG. Default: the root.")
    ] = None,
) -> Iterator[FoundStudy]:
    """Read MS-CXR: phrases with boxes on films of MIMIC-CXR-JPG.

    Raises:
        FileNotFoundError: the table is missing.
        RecordError: the table lacks a column, or the build is strict and a row is broken.
    """
    path = root if root.is_file() else find_table(root, "MS_CXR_Local_Alignment_v*")
    if path is None:
        raise FileNotFoundError(f"{root} holds no MS_CXR_Local_Alignment_v*.csv: give the folder of MS-CXR")
    folder = (films or path.parent).resolve()
    phrases: dict[str, list[_Phrase]] = {}
    rows: dict[str, int] = {}
    for row, cells in table_rows(path, _COLUMNS, context, optional=["split"]):
        phrase = reported(_phrase, cells, context=context, path=path, row=row, dropped=None)
        if phrase is None:
            context.funnel.discard("broken row", unit="boxes")
            continue
        rows.setdefault(phrase.film, row)
        phrases.setdefault(phrase.film, []).append(phrase)
    context.total = len(phrases)
    for film in sorted(phrases):
        context.funnel.count("films listed")
        study = reported(_study, phrases[film], folder, path, rows[film], context=context, path=path, row=rows[film])
        if study is not None:
            yield study


def _phrase(cells: dict[str, str]) -> _Phrase:
    film, name, phrase = cells["dicom_id"].strip(), cells["category_name"].strip(), cells["label_text"].strip()
    for column, value in (("dicom_id", film), ("category_name", name), ("label_text", phrase)):
        if not value:
            raise RecordError(column, "missing")
    box = tuple(number(cells, column) for column in ("x", "y", "w", "h"))
    size = whole(cells, "image_width"), whole(cells, "image_height")
    region = FoundRegion(name.lower(), box, "pixel_xywh", " ".join(phrase.split()))
    return _Phrase(film, cells["path"].strip(), size, cells.get("split", "").strip() or None, region)


def _study(phrases: list[_Phrase], folder: Path, file: Path, row: int) -> FoundStudy:
    first = phrases[0]
    for phrase in phrases:
        if (phrase.place, phrase.size, phrase.split) != (first.place, first.size, first.split):
            raise RecordError("dicom_id", f"rows of one film differ in path, size or split: {first.film}")
    sentences = dict.fromkeys(phrase.region.finding for phrase in phrases)
    patient = _PATIENT.search(first.place)
    return FoundStudy(
        id=first.film,
        image=_image(folder, first.place),
        file=file,
        row=row,
        report=Report(findings=" ".join(_sentence(sentence) for sentence in sentences)),
        regions=tuple(phrase.region for phrase in phrases),
        split=first.split or "test",
        source="MS-CXR",
        licence="PhysioNet Credentialed Health Data License 1.5.0",
        patient=patient[1] if patient else None,
        stated=first.size,
    )


def _image(folder: Path, place: str) -> Path:
    """The film, whether the folder is the one above `files` or that itself."""
    path, inside = under(folder, place, "path"), under(folder, place.removeprefix("files/"), "path")
    return inside if inside.is_file() and not path.is_file() else path


def _sentence(phrase: str) -> str:
    return phrase if phrase.endswith((".", "!", "?")) else f"{phrase}."
