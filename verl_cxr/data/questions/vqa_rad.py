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
"""VQA-RAD (Lau et al. 2018; CC0): questions by clinicians, on chest films here.

On disk, as it is published, or as JSON lines::

    ROOT/VQA_RAD Dataset Public.json
    ROOT/VQA_RAD Image Folder/synpic29265.jpg

One row, abridged; `answer_type` may have a space behind it, an answer may be a number::

    {"qid": 1, "phrase_type": "freeform", "image_name": "synpic29265.jpg", "image_organ": "CHEST",
     "question": "Are the lungs normal appearing?", "question_type": "ABN", "answer": "No", "answer_type": "CLOSED"}

Rows whose phrase_type starts with `test` are the official test split, the others train. A closed row that yes or no
does not answer gets the options of its own words where they are plain; else it is open. Its own label stays in
`extra.answer_type`. `--views` names a JSON object from image names to PA or AP, as told by the plane questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import named, object_of, reported, text, under
from verl_cxr.data.json_items import read_document
from verl_cxr.data.questions import question_set
from verl_cxr.data.questions.choices import kind_of_options, said_options
from verl_cxr.data.questions.rows import checked, find_files, rows_of
from verl_cxr.question import Kind, Question

__all__ = ["vqa_rad"]

_FOLDERS = ("VQA_RAD Image Folder", "images")
_CATEGORY = {"ATRIB": "ATTRIB"}  # a slip of the published file


@question_set("vqa_rad")
def vqa_rad(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, help="Folder of VQA-RAD, or a file of its rows.")],
    images: Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the images.")] = None,
    organ: Annotated[str, typer.Option(help="Part of the body: CHEST, HEAD or ABD.")] = "CHEST",
    views: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="JSON object from image names to PA or AP.")
    ] = None,
) -> Iterator[Question]:
    """Read VQA-RAD's questions on chest films.

    Raises:
        FileNotFoundError: there are no rows.
        RecordError: a file is not what it should be, or `context` is strict and a row is broken.
    """
    told = object_of(read_document(views), str(views)) if views else {}
    for path in find_files(root, "VQA_RAD Dataset Public.json", "*.jsonl", "*.jsonl.gz"):
        beside = [path.parent / name for name in _FOLDERS if (path.parent / name).is_dir()]
        folder = (images or next(iter(beside), path.parent)).resolve()
        for row, item in rows_of(path, context):
            context.funnel.count("questions listed")
            record = reported(object_of, item, context=context, path=path, row=row)
            if record is None:
                continue
            if str(record.get("image_organ")).strip().upper() != organ.upper():
                context.funnel.drop("another part of the body")
                continue
            question = reported(_question, record, folder, told, context=context, path=path, row=row)
            if question is not None:
                yield question


def _question(record: dict[str, Any], folder: Path, views: Mapping[str, Any]) -> Question:
    asked, answer, image = named(record, "question"), named(record, "answer"), named(record, "image_name")
    closed = (text(record, "answer_type") or "").strip().lower() == "closed"
    options: tuple[str, ...] = ()
    kind = Kind.OPEN
    if closed and answer.lower() in ("yes", "no"):
        kind, answer = Kind.CLOSED, answer.lower()
    elif closed and (said := said_options(asked, answer)):
        options, answer = said
        kind = kind_of_options(options)
    phrase = text(record, "phrase_type") or ""
    kinds = [part for part in re.split(r"[,\s]+", (text(record, "question_type") or "").upper()) if part]
    return checked(
        [under(folder, image, "image_name")],
        id=f"vqa_rad-{named(record, 'qid')}",
        question=asked,
        options=list(options),
        answer=[answer],
        kind=kind.value,
        category=[_CATEGORY.get(part, part) for part in kinds],
        split="test" if phrase.startswith("test") else "train",
        view=views.get(image),
        source="VQA-RAD",
        licence="CC0 1.0",
        extra={"answer_type": "CLOSED" if closed else "OPEN", "phrase_type": phrase},
    )
