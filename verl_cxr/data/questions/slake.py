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
"""SLAKE (Liu et al. 2021; CC BY 4.0): questions on chest X-rays, in English.

On disk, as it is published, or as JSON lines with a column `split`::

    ROOT/train.json, ROOT/validate.json, ROOT/test.json
    ROOT/imgs/xmlab102/source.jpg

One row::

    {"img_id": 102, "img_name": "xmlab102/source.jpg", "question": "Which organ is abnormal, heart or lung?",
     "answer": "Lung", "q_lang": "en", "location": "Lung", "modality": "X-Ray", "answer_type": "CLOSED",
     "base_type": "vqa", "content_type": "Abnormality", "triple": ["vhead", "_", "_"], "qid": 1035}

Taken are rows in English on X-rays of lung or chest: 1,423 of train, 338 of validate and 361 of test. A closed row that
yes or no does not answer gets the options of its own words where they are plain; else it is open. Its own label stays
in `extra.answer_type`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import named, object_of, reported, text, under
from verl_cxr.data.questions import question_set
from verl_cxr.data.questions.choices import kind_of_options, said_options
from verl_cxr.data.questions.rows import checked, find_files, rows_of
from verl_cxr.question import Kind, Question

__all__ = ["slake"]

_PATTERNS = ("train.json", "validate.json", "test.json")


@question_set("slake")
def slake(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, help="Folder of SLAKE, or a file of its rows.")],
    images: Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the images.")] = None,
    language: Annotated[str, typer.Option(help="en or zh.")] = "en",
) -> Iterator[Question]:
    """Read SLAKE's questions on chest X-rays.

    Raises:
        FileNotFoundError: there are no rows.
        RecordError: a file is not what it should be, or `context` is strict and a row is broken.
    """
    paths = [path for name in _PATTERNS if (path := root / name).is_file()]
    for path in paths or find_files(root, "*.jsonl", "*.jsonl.gz"):
        folder = (images or (path.parent / "imgs" if (path.parent / "imgs").is_dir() else path.parent)).resolve()
        split = path.stem if path.name in _PATTERNS else None
        for row, item in rows_of(path, context):
            context.funnel.count("questions listed")
            record = reported(object_of, item, context=context, path=path, row=row)
            if record is None:
                continue
            if reason := _other(record, language):
                context.funnel.drop(reason)
                continue
            question = reported(_question, record, split, folder, context=context, path=path, row=row)
            if question is not None:
                yield question


def _other(record: dict[str, Any], language: str) -> str | None:
    if record.get("q_lang") != language:
        return "another language"
    if str(record.get("modality")).lower() != "x-ray":
        return "another modality"
    if str(record.get("location")).lower() not in ("lung", "chest"):
        return "another part of the body"
    return None


def _question(record: dict[str, Any], split: str | None, folder: Path) -> Question:
    asked, answer = named(record, "question"), named(record, "answer")
    closed = (text(record, "answer_type") or "").upper() == "CLOSED"
    options: tuple[str, ...] = ()
    kind = Kind.OPEN
    if closed and answer.lower() in ("yes", "no"):
        kind, answer = Kind.CLOSED, answer.lower()
    elif closed and (said := said_options(asked, answer)):
        options, answer = said
        kind = kind_of_options(options)
    return checked(
        [under(folder, named(record, "img_name"), "img_name")],
        id=f"slake-{named(record, 'qid')}",
        question=asked,
        options=list(options),
        answer=[answer],
        kind=kind.value,
        category=[part for key in ("content_type", "base_type") if (part := text(record, key))],
        split=split or text(record, "split"),
        source="SLAKE",
        licence="CC BY 4.0",
        extra={"answer_type": "CLOSED" if closed else "OPEN", "image": named(record, "img_id")},
    )
