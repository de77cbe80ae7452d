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
"""What the readers of question sets share: rows of JSON in any wrapping, and questions checked as they are made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import is_missing, reporter
from verl_cxr.data.json_items import json_items
from verl_cxr.files import read_records
from verl_cxr.question import Question

__all__ = ["answer_texts", "checked", "find_files", "rows_of"]


def find_files(root: Path, *patterns: str) -> list[Path]:
    """The root itself if it is a file, else the files in it that match the first pattern that matches any, by name."""
    if root.is_file():
        return [root]
    for pattern in patterns:
        if found := sorted(path for path in root.glob(pattern) if path.is_file()):
            return found
    raise FileNotFoundError(f"{root} holds none of {', '.join(patterns)}")


def rows_of(path: Path, context: BuildContext) -> Iterator[tuple[int, Any]]:
    """The rows of a JSON array, or of JSON lines (`.jsonl`), each with its number; both may be gzipped.

    Raises:
        RecordError: the file holds something else, or `context` is strict and it is damaged.
        FileNotFoundError: no such file.
    """
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        yield from read_records(path, broken=reporter(context, path))
    else:
        yield from json_items(path, context)


def answer_texts(value: object) -> list[str]:
    """An answer as texts: none, one, or those of a list; numbers are written out."""
    parts = value if isinstance(value, list) else [value]
    return [" ".join(str(part).split()) for part in parts if not is_missing(part)]


def checked(images: list[Path], **fields: Any) -> Question:
    """A question whose fields are checked.

    Raises:
        QuestionError: a field that cannot be.
    """
    record = {"images": [str(image) for image in images], **fields}
    return Question.from_dict(record)
