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
"""IU X-ray, also called Open-i: 3,955 reports and 7,470 films, open (CC BY-NC-ND 4.0).

On disk, in one of three forms; films may lie anywhere below the root or `--images`, by either of their names::

    ROOT/NLMCXR_reports.tgz                    or ROOT/ecgen-radiology/1000.xml, as Open-i serves them
    ROOT/images/CXR1000_IM-0003-1001.png

    ROOT/indiana_reports.csv                   with the tables that go round
    ROOT/images/images_normalized/1000_IM-0003-1001.dcm.png

    ROOT/annotation.json                       as R2Gen and its successors use them
    ROOT/images/CXR1000_IM-0003/0.png, 1.png

    ROOT/indiana_projections.csv               says of each film whether it is frontal; needed for the first two

A study is one film with its report, for instance::

    {"id": "CXR1000_IM-0003-1001", "image": "/.../CXR1000_IM-0003-1001.png", "width": 512, "height": 420, "view": null,
     "split": null, "patient": "CXR1000", "report": {"findings": "... No pleural effusion or pneumothorax. ...",
     "impression": "1. Increased opacity in the right upper lobe ...", "notes": "XXXX-year-old male, XXXX."},
     "regions": [], "source": "Open-i", "licence": "CC BY-NC-ND 4.0"}

A frontal film has no view: nobody told PA from AP. Eleven reports have lateral films only, six films have no label.
R2Gen's form names no projection; with `--projections` its two films of a report are taken in the order of the labels,
which agrees with ReXrank's labels for 539 of 550 reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.fields import listed, named, object_of, reported, text, under
from verl_cxr.data.found import FoundStudy
from verl_cxr.data.funnel import Line
from verl_cxr.data.json_items import json_members
from verl_cxr.data.openi.films import FilmFolder, film_key, read_projections
from verl_cxr.data.openi.reports import OpeniReport, read_table, read_xml
from verl_cxr.data.report_text import ALL_PRIOR, NO_SECTION, TextOptions, why_empty
from verl_cxr.study import Report

__all__ = ["iu_xray"]

_ARCHIVES = ("NLMCXR_reports.tgz", "NLMCXR_reports.tar.gz", "NLMCXR_reports.zip", "ecgen-radiology")
_LICENCE = "CC BY-NC-ND 4.0"
_LATERAL, _UNLABELLED = "lateral view", "no projection stated"

FUNNEL = (
    Line("reports"),
    Line("reports with findings"),
    Line("reports with an impression"),
    Line("films listed"),
    Line(_LATERAL, dropped=True),
    Line(_UNLABELLED, dropped=True),
    Line(NO_SECTION, dropped=True),
    Line(ALL_PRIOR, dropped=True),
)


@adapter("iu_xray")
def iu_xray(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of reports and films.")],
    reports: Annotated[
        Path | None,
        typer.Option(exists=True, help="Archive or folder of XML, indiana_reports.csv or annotation.json, elsewhere."),
    ] = None,
    images: Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the films.")] = None,
    projections: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="indiana_projections.csv, elsewhere.")
    ] = None,
    priors: Annotated[bool, typer.Option("--priors", help="Keep mentions of earlier examinations.")] = False,
    drop_blanks: Annotated[
        bool, typer.Option("--drop-blanks", help="Leave out sentences that hold a blank, XXXX.")
    ] = False,
) -> Iterator[FoundStudy]:
    """Read IU X-ray (Open-i) from its XML, its tables or R2Gen's annotation.json.

    Raises:
        FileNotFoundError: there are no reports, or nothing says which films are frontal.
        RecordError: a table is not what it should be, or the build is strict and a record is broken.
    """
    source = reports or _find_reports(root)
    labels = projections or root / "indiana_projections.csv"
    views = read_projections(labels, context) if labels.is_file() else None
    if views is None and not context.lateral:
        raise FileNotFoundError(
            f"{root} holds no indiana_projections.csv, which says which films are frontal: name it with --projections, "
            "or take all films with --keep-lateral"
        )
    context.funnel.plan(*FUNNEL)
    texts = TextOptions(priors, drop_blanks)
    folder = (images or root).resolve()
    if source.suffix == ".json":
        found = _r2gen(source, folder, views or {}, texts, context)
    else:
        read = read_table if source.suffix == ".csv" else read_xml
        found = _films(read(source, context), FilmFolder(folder), views or {}, texts, context)
    for study, projection, empty in found:
        context.funnel.count("films listed")
        if not context.lateral and projection != "Frontal":
            context.funnel.drop(_LATERAL if projection == "Lateral" else _UNLABELLED)
        elif not study.report.text:
            context.funnel.drop(empty)
        else:
            yield study if projection != "Lateral" else replace(study, view="LATERAL")


def _find_reports(root: Path) -> Path:
    for name in ("annotation.json", "indiana_reports.csv", *_ARCHIVES):
        if (root / name).exists():
            return root / name
    if next(root.glob("*.xml"), None) is not None:
        return root
    raise FileNotFoundError(f"{root} holds no reports: {', '.join(_ARCHIVES)}, indiana_reports.csv or annotation.json")


Found = Iterator[tuple[FoundStudy, str | None, str]]
"""Studies, each with the projection of its film, and why its report would be empty."""


def _films(
    reports: list[OpeniReport], folder: FilmFolder, views: dict[str, str], texts: TextOptions, context: BuildContext
) -> Found:
    by_report: dict[str, list[str]] = {}
    for key in sorted(views):
        by_report.setdefault(key.partition("_")[0], []).append(f"CXR{key}")
    for item in reports:
        context.funnel.count("reports")
        context.funnel.count("reports with findings", int(item.findings is not None))
        context.funnel.count("reports with an impression", int(item.impression is not None))
        report = texts.report(item.findings, item.impression, item.indication)
        empty = why_empty(item.findings, item.impression)
        for name in item.images or by_report.get(str(item.number)) or folder.of_report(item.number):
            study = FoundStudy(
                id=name,
                image=folder.find(name),
                file=item.file,
                row=item.row,
                report=report,
                source="Open-i",
                licence=_LICENCE,
                patient=item.uid,
            )
            yield study, views.get(film_key(name)), empty


def _r2gen(path: Path, folder: Path, views: dict[str, str], texts: TextOptions, context: BuildContext) -> Found:
    by_report: dict[str, list[str]] = {}
    for key in sorted(views):
        by_report.setdefault(f"CXR{key.partition('_')[0]}", []).append(views[key])
    if (folder / "images").is_dir():
        folder = folder / "images"
    for _, split, rows in json_members(path, context):
        if not isinstance(rows, list):
            context.problem(path, None, split, "must be a list of reports")
            continue
        for row, record in enumerate(rows, start=1):
            read = reported(_r2gen_row, record, folder, texts, context=context, path=path, row=row)
            if read is None:
                continue
            name, report, images, empty = read
            context.funnel.count("reports")
            context.funnel.count("reports with findings", int(bool(report.findings)))
            patient = name.partition("_")[0]
            labels = by_report.get(patient, [])
            for place, image in enumerate(images):
                study = FoundStudy(
                    id=f"{name}/{image.stem}",
                    image=image,
                    file=path,
                    row=row,
                    report=report,
                    split=split,
                    source="Open-i",
                    licence=_LICENCE,
                    patient=patient,
                )
                yield study, labels[place] if len(labels) == len(images) else None, empty


def _r2gen_row(record: Any, folder: Path, texts: TextOptions) -> tuple[str, Report, list[Path], str]:
    record = object_of(record)
    images = [under(folder, str(name), "image_path") for name in listed(record, "image_path")]
    written = text(record, "report")
    return named(record, "id"), texts.report(written, None), images, why_empty(written)
