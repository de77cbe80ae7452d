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
"""MIMIC-CXR-JPG 2.0.0 or 2.1.0 with its reports, and the scene graphs of Chest ImaGenome 1.0.0 (both credentialed).

On disk, as PhysioNet serves them (`verl_cxr.data.mimic`, `verl_cxr.data.imagenome` say what else is accepted)::

    ROOT/mimic-cxr-2.0.0-metadata.csv.gz, mimic-cxr-2.0.0-split.csv.gz
    ROOT/files/p10/p10000032/s50414267/02aa804e-bde0afdd-112c0b34-7bc16630-4e384014.jpg
    ROOT/files/p10/p10000032/s50414267.txt                  or ROOT/mimic-cxr-reports.zip
    IMAGENOME/silver_dataset/scene_graph.zip                or unpacked
    IMAGENOME/silver_dataset/splits/images_to_avoid.csv

A study is one frontal film with its report, in the order of patients, studies and views. One of them, abridged::

    {"id": "02aa804e-bde0afdd-112c0b34-7bc16630-4e384014", "image": "/.../02aa804e-....jpg", "width": 2544,
     "height": 3056, "view": "PA", "split": "train", "patient": "p10000032",
     "report": {"findings": "There is no focal consolidation.", "impression": "No acute cardiopulmonary process."},
     "regions": [{"name": "right lung", "box": [330, 424, 1233, 2311], "frame": "pixel_xyxy",
                  "finding": "There is no focal consolidation."}], "source": "MIMIC-CXR", "licence": "PhysioNet ..."}

Splits are MIMIC-CXR's own; those of Chest ImaGenome differ and are not used. A patient of Chest ImaGenome's gold set,
of an evaluation split or of the labelled test set does not train.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.imagenome.graphs import SceneGraphs, patients_to_avoid, read_gold_boxes
from verl_cxr.data.imagenome.regions import REGION_SETS, region_set
from verl_cxr.data.mimic.films import Film, FilmTable
from verl_cxr.data.mimic.report_files import ReportFiles, patient_folder
from verl_cxr.data.mimic.sectioned import SectionedReports
from verl_cxr.data.mimic.study import FUNNEL, WITHOUT_PHRASE, FilmStudy, StudyOptions
from verl_cxr.reports.overrides import read_overrides

__all__ = ["mimic_cxr"]

_NOT_FRONTAL = {"LATERAL": "lateral view", "OTHER": "another view than PA, AP or lateral", "": "no view stated"}


@adapter("mimic_cxr")
def mimic_cxr(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of MIMIC-CXR-JPG.")],
    imagenome: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder of Chest ImaGenome. Without it: no regions."),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            exists=True, help="mimic-cxr-reports.zip, its folder, or mimic_cxr_sectioned.csv. Default: under --root."
        ),
    ] = None,
    regions: Annotated[str, typer.Option(help=f"Region set: {', '.join(REGION_SETS)}.")] = "38",
    phrases: Annotated[int, typer.Option(min=1, help="At most so many phrases a region.")] = 4,
    without_phrase: Annotated[
        str, typer.Option(help="A film whose regions have no phrase: keep its report, keep its boxes too, or drop it.")
    ] = "report",
    silent_regions: Annotated[
        bool, typer.Option("--silent-regions", help="Keep boxes of regions that no phrase is about.")
    ] = False,
    gold_boxes: Annotated[
        bool, typer.Option("--gold-boxes", help="Boxes drawn by people where the gold set has them.")
    ] = False,
    one_film: Annotated[bool, typer.Option("--one-film", help="Only the first frontal film of a report.")] = False,
    priors: Annotated[bool, typer.Option("--priors", help="Keep mentions of earlier examinations.")] = False,
    last_paragraph: Annotated[
        bool, typer.Option("--last-paragraph", help="Use it where a report has neither findings nor impression.")
    ] = False,
    drop_blanks: Annotated[
        bool, typer.Option("--drop-blanks", help="Leave out sentences that hold a blank of de-identification.")
    ] = False,
    section_overrides: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Sections of misread reports: YAML or section_parser.py."),
    ] = None,
) -> Iterator[FilmStudy]:
    """Read MIMIC-CXR-JPG with its reports and Chest ImaGenome's scene graphs.

    Raises:
        FileNotFoundError: a table, or the list of the gold set's films, is missing.
        RecordError: a table or a zip file is not what it should be, or the build is strict and a record is broken.
        ValueError: an option that cannot be.
    """
    if without_phrase not in WITHOUT_PHRASE:
        raise ValueError(f"unknown --without-phrase {without_phrase!r}: use one of {', '.join(WITHOUT_PHRASE)}")
    if gold_boxes and imagenome is None:
        raise ValueError("--gold-boxes needs --imagenome")
    options = StudyOptions(
        regions=region_set(regions),
        phrases=phrases,
        without_phrase=without_phrase,
        silent_regions=silent_regions,
        priors=priors,
        last_paragraph=last_paragraph,
        drop_blanks=drop_blanks,
        graphs=imagenome is not None,
    )
    context.funnel.plan(*FUNNEL)
    root = root.resolve()
    films = FilmTable(root, context)
    is_table = reports is not None and reports.name.endswith((".csv", ".csv.gz"))
    files = SectionedReports(reports, context) if reports and is_table else ReportFiles.find(root, reports)
    graphs = SceneGraphs.find(imagenome) if imagenome else None
    gold = patients_to_avoid(imagenome, context) if imagenome else frozenset()
    drawn = read_gold_boxes(imagenome, context) if imagenome and gold_boxes else {}
    overrides = read_overrides(section_overrides) if section_overrides else {}
    context.funnel.total("films listed", len(films))
    context.funnel.total("reports they belong to", films.studies)
    context.total = films.count("PA", "AP")
    last_study = 0
    for film in films:
        if film.view not in ("PA", "AP") and not (film.view == "LATERAL" and context.lateral):
            context.funnel.drop(_NOT_FRONTAL[film.view])
            continue
        first, last_study = film.study != last_study, film.study
        context.funnel.count("films of a view that is used")
        if one_film and not first:
            context.funnel.drop("another film of the report is used")
            continue
        if not (film.width and film.height):
            context.funnel.drop("no size in the metadata")
            continue
        yield FilmStudy(
            film=film,
            image=patient_folder(root, film.subject) / f"s{film.study}" / f"{film.dicom}.jpg",
            report=files.place(film.subject, film.study),
            override=overrides.get(f"s{film.study}"),
            graph=graphs.place(film.dicom) if graphs else None,
            drawn=drawn.get(film.dicom),
            leak=_leak(film, gold, films.tested),
            first=first,
            options=options,
        )


def _leak(film: Film, gold: frozenset[int], tested: frozenset[int]) -> str | None:
    """Why a film of the training split must not train; None if it may."""
    if film.split != "train":
        return None
    if film.subject in gold:
        return "leak guard: patient of Chest ImaGenome's gold set"
    if film.shared_patient:
        return "leak guard: patient of an evaluation split"
    return "leak guard: study of the labelled test set" if film.study in tested else None
