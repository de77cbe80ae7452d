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
"""CheXpert Plus (Chambon et al. 2024; Stanford AIMI, research use): 223,228 films with their reports.

On disk, as Stanford serves it::

    ROOT/df_chexpert_plus_240401.csv
    ROOT/PNG/train/patient42142/study5/view1_frontal.png        or .jpg beside the table, or DICOM, by --images

Columns that are read, with one row, abridged; a cell with a report spans several lines::

    path_to_image,frontal_lateral,ap_pa,deid_patient_id,section_findings,section_impression,split
    train/patient42142/study5/view1_frontal.jpg,Frontal,AP,patient42142,,"1. SMALL LEFT EFFUSION.",train

Most reports have an impression and no findings. Splits are train and valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.fields import is_missing, reported, table_rows, under
from verl_cxr.data.found import FoundStudy
from verl_cxr.data.funnel import Line
from verl_cxr.data.report_text import ALL_PRIOR, NO_SECTION, TextOptions, why_empty
from verl_cxr.data.tables import find_table
from verl_cxr.files import RecordError
from verl_cxr.study import View

__all__ = ["chexpert_plus"]

_COLUMNS = (
    "path_to_image", "frontal_lateral", "ap_pa", "deid_patient_id", "section_findings", "section_impression", "split",
)  # fmt: skip
_SUFFIXES = (".png", ".jpg", ".dcm")
_FRONTAL: dict[str, View] = {"AP": "AP", "PA": "PA"}
_LATERAL = "lateral view"

FUNNEL = (
    Line("films listed"),
    Line(_LATERAL, dropped=True),
    Line(NO_SECTION, dropped=True),
    Line(ALL_PRIOR, dropped=True),
)


@dataclass(frozen=True, slots=True)
class _Options:
    folders: tuple[Path, ...]
    texts: TextOptions


@adapter("chexpert_plus")
def chexpert_plus(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of CheXpert Plus.")],
    images: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder above train/ and valid/.")
    ] = None,
    priors: Annotated[bool, typer.Option("--priors", help="Keep mentions of earlier examinations.")] = False,
    drop_blanks: Annotated[
        bool, typer.Option("--drop-blanks", help="Leave out sentences that hold a blank of de-identification.")
    ] = False,
) -> Iterator[FoundStudy]:
    """Read CheXpert Plus: films and reports, no boxes.

    Raises:
        FileNotFoundError: the table is missing.
        RecordError: the table lacks a column, or the build is strict and a row is broken.
    """
    path = find_table(root, "df_chexpert_plus_*")
    if path is None:
        raise FileNotFoundError(f"{root} holds no df_chexpert_plus_*.csv: give the folder of CheXpert Plus")
    context.funnel.plan(*FUNNEL)
    folders = (images,) if images else (root / "PNG" / "PNG", root / "PNG", root)
    options = _Options(
        tuple(folder.resolve() for folder in folders if folder.is_dir()), TextOptions(priors, drop_blanks)
    )
    for row, cells in table_rows(path, _COLUMNS, context):
        context.funnel.count("films listed")
        if cells["frontal_lateral"].strip() == "Lateral" and not context.lateral:
            context.funnel.drop(_LATERAL)
            continue
        study = reported(_study, cells, options, path, row, context=context, path=path, row=row)
        if study is None:
            continue
        if study.report.text:
            yield study
        else:
            context.funnel.drop(why_empty(*_sections(cells)))


def _study(cells: dict[str, str], options: _Options, file: Path, row: int) -> FoundStudy:
    name, side = cells["path_to_image"].strip(), cells["frontal_lateral"].strip()
    if not name:
        raise RecordError("path_to_image", "missing")
    if side not in ("Frontal", "Lateral"):
        raise RecordError("frontal_lateral", f"unknown side: {side[:40]!r}, should be Frontal or Lateral")
    return FoundStudy(
        id=name.rpartition(".")[0] or name,
        image=_image(name, options.folders),
        file=file,
        row=row,
        report=options.texts.report(*_sections(cells)),
        view="LATERAL" if side == "Lateral" else _FRONTAL.get(cells["ap_pa"].strip().upper()),
        split=cells["split"].strip() or None,
        source="CheXpert Plus",
        licence="Stanford University Dataset Research Use Agreement",
        patient=cells["deid_patient_id"].strip() or None,
    )


def _sections(cells: dict[str, str]) -> list[str | None]:
    """Findings and impression as they are written."""
    written = [cells[key] for key in ("section_findings", "section_impression")]
    return [None if is_missing(section) else section for section in written]


def _image(name: str, folders: tuple[Path, ...]) -> Path:
    """The film as it was downloaded; where the table says it is if it is not there."""
    stem = name.rpartition(".")[0] or name
    for folder in folders:
        for suffix in _SUFFIXES:
            path = under(folder, stem + suffix, "path_to_image")
            if path.is_file():
                return path
    return under(folders[-1], name, "path_to_image")
