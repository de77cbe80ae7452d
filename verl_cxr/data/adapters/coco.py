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
"""COCO annotations, in which labelling tools export boxes: private data.

On disk::

    ROOT/annotations.json       or --annotations; several files, such as instances_train.json, name their splits
    ROOT/images/a.png           `file_name` starts at the root or at its folder images; PNG, JPEG or DICOM

The parts that are read; a box is x, y, width and height in pixels of the stored film::

    {"images": [{"id": 7, "file_name": "a.png", "width": 1024, "height": 841, "split": "train", "patient": "p1",
                 "view": "PA", "report": {"findings": "Small left effusion.", "impression": null}}],
     "categories": [{"id": 1, "name": "Pleural effusion"}],
     "annotations": [{"id": 1, "image_id": 7, "category_id": 1, "bbox": [500, 600, 200, 150],
                      "caption": "Small left effusion."}]}

COCO knows nothing of `split`, `patient`, `view`, `report` and `caption`: they may be absent. A region is an annotation,
named by its category; its finding is the caption, or the category as a sentence. With `--categories region` categories
are anatomical regions, and a region without caption has no finding. Where there is no report, findings make one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.fields import listed, named, numbers, object_of, reported, text, under, whole
from verl_cxr.data.found import FoundRegion, FoundStudy
from verl_cxr.data.json_items import read_document
from verl_cxr.files import RecordError
from verl_cxr.study import Report, View

__all__ = ["coco"]

_VIEWS = ("PA", "AP", "LATERAL")
_SPLITS = ("train", "validate", "validation", "valid", "val", "test")


@dataclass(frozen=True, slots=True)
class _Options:
    folders: tuple[Path, ...]
    anatomical: bool
    source: str | None
    licence: str | None


@adapter("coco")
def coco(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, help="Folder of the data set, or one file of annotations.")],
    annotations: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="File of annotations, elsewhere.")
    ] = None,
    categories: Annotated[str, typer.Option(help="What categories are: finding, or region (of the body).")] = "finding",
    source: Annotated[str | None, typer.Option(help="Name of the source, for the card.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence, for the card.")] = None,
) -> Iterator[FoundStudy]:
    """Read boxes in COCO's form, your own data included.

    Raises:
        FileNotFoundError: there are no annotations.
        RecordError: a file is not what it should be, or the build is strict and a record is broken.
        ValueError: an option that cannot be.
    """
    if categories not in ("finding", "region"):
        raise ValueError(f"unknown --categories {categories!r}: use finding or region")
    folder = (root.parent if root.is_file() else root).resolve()
    paths = [annotations or root] if annotations or root.is_file() else _find(root)
    if not paths:
        raise FileNotFoundError(f"{root} holds no *.json of annotations: name one with --annotations")
    folders = tuple(path for path in (folder, folder / "images") if path.is_dir())
    options = _Options(folders, categories == "region", source, licence)
    for path in paths:
        yield from _studies(path, options, context)


def _find(root: Path) -> list[Path]:
    return sorted([*root.glob("*.json"), *root.glob("annotations/*.json")])


def _studies(path: Path, options: _Options, context: BuildContext) -> Iterator[FoundStudy]:
    try:
        document = object_of(read_document(path))
        images, boxes, kinds = (listed(document, key) for key in ("images", "annotations", "categories"))
    except RecordError as error:
        raise type(error)(error.field, error.problem, file=str(path)) from None
    names: dict[str, str] = {}
    for row, kind in enumerate(kinds, start=1):
        pair = reported(_category, kind, context=context, path=path, row=row, dropped=None)
        if pair is not None:
            names.setdefault(*pair)
    regions: dict[str, list[FoundRegion]] = {}
    for row, item in enumerate(boxes, start=1):
        found = reported(_region, item, names, options, context=context, path=path, row=row, dropped=None)
        if found is None:
            context.funnel.discard("broken annotation", unit="boxes")
        else:
            regions.setdefault(found[0], []).append(found[1])
    split = next((name for name in _SPLITS if name in path.stem.lower().replace("-", "_").split("_")), None)
    known = set()
    for row, item in enumerate(images, start=1):
        context.funnel.count("films listed")
        key = _key(item)
        known.add(key)
        study = reported(
            _study, item, regions.get(key, []), split, options, path, row, context=context, path=path, row=row
        )
        if study is not None:
            yield study
    for key in sorted(regions.keys() - known):
        number = len(regions[key])
        context.funnel.discard("of a film that is not listed", unit="boxes", number=number)
        context.problem(path, None, "image_id", f"boxes of a film that is not listed: {key[:40]}, {number} of them")


def _key(item: Any) -> str:
    return str(item.get("id")) if isinstance(item, dict) else ""


def _category(item: Any) -> tuple[str, str]:
    item = object_of(item)
    return named(item, "id"), named(item, "name")


def _region(item: Any, names: dict[str, str], options: _Options) -> tuple[str, FoundRegion]:
    item = object_of(item)
    category = named(item, "category_id")
    if category not in names:
        raise RecordError("category_id", f"no such category: {category[:40]}")
    name, box = names[category], numbers(item.get("bbox"), "bbox")
    finding = text(item, "caption") or ("" if options.anatomical else _sentence(name))
    return named(item, "image_id"), FoundRegion(name.lower(), box, "pixel_xywh", finding)


def _study(
    item: Any, regions: list[FoundRegion], split: str | None, options: _Options, file: Path, row: int
) -> FoundStudy:
    item = object_of(item)
    name, view = named(item, "file_name"), text(item, "view")
    if view is not None and view not in _VIEWS:
        raise RecordError("view", f"not a view: {view[:40]!r}, should be one of {', '.join(_VIEWS)}, or null")
    report = object_of(item.get("report") or {}, "report")
    findings, impression = text(report, "findings"), text(report, "impression")
    if not (findings or impression):
        findings = " ".join(dict.fromkeys(region.finding for region in regions if region.finding)) or None
    return FoundStudy(
        id=name.rpartition(".")[0] or name,
        image=_image(name, options.folders),
        file=file,
        row=row,
        report=Report(findings, impression, text(report, "notes")),
        regions=tuple(regions),
        view=cast("View | None", view),
        split=text(item, "split") or split,
        source=options.source,
        licence=options.licence,
        patient=text(item, "patient"),
        stated=(whole(item, "width"), whole(item, "height")) if "width" in item or "height" in item else None,
    )


def _image(name: str, folders: tuple[Path, ...]) -> Path:
    paths = [under(folder, name, "file_name") for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])


def _sentence(name: str) -> str:
    return f"{name[0].upper()}{name[1:].lower()}."
