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
"""GEMeX (Liu et al. 2025; on MIMIC-CXR-JPG, credentialed): 1.6 million questions with reasons and regions.

On disk, JSON arrays or JSON lines named after their split, and MIMIC-CXR-JPG by `--films`::

    ROOT/train.json, ROOT/test.json        any *.json, *.jsonl

One row, abridged; names of fields differ between releases, see below::

    {"image_path": "p10/p10000032/s50414267/02aa804e-....jpg", "question_type": "single-choice",
     "question": "Which side is affected?", "choices": ["A. Left", "B. Right"], "answer": "A",
     "reason": "The left costophrenic angle is blunted.", "visual_regions": ["left costophrenic angle"],
     "visual_locations": [[150, 120, 190, 160]]}

The types are open-ended, closed-ended, single-choice and multiple-choice. Locations are about a frame of 224 x 224 into
which the film is padded: they stay in `extra` as they are, with `extra.box_frame` `padded_224`, and are no boxes of the
film. The image is `image_path`, `image`, `img_path` or `dicom_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import is_missing, named, object_of, reported, text, under
from verl_cxr.data.questions import question_set
from verl_cxr.data.questions.choices import among, inline_options, kind_of_options
from verl_cxr.data.questions.rows import answer_texts, checked, find_files, rows_of
from verl_cxr.files import RecordError, kind_of
from verl_cxr.question import Kind, Question

__all__ = ["gemex"]

_IMAGE_KEYS = ("image_path", "image", "img_path", "dicom_id")
_SPLITS = {"train": "train", "val": "validate", "valid": "validate", "validate": "validate", "test": "test"}
_LETTER = re.compile(r"^\s*\(?[A-Z][).:]\s+")
_KEPT = ("reason", "visual_regions", "visual_locations")


@question_set("gemex")
def gemex(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, help="Folder of the questions, or one file of them.")],
    films: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of MIMIC-CXR-JPG. Default: the root.")
    ] = None,
) -> Iterator[Question]:
    """Read GEMeX.

    Raises:
        FileNotFoundError: there are no questions.
        RecordError: a file is not what it should be, or `context` is strict and a row is broken.
    """
    place = (films or (root if root.is_dir() else root.parent)).resolve()
    for path in find_files(root, "*.json", "*.json.gz", "*.jsonl", "*.jsonl.gz"):
        words = re.split(r"[^a-z]+", path.name.lower())
        split = next((_SPLITS[word] for word in words if word in _SPLITS), None)
        name = path.name.partition(".")[0]
        for row, item in rows_of(path, context):
            context.funnel.count("questions listed")
            question = reported(
                _question, item, f"gemex-{name}-{row}", split, place, context=context, path=path, row=row
            )
            if question is not None:
                yield question


def _question(item: Any, key: str, split: str | None, films: Path) -> Question:
    item = object_of(item)
    said = (text(item, "question_type") or "").lower()
    asked, options = named(item, "question"), _choices(item)
    if not options and "choice" in said and (told := inline_options(asked)):
        asked, options = told
    answer = item.get("answer")
    if len(options) > 1:
        multiple = said.startswith(("multi", "multiple"))
        kind = Kind.MULTI_LABEL if multiple else kind_of_options(options)
        chosen = list(among(answer, options))
    elif said.startswith("clos") or str(answer).strip().lower() in ("yes", "no"):
        kind, options, chosen = Kind.CLOSED, (), [part.lower().rstrip(".") for part in answer_texts(answer)]
    else:
        kind, options, chosen = Kind.OPEN, (), answer_texts(answer)
    if kind is Kind.CLOSED:
        options, chosen = (), [part.lower() for part in chosen]
    extra = {name: item[name] for name in _KEPT if not is_missing(item.get(name))}
    if "visual_locations" in extra:
        extra["box_frame"] = "padded_224"
    return checked(
        [_image(item, films)],
        id=text(item, "id") or text(item, "question_id") or key,
        question=asked,
        options=list(options),
        answer=chosen,
        kind=kind.value,
        category=[said] if said else [],
        split=split,
        source="GEMeX",
        licence="PhysioNet Credentialed Health Data License 1.5.0",
        extra=extra,
    )


def _choices(item: dict[str, Any]) -> tuple[str, ...]:
    """Texts without letters, of a list, an object from letters, or one text that letters them."""
    value = item.get("choices", item.get("options"))
    if is_missing(value):
        return ()
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, str):
        told = inline_options(value)
        if told is None:
            raise RecordError("choices", f"no options found in it: {value[:60]!r}")
        return told[1]
    if not isinstance(value, list):
        raise RecordError("choices", f"must be a list, an object or text, not {kind_of(value)}")
    return tuple(_LETTER.sub("", str(part)).strip() for part in value if not is_missing(part))


def _image(item: dict[str, Any], films: Path) -> Path:
    key = next((name for name in _IMAGE_KEYS if not is_missing(item.get(name))), None)
    if key is None:
        raise RecordError("image_path", f"missing: should be one of {', '.join(_IMAGE_KEYS)}")
    name = named(item, key).removeprefix("files/")
    path, beside = under(films, f"files/{name}", key), under(films, name, key)
    return beside if beside.is_file() and not path.is_file() else path
