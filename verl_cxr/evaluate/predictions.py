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
"""Predicted reports, paired with the reports of the studies that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from verl_cxr.evaluate.metrics.scores import Pair
from verl_cxr.files import RecordError, kind_of, read_records
from verl_cxr.study import Study

__all__ = ["Predictions", "Reference", "References", "read_predictions", "references", "scored_text"]

Reference = Literal["both", "findings", "impression"]

# the last complete element: nothing that opens or closes an answer stands inside it
_ANSWER = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)


def scored_text(response: str) -> str | None:
    """The report in a response: what is inside its last complete ``<answer>``; None if it has none.

    More lenient than the reward's format gate, which is `verl_cxr.trace.parse`: metrics ask what was reported, not
    whether the form was kept.
    """
    answers: list[str] = _ANSWER.findall(response)
    return answers[-1].strip() if answers else None


@dataclass(frozen=True, slots=True)
class References:
    """The reports to compare with, by study id in the order of the studies, and the studies that have none."""

    texts: dict[str, str]
    without: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Predictions:
    """The reports of one file, in the order of the references; `answers` of the responses had an ``<answer>``."""

    path: Path
    texts: tuple[str, ...]
    answers: int

    def pairs(self, references: References) -> list[Pair]:
        """(predicted, reference) for each study."""
        return list(zip(self.texts, references.texts.values(), strict=True))


def references(studies: Iterable[Study], section: Reference = "both", *, split: str | None = None) -> References:
    """The reports of the studies.

    Args:
        section: findings and impression joined by a space, or one of them.
        split: only the studies of this split.

    Raises:
        ValueError: no such section, or no study has it.
    """
    if section not in get_args(Reference):
        raise ValueError(f"unknown section {section!r}: use {', '.join(get_args(Reference))}")
    texts, without = {}, []
    for study in studies:
        if split is not None and study.split != split:
            continue
        text = study.report.text if section == "both" else getattr(study.report, section) or ""
        if text.strip():
            texts[study.id] = text
        else:
            without.append(study.id)
    if not texts:
        which = "" if split is None else f" of the split {split!r}"
        raise ValueError(f"no study{which} has a report to compare with ({section})")
    return References(texts, tuple(without))


def read_predictions(path: Path, known: References) -> Predictions:
    """Read rows ``{"id", "response"}``, one for each reference; rows of studies without a reference are passed over.

    Raises:
        RecordError: a row is malformed, repeats an id or is about no study; or a study has no row.
    """
    found: dict[str, str] = {}
    row_of: dict[str, int] = {}
    answers = 0
    without = frozenset(known.without)
    for row, record in read_records(path):
        for field in ("id", "response"):
            if not isinstance(record.get(field), str):
                problem = f"must be text, not {kind_of(record[field])}" if field in record else "missing: give text"
                raise RecordError(field, problem, file=str(path), row=row)
        study_id = record["id"]
        if study_id in row_of:
            problem = f"{study_id!r} is already the id of row {row_of[study_id]}: give each seed a file of its own"
            raise RecordError("id", problem, file=str(path), row=row)
        row_of[study_id] = row
        if study_id in without:
            continue
        if study_id not in known.texts:
            raise RecordError("id", f"{study_id!r} is not the id of a study that is evaluated", file=str(path), row=row)
        answer = scored_text(record["response"])
        answers += answer is not None
        found[study_id] = record["response"] if answer is None else answer
    missing = [study_id for study_id in known.texts if study_id not in found]
    if missing:
        problem = f"{len(missing)} of {len(known.texts)} studies have no prediction: {_some(missing)}"
        raise RecordError("id", problem, file=str(path))
    return Predictions(path, tuple(found[study_id] for study_id in known.texts), answers)


def _some(ids: Sequence[str], most: int = 5) -> str:
    return ", ".join(map(repr, ids[:most])) + (", ..." if len(ids) > most else "")
