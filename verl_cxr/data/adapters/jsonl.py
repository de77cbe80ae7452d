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
"""Grounded-study JSONL, the format in which anyone's own data enters (see `verl_cxr.study` for the record).

A folder stands for every `*.jsonl` and `*.jsonl.gz` directly in it, in the order of their names::

    ROOT/studies.jsonl      {"id": "gb_000", "image": "images/gb_000.jpg", "width": 790, "height": 631, ...}
    ROOT/images/gb_000.jpg
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.files import RecordError
from verl_cxr.study import Study, StudyError, read_studies

__all__ = ["jsonl"]


@adapter("jsonl")
def jsonl(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, help="A JSONL file of grounded studies, or a folder of them.")],
) -> Iterator[Study]:
    """Read grounded studies, your own data included.

    Raises:
        RecordError: the build is strict, and a row is not a study, or an id occurs in two files.
        FileNotFoundError: the folder holds no such file.
    """
    seen: dict[str, Path] = {}

    def report(error: RecordError) -> None:
        context.problem(error.file or root, error.row, error.field, error.problem)

    for path in _files(root):
        for study in read_studies(path, broken=report):
            if study.id in seen:
                report(StudyError("id", f"{study.id!r} also occurs in {seen[study.id]}", file=str(path)))
                continue
            seen[study.id] = path
            yield study


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    files = sorted(path for path in root.iterdir() if path.name.endswith((".jsonl", ".jsonl.gz")))
    if not files:
        raise FileNotFoundError(f"{root} holds no *.jsonl or *.jsonl.gz file")
    return files
