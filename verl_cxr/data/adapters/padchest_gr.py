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
"""PadChest-GR (Castro et al. 2024): 4,555 frontal films with grounded sentences (BIMCV, research use).

On disk, as BIMCV serves it::

    ROOT/grounded_reports_20240819.json        an array of studies
    ROOT/master_table.csv                      StudyID, ImageID, split (train, validation, test), one row a label
    ROOT/Padchest_GR_files/PadChest_GR/<ImageID>    16-bit PNG, unpacked; or any other folder, by --images

One entry of the array, abridged. Boxes are shares of the film's width and height; a normal sentence often has none::

    {"StudyID": "1042...", "ImageID": "2168..._02-094-102.png", "findings": [
        {"sentence_en": "Small left pleural effusion.", "abnormal": true, "boxes": [[0.55, 0.61, 0.83, 0.92]],
         "labels": ["pleural effusion"], "locations": ["loc left", "loc pleural"]},
        {"sentence_en": "Normal cardiac silhouette.", "abnormal": false}]}

The report is the English sentences in their order; a region is a box of a sentence, named by the sentence's labels.
With `--labels PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv` a film gets its view (Projection) and its patient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.fields import listed, named, numbers, object_of, reported, table_rows, text, under
from verl_cxr.data.found import FoundRegion, FoundStudy
from verl_cxr.data.json_items import json_items
from verl_cxr.data.report_text import TextOptions
from verl_cxr.study import Report, View

__all__ = ["padchest_gr"]

_FOLDERS = ("Padchest_GR_files/PadChest_GR", "PadChest_GR", "images_grounding", "images")
_VIEW_OF: Mapping[str, View] = {"PA": "PA", "AP": "AP", "AP_horizontal": "AP", "L": "LATERAL"}
_UNNAMED = "finding"


@adapter("padchest_gr")
def padchest_gr(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of PadChest-GR.")],
    images: Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the films.")] = None,
    labels: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="PadChest's own table, for views and patients.")
    ] = None,
    priors: Annotated[bool, typer.Option("--priors", help="Keep mentions of earlier examinations.")] = False,
) -> Iterator[FoundStudy]:
    """Read PadChest-GR: sentences with boxes.

    Raises:
        FileNotFoundError: the grounded reports are missing.
        RecordError: a file is not what it should be, or the build is strict and a record is broken.
    """
    found = sorted(root.glob("grounded_reports_*.json*"))
    if not found:
        raise FileNotFoundError(f"{root} holds no grounded_reports_*.json: give the folder of PadChest-GR")
    splits = _splits(root / "master_table.csv", context)
    films = _films(labels, context) if labels else {}
    folder = (images or next((root / name for name in _FOLDERS if (root / name).is_dir()), root)).resolve()
    texts = TextOptions(priors)
    for row, item in json_items(found[-1], context):
        context.funnel.count("films listed")
        study = reported(
            _study, item, found[-1], row, folder, splits, films, texts, context=context, path=found[-1], row=row
        )
        if study is None:
            continue
        if not study.report.text:
            context.funnel.drop("no sentence left")
        elif splits and study.split is None:
            context.funnel.drop("no split")
        else:
            yield study


def _study(
    item: Any,
    file: Path,
    row: int,
    folder: Path,
    splits: Mapping[str, str],
    films: Mapping[str, tuple[View | None, str | None]],
    texts: TextOptions,
) -> FoundStudy:
    item = object_of(item)
    name = named(item, "ImageID")
    sentences: list[str] = []
    regions: list[FoundRegion] = []
    for place, finding in enumerate(listed(item, "findings")):
        field = f"findings[{place}]"
        finding = object_of(finding, field)
        sentence = texts.section(text(finding, "sentence_en"))
        if sentence is None:
            continue
        sentences.append(sentence)
        label = ", ".join(str(part) for part in listed(finding, "labels")).lower() or _UNNAMED
        for at, box in enumerate(listed(finding, "boxes")):
            corners = numbers(box, f"{field}.boxes[{at}]")
            regions.append(FoundRegion(label, corners, "unit_xyxy", sentence))
    view, patient = films.get(name, (None, None))
    return FoundStudy(
        id=name.rpartition(".")[0] or name,
        image=under(folder, name, "ImageID"),
        file=file,
        row=row,
        report=Report(findings=" ".join(sentences) or None),
        regions=tuple(regions),
        view=view,
        split=splits.get(name),
        source="PadChest-GR",
        licence="BIMCV, research use",
        patient=patient,
    )


def _splits(path: Path, context: BuildContext) -> dict[str, str]:
    """The split of each film. One of two splits keeps the stricter: an evaluation film must not train."""
    splits: dict[str, str] = {}
    if not path.is_file():
        return splits
    for row, cells in table_rows(path, ["ImageID", "split"], context):
        name, split = cells["ImageID"].strip(), cells["split"].strip()
        if not (name and split):
            continue
        before = splits.setdefault(name, split)
        if before != split:
            context.problem(path, row, "split", f"two splits of one film: {name} is in {before} and {split}")
            splits[name] = split if before == "train" else before
    return splits


def _films(path: Path, context: BuildContext) -> dict[str, tuple[View | None, str | None]]:
    """View and patient of each film."""
    return {
        cells["ImageID"]: (_VIEW_OF.get(cells["Projection"].strip()), cells["PatientID"].strip() or None)
        for _, cells in table_rows(path, ["ImageID", "PatientID", "Projection"], context)
    }
