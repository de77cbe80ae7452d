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
"""ReXrank's test splits (Zhang et al. 2024): what published report generators are compared on.

On disk, one file a data set, and its films::

    ROOT/ReXRank_IUXray_test.json       also ReXRank_MIMICCXR_test.json, ReXRank_CheXpertPlus_valid.json ...; .gz too
    FILMS/CXR3030_IM-1405/0.png         by --films; paths in the file start there

One member, abridged::

    {"CXR3030_IM-1405": {"key_image_path": "CXR3030_IM-1405/0.png", "split": "test",
      "image_path": ["CXR3030_IM-1405/0.png", "CXR3030_IM-1405/1.png"], "frontal_lateral": ["Frontal", "Lateral"],
      "section_findings": "Normal cardiomediastinal silhouette. ...", "section_impression": "There is no ...",
      "context": "Indication: Chest pain, dyspnea Comparison: None.", "report": "Findings: ... Impression: ..."}}

A study is the key image with its report, word for word: references of an evaluation are not rewritten. The views of 46
of the 590 reports of IU X-ray cannot be told, because `frontal_lateral` is longer or shorter than `image_path`; of the
others one has a lateral key image.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.fields import listed, named, object_of, reported, text, under
from verl_cxr.data.found import FoundStudy
from verl_cxr.data.funnel import Line
from verl_cxr.data.json_items import json_members
from verl_cxr.data.report_text import NO_SECTION
from verl_cxr.study import Report, View

__all__ = ["rexrank"]

_LATERAL = "lateral view"

FUNNEL = (
    Line("reports"),
    Line("reports whose views cannot be told"),
    Line(_LATERAL, dropped=True),
    Line(NO_SECTION, dropped=True),
)


@adapter("rexrank")
def rexrank(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, help="A ReXRank_*.json file, or a folder of them.")],
    films: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the films. Default: that of the file.")
    ] = None,
) -> Iterator[FoundStudy]:
    """Read ReXrank's test reports, word for word.

    Raises:
        FileNotFoundError: there is no such file.
        RecordError: a file is not what it should be, or the build is strict and a record is broken.
    """
    paths = [root] if root.is_file() else sorted({*root.glob("ReXRank_*.json"), *root.glob("ReXRank_*.json.gz")})
    if not paths:
        raise FileNotFoundError(f"{root} holds no ReXRank_*.json")
    context.funnel.plan(*FUNNEL)
    for path in paths:
        folder = (films or path.parent).resolve()
        for row, name, item in json_members(path, context):
            context.funnel.count("reports")
            study = reported(_study, name, item, folder, path, row, context=context, path=path, row=row)
            if study is None:
                continue
            context.funnel.count("reports whose views cannot be told", int(_views(item) is None))
            if study.view == "LATERAL" and not context.lateral:
                context.funnel.drop(_LATERAL)
            elif not study.report.text:
                context.funnel.drop(NO_SECTION)
            else:
                yield study


def _study(name: str, item: Any, folder: Path, file: Path, row: int) -> FoundStudy:
    item = object_of(item)
    images = [str(image) for image in listed(item, "image_path")]
    key = text(item, "key_image_path") or (images[0] if images else named(item, "image_path"))
    views = _views(item)
    view: View | None = "LATERAL" if views and key in images and views[images.index(key)] == "Lateral" else None
    return FoundStudy(
        id=name,
        image=under(folder, key, "key_image_path"),
        file=file,
        row=row,
        report=Report(text(item, "section_findings"), text(item, "section_impression"), text(item, "context")),
        view=view,
        split=text(item, "split") or "test",
        source="ReXrank",
        licence="MIT (annotations); films under the terms of their data sets",
        patient=name.partition("_")[0] if name.startswith("CXR") else None,
    )


def _views(item: dict[str, Any]) -> list[Any] | None:
    """Frontal or Lateral of each image; None if they cannot be assigned."""
    views = listed(item, "frontal_lateral")
    return views if len(views) == len(listed(item, "image_path")) else None
