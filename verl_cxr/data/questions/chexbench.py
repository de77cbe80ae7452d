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
"""CheXbench (Chen et al. 2024), the benchmark of CheXagent.

On disk, and the films of its sources below a folder of their own, by `--images`::

    ROOT/data.json

A JSON object from tasks to rows. An absent option is NaN, an answer is the place of an option, several images are a
list or joined by `|`::

    {"View Classification": [
      {"data_source": "MIMIC-CXR", "image_path": "data/mimic-cxr/files/p10/.../02aa804e-....jpg",
       "question": "What is the view of this chest X-ray?", "option_0": "AP", "option_1": "PA", "option_2": "LATERAL",
       "option_3": NaN, "answer": 1, "slice": "PA"}]}

Tasks without options have their text as answer. Boxes of Phrase Grounding, `<|box|>(12,30),(45,61)<|/box|>` on a grid
from 0 to 100, are in `extra.boxes` as well, with `extra.box_frame` `percent_xyxy`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import is_missing, named, object_of, reported, text, under
from verl_cxr.data.json_items import json_members
from verl_cxr.data.questions import question_set
from verl_cxr.data.questions.choices import among, kind_of_options
from verl_cxr.data.questions.rows import answer_texts, checked, find_files
from verl_cxr.files import RecordError, kind_of
from verl_cxr.question import Kind, Question

__all__ = ["chexbench"]

_OPTIONS = tuple(f"option_{place}" for place in range(4))
_BOX = re.compile(r"<\|box\|>\s*\((\d+),\s*(\d+)\),\s*\((\d+),\s*(\d+)\)\s*<\|/box\|>")


@question_set("chexbench")
def chexbench(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, help="data.json, or its folder.")],
    images: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder that image paths start from.")
    ] = None,
    tasks: Annotated[str, typer.Option(help="Only these tasks, joined by commas. Default: all.")] = "",
) -> Iterator[Question]:
    """Read CheXbench.

    Raises:
        FileNotFoundError: there is no data.json.
        RecordError: the file is not what it should be, or `context` is strict and a row is broken.
    """
    path = find_files(root, "data.json", "data.json.gz")[0]
    folder = (images or path.parent).resolve()
    wanted = {name.strip().lower() for name in tasks.split(",") if name.strip()}
    for _, task, rows in json_members(path, context):
        if wanted and task.lower() not in wanted:
            continue
        if not isinstance(rows, list):
            context.problem(path, None, task, f"a task must be a list of rows, not {kind_of(rows)}")
            continue
        for row, item in enumerate(rows, start=1):
            context.funnel.count("questions listed")
            question = reported(_question, item, task, row, folder, context=context, path=path, row=row)
            if question is not None:
                yield question


def _question(item: Any, task: str, row: int, folder: Path) -> Question:
    item = object_of(item)
    options = tuple(" ".join(str(item[key]).split()) for key in _OPTIONS if not is_missing(item.get(key)))
    extra: dict[str, Any] = {"task": task}
    if len(options) > 1:
        answer, kind = list(among(item.get("answer"), options)), kind_of_options(options)
        if kind is Kind.CLOSED:
            options, answer = (), [text.lower() for text in answer]
    else:
        options, answer, kind = (), answer_texts(item.get("answer")), Kind.OPEN
        if boxes := [[int(number) for number in found] for text in answer for found in _BOX.findall(text)]:
            extra |= {"boxes": boxes, "box_frame": "percent_xyxy"}
    return checked(
        [under(folder, name, "image_path") for name in _images(item)],
        id=f"chexbench-{re.sub(r'[^a-z0-9]+', '-', task.lower()).strip('-')}-{row:05}",
        question=named(item, "question"),
        options=list(options),
        answer=answer,
        kind=kind.value,
        category=[task, *([part] if (part := _slice(item)) else [])],
        split="test",
        source=text(item, "data_source") or "CheXbench",
        extra=extra,
    )


def _images(item: dict[str, Any]) -> list[str]:
    value = item.get("image_path")
    parts = value if isinstance(value, list) else str(value).split("|") if isinstance(value, str) else []
    names = [part.strip() for part in parts if isinstance(part, str) and part.strip()]
    if not names or len(names) != len(parts):
        raise RecordError("image_path", f"must be a path, paths joined by | or a list of them, not {str(value)[:60]!r}")
    return names


def _slice(item: dict[str, Any]) -> str | None:
    value = item.get("slice")
    return None if is_missing(value) else str(value)
