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
"""Rad-ReStruct (Pellegrini et al. 2023; MIT): a structured report of Open-i, asked question by question.

On disk, as it is published, or as JSON lines `{"uid": "CXR5", "qa": [...]}` named after their split::

    ROOT/{train,val,test}_qa_pairs/5.json
    ROOT/id_to_img_mapping_frontal_reports.json      {"5": ["CXR5_IM-2117-1003002"], ...}
    IMAGES/CXR5_IM-2117-1003002.png                  Open-i's films, by --images

One item of a file: question, answers, the questions before it with their answers, and how it is to be answered::

    ["What is the degree?", ["mild"], [["Is there anything abnormal in the lung?", ["yes"]]],
     {"answer_type": "multi_choice", "options": ["mild", "no selection", "severe"], "path": "lung_body_regions_degree"}]

A question means little without those before it, so they stand before it with their answers, one a line, and in
`extra.history`; `--no-history` leaves them there only. The frontal films of the report are its images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import listed, named, object_of, reported, reporter
from verl_cxr.data.json_items import read_document
from verl_cxr.data.openi.films import FilmFolder
from verl_cxr.data.questions import question_set
from verl_cxr.data.questions.choices import kind_of_options
from verl_cxr.data.questions.rows import answer_texts, checked, find_files
from verl_cxr.files import RecordError, kind_of, read_records
from verl_cxr.question import Kind, Question

__all__ = ["rad_restruct"]

_MAPPING = "id_to_img_mapping_frontal_reports.json"
_SPLITS = {"train": "train", "val": "validate", "test": "test"}


@question_set("rad_restruct")
def rad_restruct(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of Rad-ReStruct.")],
    images: Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Folder of Open-i's films.")] = None,
    history: Annotated[bool, typer.Option(help="Ask with the questions and answers before.")] = True,
) -> Iterator[Question]:
    """Read Rad-ReStruct's questions, report by report.

    Raises:
        FileNotFoundError: there are no questions.
        RecordError: a file is not what it should be, or `context` is strict and a row is broken.
    """
    mapping = _mapping(root / _MAPPING, context)
    films = FilmFolder((images or root).resolve())
    for path, row, split, uid, items in _reports(root, context):
        context.funnel.count("reports")
        if not isinstance(items, list):
            context.problem(path, row, "qa", f"must be a list of questions, not {kind_of(items)}")
            continue
        paths = [films.find(name) for name in mapping.get(uid.removeprefix("CXR"), [])]
        for place, item in enumerate(items):
            context.funnel.count("questions listed")
            question = reported(_question, item, place, uid, split, paths, history, context=context, path=path, row=row)
            if question is not None:
                yield question


def _reports(root: Path, context: BuildContext) -> Iterator[tuple[Path, int, str, str, Any]]:
    """File, row, split, report and questions."""
    folders = [(split, root / f"{split}_qa_pairs") for split in _SPLITS]
    if any(folder.is_dir() for _, folder in folders):
        for split, folder in folders:
            for path in sorted(folder.glob("*.json"), key=lambda path: (len(path.stem), path.stem)):
                items = reported(read_document, path, context=context, path=path, row=None)
                if items is not None:
                    yield path, 1, _SPLITS[split], f"CXR{path.stem}", items
        return
    for path in find_files(root, "*qa_pairs*.jsonl", "*qa_pairs*.jsonl.gz"):
        split = _SPLITS.get(path.name.partition("_")[0], path.name.partition("_")[0])
        for row, record in read_records(path, broken=reporter(context, path)):
            uid = reported(named, record, "uid", context=context, path=path, row=row)
            if uid is not None:
                yield path, row, split, uid, record.get("qa")


def _mapping(path: Path, context: BuildContext) -> dict[str, list[str]]:
    """The frontal films of each report, by its number."""
    if not path.is_file():
        return {}
    mapping: dict[str, list[str]] = {}
    document: Mapping[str, Any] = object_of(read_document(path), path.name)
    for row, number in enumerate(document, start=1):
        names = reported(listed, document, number, context=context, path=path, row=row, dropped=None)
        mapping[number] = [str(name) for name in names or ()]
    return mapping


def _question(item: Any, place: int, uid: str, split: str, images: list[Path], history: bool) -> Question:
    if not isinstance(item, list) or len(item) != 4:
        raise RecordError(f"qa[{place}]", "must be [question, answers, history, how it is answered]")
    asked, answers, before, how = item
    how = object_of(how, f"qa[{place}][3]")
    options = answer_texts(listed(how, "options"))
    single = how.get("answer_type") == "single_choice"
    kind = kind_of_options(tuple(options)) if single and len(options) > 1 else Kind.MULTI_LABEL
    turns = [_turn(turn, place) for turn in before] if isinstance(before, list) else []
    text = str(asked)
    lines = [f"{question} {', '.join(said)}" for question, said in turns] if history else []
    path = named(how, "path")
    return checked(
        images,
        id=f"rad_restruct-{uid}-{place:03}",
        question="\n".join([*lines, text]),
        options=[] if kind is Kind.CLOSED else options,
        answer=answer_texts(answers),
        kind=kind.value,
        category=[path.partition("_")[0]],
        split=split,
        source="Rad-ReStruct",
        licence="MIT",
        extra={"study": uid, "path": path, "question": text, "history": [[question, said] for question, said in turns]},
    )


def _turn(turn: Any, place: int) -> tuple[str, list[str]]:
    if not isinstance(turn, list) or len(turn) != 2:
        raise RecordError(f"qa[{place}][2]", "must be a list of [question, answers]")
    return str(turn[0]), answer_texts(turn[1])
