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
"""LLaVA-Rad's annotations of MIMIC-CXR 1.0.0 (Zambrano Chaves et al. 2025; PhysioNet, credentialed): findings by GPT-4.

On disk::

    ROOT/chat_train_MIMIC_CXR_all_gpt4extract_rulebased_v1.json      and chat_dev_..., chat_test_...: JSON arrays
    FILMS/files/p10/p10000032/s50414267/02aa804e-....jpg             MIMIC-CXR-JPG, by --films

One entry, abridged; `image` starts at `mimic/`::

    {"id": "02aa804e-...", "image": "mimic/p10/p10000032/s50414267/02aa804e-....jpg", "view": "PA",
     "reason": "Evaluate for effusion.", "generate_method": "gpt4",
     "conversations": [{"from": "human", "value": "<image>\\nDescribe the findings."},
                       {"from": "gpt", "value": "Small left effusion."}]}

The findings are the last turn of `gpt`. A turn that is no text is skipped and counted, as LLaVA-Rad's own reader does.
Their splits are train, dev and test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.fields import listed, named, object_of, reported, text, under
from verl_cxr.data.found import FoundStudy
from verl_cxr.data.funnel import Line
from verl_cxr.data.json_items import json_items
from verl_cxr.data.report_text import ALL_PRIOR, TextOptions
from verl_cxr.files import RecordError
from verl_cxr.study import View

__all__ = ["llava_rad"]

_SPLITS = {"train": "train", "dev": "validate", "test": "test"}
_VIEW_OF: dict[str, View] = {"PA": "PA", "AP": "AP", "LATERAL": "LATERAL", "LL": "LATERAL"}
_PATIENT = re.compile(r"(?:^|/)(p\d{8})/")
_NO_TEXT, _LATERAL = "findings that are no text", "lateral view"

FUNNEL = (
    Line("films listed"),
    Line(_LATERAL, dropped=True),
    Line(_NO_TEXT, dropped=True),
    Line(ALL_PRIOR, dropped=True),
)


@adapter("llava_rad")
def llava_rad(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of the annotations.")],
    films: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of MIMIC-CXR-JPG. Default: the root.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Only findings made so, joined by commas: gpt4, rule-based. Default: all.")
    ] = "",
    priors: Annotated[bool, typer.Option("--priors", help="Keep mentions of earlier examinations.")] = False,
) -> Iterator[FoundStudy]:
    """Read LLaVA-Rad's findings for films of MIMIC-CXR-JPG.

    Raises:
        FileNotFoundError: there are no annotations.
        RecordError: a file is not what it should be, or the build is strict and a record is broken.
    """
    wanted = {name.strip() for name in methods.split(",") if name.strip()}
    paths = {split: sorted(root.glob(f"chat_{split}_MIMIC_CXR_all_*.json*")) for split in _SPLITS}
    if not any(paths.values()):
        raise FileNotFoundError(
            f"{root} holds no chat_train_MIMIC_CXR_all_*.json: give the folder of LLaVA-Rad's files"
        )
    context.funnel.plan(*FUNNEL)
    folder, texts = (films or root).resolve(), TextOptions(priors)
    for split, found in paths.items():
        for path in found[-1:]:
            for row, item in json_items(path, context):
                context.funnel.count("films listed")
                if wanted and isinstance(item, dict) and item.get("generate_method") not in wanted:
                    context.funnel.drop("made by another method")
                    continue
                study = reported(_study, item, split, folder, texts, path, row, context=context, path=path, row=row)
                if study is None:
                    continue
                if study.view == "LATERAL" and not context.lateral:
                    context.funnel.drop(_LATERAL)
                elif not study.report.text:
                    context.funnel.drop(ALL_PRIOR if _findings(item) else _NO_TEXT)
                else:
                    yield study


def _study(item: Any, split: str, folder: Path, texts: TextOptions, file: Path, row: int) -> FoundStudy:
    item = object_of(item)
    place = named(item, "image")
    view = text(item, "view")
    return FoundStudy(
        id=named(item, "id"),
        image=_image(folder, place),
        file=file,
        row=row,
        report=texts.report(_findings(item), None, text(item, "reason")),
        view=_VIEW_OF.get(view.upper()) if view else None,
        split=_SPLITS[split],
        source="LLaVA-Rad MIMIC-CXR",
        licence="PhysioNet Credentialed Health Data License 1.5.0",
        patient=patient[1] if (patient := _PATIENT.search(place)) else None,
    )


def _findings(item: dict[str, Any]) -> str | None:
    """The last turn of the model; None if it is no text."""
    turns = [object_of(turn, "conversations") for turn in listed(item, "conversations")]
    if not turns:
        raise RecordError("conversations", "missing: should be a list of turns")
    values = [turn.get("value") for turn in turns if turn.get("from") == "gpt"]
    return values[-1] if values and isinstance(values[-1], str) else None


def _image(folder: Path, place: str) -> Path:
    """The film in MIMIC-CXR-JPG's own folders, or where the annotations say."""
    for name in (re.sub(r"^mimic/", "files/", place), re.sub(r"^mimic/", "", place), place):
        path = under(folder, name, "image")
        if path.is_file():
            return path
    return under(folder, re.sub(r"^mimic/", "files/", place), "image")
