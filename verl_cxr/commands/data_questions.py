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
"""``verl-cxr data questions``: a question set as JSON lines of question records, with an account of what was dropped.

There is one sub-command a set (:mod:`verl_cxr.data.questions`), with the set's own options and those of all.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from verl_cxr.commands.shared import counting, stop, with_options
from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.questions import QuestionSet, load_question_sets
from verl_cxr.files import RecordError, replacing
from verl_cxr.film import FilmError, film_head
from verl_cxr.question import Question, write_questions

__all__ = ["questions_app"]

questions_app = typer.Typer(no_args_is_help=True)

_IMAGES = ("report", "drop", "ignore")
_MISSING, _WITHOUT = "questions with an unusable image", "questions without image"


def _shared(
    *,
    out: Annotated[Path, typer.Option(dir_okay=False, help="File to write: questions.jsonl, or .jsonl.gz.")],
    missing_images: Annotated[
        str, typer.Option(help="A question whose image cannot be read: report it, drop it, or ignore that.")
    ] = "report",
    funnel: Annotated[Path | None, typer.Option(dir_okay=False, help="Write the funnel as JSON too.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first broken record or image.")] = False,
) -> None:
    """The options that every set has; never called, read for its signature."""


def _run(chosen: QuestionSet, options: dict[str, Any]) -> None:
    shared = {name: options.pop(name) for name in inspect.signature(_shared).parameters}
    out, images = shared["out"], shared["missing_images"]
    if images not in _IMAGES:
        error = ValueError(f"unknown --missing-images {images!r}: use one of {', '.join(_IMAGES)}")
        raise stop(error, code=2)
    context = BuildContext(out=out.resolve().parent, seed=0, strict=shared["strict"])
    written: Counter[tuple[str, str]] = Counter()
    console = Console()
    try:
        with counting(console) as bars:
            task = bars.add_task(f"{chosen.name} questions", total=None)
            found = _usable(chosen.questions(context, **options), context, images, written)
            write_questions(out, _advancing(found, lambda: bars.update(task, advance=1)))
    except EmptySetError as error:
        console.print(_table(context, written))
        raise stop(error, code=1) from None
    except (RecordError, OSError, ValueError, ImportError) as error:
        raise stop(error, code=1) from None
    if shared["funnel"] is not None:
        with replacing(shared["funnel"]) as file:
            file.write(orjson.dumps(_account(context, written), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    console.print(_table(context, written))
    for problem in context.funnel.to_dict()["problems"]:
        typer.echo(
            f"problem: {problem['problem']} ({problem['count']}), for instance {problem['examples'][0]}", err=True
        )
    typer.echo(f"wrote {out}")


class EmptySetError(ValueError):
    """No question came out."""


def _advancing(questions: Iterator[Question], step: Callable[[], None]) -> Iterator[Question]:
    """The questions, of which there must be one: a file in place is not replaced by an empty one."""
    empty = True
    for question in questions:
        empty = False
        step()
        yield question
    if empty:
        raise EmptySetError("no question came out: the funnel says why")


def _usable(
    questions: Iterator[Question], context: BuildContext, images: str, written: Counter[tuple[str, str]]
) -> Iterator[Question]:
    """The questions with distinct ids, and with images if these must be there."""
    seen: set[str] = set()
    looked_at: dict[Path, str | None] = {}
    for question in questions:
        if question.id in seen:
            context.funnel.drop("id occurs before")
            context.problem(question.source or "", None, "id", f"question listed twice: {question.id}")
            continue
        seen.add(question.id)
        if not question.images:
            context.funnel.count(_WITHOUT)
        if images != "ignore" and (reason := _fault(question, looked_at, context)):
            if images == "drop":
                context.funnel.drop(reason)
                continue
            context.funnel.count(_MISSING)
        written[question.split or "no split", question.kind.value] += 1
        yield question


def _fault(question: Question, looked_at: dict[Path, str | None], context: BuildContext) -> str | None:
    """Why an image of a question cannot be used; None if all can."""
    fault = None
    for image in question.images:
        if image not in looked_at:
            try:
                film_head(image)
                looked_at[image] = None
            except FilmError as error:
                looked_at[image] = error.reason
                context.problem(image, None, "images", f"{error.reason}: {question.id}")
        fault = fault or looked_at[image]
    return fault


def _account(context: BuildContext, written: Counter[tuple[str, str]]) -> dict[str, Any]:
    funnel = context.funnel.to_dict()
    return {
        "lines": {line["line"]: line["count"] for line in funnel["lines"]},
        "dropped": {drop["reason"]: drop["studies"] for drop in funnel["dropped"]},
        "problems": funnel["problems"],
        "written": [{"split": split, "kind": kind, "questions": n} for (split, kind), n in sorted(written.items())],
    }


def _table(context: BuildContext, written: Counter[tuple[str, str]]) -> Table:
    account = _account(context, written)
    table = Table("", "count", title="Funnel")
    for line, count in account["lines"].items():
        table.add_row(line, f"{count:,}")
    for reason, count in account["dropped"].items():
        table.add_row(f"dropped: {reason}", f"-{count:,}")
    for problem in account["problems"]:
        table.add_row(f"problem: {problem['problem']}", f"{problem['count']:,}")
    for row in account["written"]:
        table.add_row(f"written, {row['split']}, {row['kind']}", f"{row['questions']:,}")
    return table


for _chosen in load_question_sets().values():
    questions_app.command(_chosen.name, help=_chosen.summary)(
        with_options(partial(_run, _chosen), _chosen.questions, _shared)
    )
