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
"""MIMIC-CXR-VQA, also MIMIC-Ext-MIMIC-CXR-VQA (Bae et al. 2023; PhysioNet, credentialed): 377,000 templated questions.

On disk, made by the set's own script or as PhysioNet serves it::

    ROOT/train.json, ROOT/valid.json, ROOT/test.json       JSON arrays; also in ROOT/dataset
    FILMS/files/p10/p10000032/s50414267/02aa804e-....jpg   MIMIC-CXR-JPG, by --films

One row, abridged; `answer` is a list, which may be empty: none of what was asked about is there::

    {"split": "train", "idx": 13280, "image_id": "34c81443-...", "subject_id": "10000032", "study_id": "50414267",
     "image_path": "p10/p10000032/s50414267/34c81443-....jpg", "content_type": "attribute", "semantic_type": "verify",
     "question": "Are there signs of both pleural effusion and lung cancer in the left lower lung zone?",
     "answer": ["no"], "template_arguments": {"object": {"0": "left lower lung zone"},
                                              "attribute": {"0": "pleural effusion", "1": "lung cancer"}, ...}}

`verify` is answered by yes or no; `choose` and `query` by any number of labels, of those that the question offers where
it offers two. `_train.json` and its like hold no answers and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import named, object_of, reported, text, under
from verl_cxr.data.questions import question_set
from verl_cxr.data.questions.rows import answer_texts, checked, rows_of
from verl_cxr.files import RecordError
from verl_cxr.question import Kind, Question

__all__ = ["mimic_cxr_vqa"]

_SPLITS = {"train": "train", "valid": "validate", "test": "test"}


@question_set("mimic_cxr_vqa")
def mimic_cxr_vqa(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of the questions.")],
    films: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of MIMIC-CXR-JPG. Default: the root.")
    ] = None,
) -> Iterator[Question]:
    """Read MIMIC-CXR-VQA.

    Raises:
        FileNotFoundError: there are no questions with answers.
        RecordError: a file is not what it should be, or `context` is strict and a row is broken.
    """
    folder = next(
        (path for path in (root, root / "dataset") if any((path / f"{s}.json").is_file() for s in _SPLITS)), None
    )
    if folder is None:
        raise FileNotFoundError(
            f"{root} holds no train.json, valid.json or test.json: make them by the set's own script"
        )
    place = (films or root).resolve()
    for name, split in _SPLITS.items():
        path = folder / f"{name}.json"
        if not path.is_file():
            continue
        for row, item in rows_of(path, context):
            context.funnel.count("questions listed")
            question = reported(_question, item, split, place, context=context, path=path, row=row)
            if question is not None:
                yield question


def _question(item: Any, split: str, films: Path) -> Question:
    item = object_of(item)
    if "answer" not in item:
        raise RecordError("answer", "missing: should be a list of texts, which may be empty")
    answer, kind = answer_texts(item["answer"]), Kind.MULTI_LABEL
    options: list[str] = []
    if text(item, "semantic_type") == "verify":
        answer, kind = [part.lower() for part in answer], Kind.CLOSED
    elif text(item, "semantic_type") == "choose":
        offered = _offered(item)
        options = offered if set(answer) <= set(offered) else []
    return checked(
        [_image(item, films)],
        id=f"mimic_cxr_vqa-{split}-{named(item, 'idx')}",
        question=named(item, "question"),
        options=options,
        answer=answer,
        kind=kind.value,
        category=[part for key in ("content_type", "semantic_type") if (part := text(item, key))],
        split=split,
        source="MIMIC-CXR-VQA",
        licence="PhysioNet Credentialed Health Data License 1.5.0",
        extra={"image": text(item, "image_id"), "study": f"s{named(item, 'study_id')}" if "study_id" in item else None},
    )


def _offered(item: dict[str, Any]) -> list[str]:
    """What a question offers to choose from: the one kind of its arguments of which there are several."""
    arguments = object_of(item.get("template_arguments") or {}, "template_arguments")
    several = [list(values.values()) for values in arguments.values() if isinstance(values, dict) and len(values) > 1]
    offered = several[0] if len(several) == 1 else []
    return list(dict.fromkeys(offered)) if all(isinstance(part, str) and part.strip() for part in offered) else []


def _image(item: dict[str, Any], films: Path) -> Path:
    """The film in MIMIC-CXR-JPG's folders, by its path, or by patient, study and film."""
    name = text(item, "image_path")
    if name is None:
        subject, study = named(item, "subject_id"), named(item, "study_id")
        name = f"files/p{subject[:2]}/p{subject}/s{study}/{named(item, 'image_id')}.jpg"
    name = name.removeprefix("files/")
    path, beside = under(films, f"files/{name}", "image_path"), under(films, name, "image_path")
    return beside if beside.is_file() and not path.is_file() else path
