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
"""ChestAgentBench (Fallahpour et al. 2025): 2,500 six-choice questions on 675 cases of Eurorad.

On disk, as it is published::

    ROOT/metadata.jsonl
    ROOT/figures/17582/figure_1.jpg

One row, abridged; options stand in the question, the answer is a letter, categories are joined by commas::

    {"question_id": "17582_8174926", "full_question_id": "17582_8174926", "case_id": "17582",
     "question": "What is shown? A) Edema B) Effusion C) Collapse D) Mass E) Fracture F) None", "answer": "B",
     "images": ["figures/17582/figure_1.jpg"], "image_source_urls": [["https://..."]], "explanation": "...",
     "categories": "Detection,Diagnosis", "sections": "...", "type": "multiple_choice"}

Rows come in no fixed order and are sorted by question_id. One has no image and is kept: the benchmark's accuracy is out
of 2,500.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import is_missing, listed, named, reported, text, under
from verl_cxr.data.questions import question_set
from verl_cxr.data.questions.choices import among, inline_options, kind_of_options
from verl_cxr.data.questions.rows import checked, find_files, rows_of
from verl_cxr.files import RecordError
from verl_cxr.question import Question

__all__ = ["chestagentbench"]


@question_set("chestagentbench")
def chestagentbench(
    context: BuildContext,
    *,
    root: Annotated[Path, typer.Option(exists=True, help="Folder of ChestAgentBench, or metadata.jsonl.")],
) -> Iterator[Question]:
    """Read ChestAgentBench.

    Raises:
        FileNotFoundError: there is no metadata.jsonl.
        RecordError: the file is not what it should be, or `context` is strict and a row is broken.
    """
    path = find_files(root, "metadata.jsonl", "metadata.jsonl.gz")[0]
    folder = path.parent.resolve()
    questions: list[Question] = []
    for row, item in rows_of(path, context):
        context.funnel.count("questions listed")
        question = reported(_question, item, folder, context=context, path=path, row=row)
        if question is not None:
            questions.append(question)
    yield from sorted(questions, key=lambda question: question.id)


def _question(item: dict[str, Any], folder: Path) -> Question:
    told = inline_options(named(item, "question"))
    if told is None:
        raise RecordError("question", "no options found in it: should hold A) ... B) ...")
    asked, options = told
    images = [part for part in listed(item, "images") if not is_missing(part)]
    categories = text(item, "categories") or ""
    extra = {key: item[key] for key in ("case_id", "full_question_id", "explanation", "type") if item.get(key)}
    return checked(
        [under(folder, str(name), "images") for name in images],
        id=named(item, "question_id"),
        question=asked,
        options=list(options),
        answer=list(among(item.get("answer"), options)),
        kind=kind_of_options(options).value,
        category=[part.strip() for part in categories.split(",") if part.strip()],
        split="test",
        source="ChestAgentBench",
        extra=extra,
    )
