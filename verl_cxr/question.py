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
"""The question: one or more films, what is asked about them, and the answer.

Every question set enters through this record, one JSON object a line (``.jsonl``, ``.jsonl.gz``)::

    {"id": "slake-1034", "images": ["imgs/xmlab102/source.jpg"], "question": "Which lung is abnormal?",
     "options": ["Left", "Right"], "answer": ["Left"], "kind": "two_option", "category": ["Abnormality"],
     "split": "train", "view": null, "source": "SLAKE", "licence": "CC BY 4.0", "extra": {"location": "Lung"}}

``id``, ``question``, ``answer`` and ``kind`` are required; anything else may be absent or null. An image is absolute,
or relative to the file's folder and inside it. ``options`` are texts without letters, and an answer is the text of one
of them; where a set writes its options into the question (``A) ...``), its adapter takes them out. ``extra`` is for
whatever a task needs besides. All checks happen here, once; a :class:`Question` is trusted from then on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, cast

import orjson

from verl_cxr.files import RecordError, distinct, kind_of, read_records, write_lines
from verl_cxr.study import View

__all__ = ["Kind", "Question", "QuestionError", "letter", "read_questions", "write_questions"]

_VIEWS = ("PA", "AP", "LATERAL")
_YES_NO = frozenset({"yes", "no"})
_KEYS = (
    "id", "images", "question", "options", "answer", "kind", "category", "split", "view", "source", "licence", "extra",
)  # fmt: skip


class QuestionError(RecordError):
    """A record that is not a question."""


class Kind(str, Enum):
    """How a question is to be answered."""

    MULTIPLE_CHOICE = "multiple_choice"
    """One of several options."""
    CLOSED = "closed"
    """Yes or no."""
    TWO_OPTION = "two_option"
    """One of two options that are not yes and no."""
    MULTI_LABEL = "multi_label"
    """Any number of labels, of the options if there are any; none of them is an answer, too."""
    OPEN = "open"
    """Free text. Several answers are several wordings, each of them right."""


def letter(index: int) -> str:
    """The letter of an option by its place: A, B, ... Z, AA, AB, ..."""
    text = ""
    while index >= 0:
        text = chr(ord("A") + index % 26) + text
        index = index // 26 - 1
    return text


@dataclass(frozen=True, slots=True)
class Question:
    """One question about one or more films.

    Attributes:
        images: the films, in the order in which the question means them; may be empty.
        question: what is asked, without its options.
        options: texts to choose from; empty if there are none.
        answer: what is right. One of `options` where there are options, `yes` or `no` for a closed question.
        category: what it is about, in the words of its set.
        view: of the films, where all of them have the same.
        extra: JSON values that a task needs besides.
    """

    id: str
    images: tuple[Path, ...]
    question: str
    options: tuple[str, ...]
    answer: tuple[str, ...]
    kind: Kind
    category: tuple[str, ...] = ()
    split: str | None = None
    view: View | None = None
    source: str | None = None
    licence: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the answer among the options; empty if there are no options."""
        return tuple(letter(self.options.index(answer)) for answer in self.answer) if self.options else ()

    def with_options_text(self) -> str:
        """The question with its options, one a line, as a model is asked."""
        lines = [f"{letter(place)}) {option}" for place, option in enumerate(self.options)]
        return "\n".join([self.question, *lines])

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, root: str | os.PathLike[str] | None = None) -> Question:
        """Validate a record.

        Args:
            record: the JSON object of one row.
            root: folder that relative images start from and must not leave; None takes the paths as they are written.

        Raises:
            QuestionError: a field is missing, has the wrong type, or holds an impossible value.
        """
        kind = _kind(record)
        options, answer = _texts(record, "options"), _texts(record, "answer", required=True)
        _check_options(options, kind)
        _check_answer(answer, options, kind)
        view, extra = _text(record, "view"), record.get("extra")
        if view is not None and view not in _VIEWS:
            raise QuestionError("view", f"{view!r} is not a view: use {', '.join(_VIEWS)} or null")
        if extra is not None and not isinstance(extra, dict):
            raise QuestionError("extra", f"must be an object, not {kind_of(extra)}")
        return cls(
            id=_required(record, "id"),
            images=tuple(_image(text, at, root) for at, text in enumerate(_texts(record, "images"))),
            question=_required(record, "question"),
            options=options,
            answer=answer,
            kind=kind,
            category=_texts(record, "category"),
            split=_text(record, "split"),
            view=cast("View | None", view),
            source=_text(record, "source"),
            licence=_text(record, "licence"),
            extra=extra or {},
        )

    def to_dict(self, *, root: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """The record of this question.

        Args:
            root: folder to write images relative to where they lie in it; others keep the path that is held.
        """
        record: dict[str, Any] = {key: getattr(self, key) for key in _KEYS}
        record["images"] = [_written(image, root) for image in self.images]
        record["kind"] = self.kind.value
        for key in ("options", "answer", "category"):
            record[key] = list(record[key])
        record["extra"] = dict(self.extra)
        return record


def read_questions(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> Iterator[Question]:
    """Read questions one by one, in the file's order; blank lines are passed over.

    Args:
        path: a JSONL file, gzipped if its name ends in ``.gz``.
        root: folder that image paths are relative to. Default: the file's folder.

    Raises:
        QuestionError: the first row that is not a question, or repeats an id.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    row_of: dict[str, int] = {}
    for row, record in read_records(path, error=QuestionError):
        try:
            question = Question.from_dict(record, root=path.parent if root is None else root)
        except QuestionError as error:
            raise error.at(path, row) from None
        if (first := row_of.setdefault(question.id, row)) != row:
            raise QuestionError("id", f"{question.id!r} is already the id of row {first}", file=str(path), row=row)
        yield question


def write_questions(path: str | os.PathLike[str], questions: Iterable[Question]) -> int:
    """Write questions as JSONL (gzipped if the name ends in ``.gz``), whole or not at all.

    Images in the file's folder are written relative to it, others by their absolute path.

    Returns:
        The number of rows written.

    Raises:
        QuestionError: an id repeats, or ``extra`` holds what JSON cannot.
    """
    root = Path(path).parent
    return write_lines(path, (_line(question, root) for question in distinct(questions, error=QuestionError)))


def _line(question: Question, root: Path) -> bytes:
    try:
        return orjson.dumps(question.to_dict(root=root), option=orjson.OPT_APPEND_NEWLINE)
    except TypeError as error:
        raise QuestionError("", f"question {question.id!r} cannot be written as JSON: {error}") from None


def _text(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise QuestionError(key, f"must be text or null, not {kind_of(value)}")
    return value


def _required(record: Mapping[str, Any], key: str) -> str:
    value = _text(record, key)
    if value is None or not value.strip():
        raise QuestionError(key, "missing: give text" if value is None else "must not be empty")
    return value


def _texts(record: Mapping[str, Any], key: str, *, required: bool = False) -> tuple[str, ...]:
    values = record.get(key)
    if values is None:
        if required:
            raise QuestionError(key, "missing: give a list of texts")
        return ()
    if not isinstance(values, list):
        raise QuestionError(key, f"must be a list of texts, not {kind_of(values)}")
    for at, value in enumerate(values):
        if not isinstance(value, str):
            raise QuestionError(f"{key}[{at}]", f"must be text, not {kind_of(value)}")
        if not value.strip():
            raise QuestionError(f"{key}[{at}]", "must not be empty")
    return tuple(values)


def _kind(record: Mapping[str, Any]) -> Kind:
    try:
        return Kind(_required(record, "kind"))
    except ValueError as error:
        if isinstance(error, QuestionError):
            raise
        kinds = ", ".join(kind.value for kind in Kind)
        raise QuestionError("kind", f"{record['kind']!r} is not a kind: use one of {kinds}") from None


def _check_options(options: tuple[str, ...], kind: Kind) -> None:
    for at, option in enumerate(options):
        if option in options[:at]:
            raise QuestionError(f"options[{at}]", f"{option[:80]!r} repeats: an answer could not tell the two apart")
    if kind is Kind.OPEN and options:
        raise QuestionError("options", "an open question has none: give it another kind")
    if kind is Kind.MULTIPLE_CHOICE and len(options) < 2:
        raise QuestionError("options", f"a multiple-choice question has at least 2, not {len(options)}")
    if kind is Kind.TWO_OPTION and len(options) != 2:
        raise QuestionError("options", f"a two-option question has 2, not {len(options)}")


def _check_answer(answer: tuple[str, ...], options: tuple[str, ...], kind: Kind) -> None:
    if not answer and kind is not Kind.MULTI_LABEL:
        raise QuestionError("answer", "must not be empty: only a question of kind multi_label may have none")
    if len(answer) > 1 and kind in (Kind.CLOSED, Kind.TWO_OPTION):
        raise QuestionError("answer", f"a {kind.value} question has one, not {len(answer)}")
    for at, text in enumerate(answer):
        if options and text not in options:
            raise QuestionError(f"answer[{at}]", f"{text[:80]!r} is none of the options: give the text of one of them")
        if kind is Kind.CLOSED and text.lower() not in _YES_NO:
            raise QuestionError(f"answer[{at}]", f"a closed question is answered by yes or no, not {text[:80]!r}")
        if text in answer[:at]:
            raise QuestionError(f"answer[{at}]", f"{text[:80]!r} repeats")


def _image(text: str, at: int, root: str | os.PathLike[str] | None) -> Path:
    if root is None or os.path.isabs(text):
        return Path(text)
    # abspath instead of resolve: image folders are often links to another disk, and a link is not an escape.
    folder = os.path.abspath(root)
    path = Path(os.path.abspath(os.path.join(folder, text)))
    if not path.is_relative_to(folder):
        raise QuestionError(f"images[{at}]", f"{text!r} lies outside {folder}: give a path inside that folder")
    return path


def _written(image: Path, root: str | os.PathLike[str] | None) -> str:
    if root is None:
        return image.as_posix()
    path, folder = Path(os.path.abspath(image)), os.path.abspath(root)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()
