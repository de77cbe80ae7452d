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
"""``verl-cxr score --reward cascade``: region traces about grounded studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from rich.table import Table

from reward_plugins.cascade import CascadeOptions, Prepared, prepare
from verl_cxr.anatomy import load_vocabulary
from verl_cxr.commands.shared import means
from verl_cxr.facts import make_scorer
from verl_cxr.files import RecordError, kind_of, read_records
from verl_cxr.study import Study, read_studies
from verl_cxr.trace import TraceFormat, TraceFrame

__all__ = ["CascadeScoring"]

_SUMMARY = {
    "reward": "reward",
    "format": "format",
    "mean IoU": "spatial",
    "gated F1": "factual",
    "report F1": "answer",
    "unverifiable": "unverifiable",
}


class _Response(NamedTuple):
    row: int
    study_id: str
    text: str
    processed_size: tuple[int, int] | None


class CascadeScoring:
    """The cascade over files.

    Args:
        studies: JSONL of grounded studies.
        facts: fact scorer, see :func:`verl_cxr.facts.make_scorer`.
        frame: see :class:`~verl_cxr.trace.TraceFormat`; None: its default.
        settings: options as texts.

    Raises:
        ValueError: a wrong option, scorer or frame.
        FactServiceError: the scorer cannot be made.
    """

    def __init__(self, studies: Path, facts: str, frame: str | None, settings: Mapping[str, str]) -> None:
        self.studies = studies
        self.options = CascadeOptions.from_text(settings)
        load_vocabulary(self.options.vocabulary)
        self.trace = TraceFormat() if frame is None else TraceFormat(cast(TraceFrame, frame))
        self.facts = make_scorer(facts)

    def rows(self, responses: Path) -> list[dict[str, Any]]:
        """One row a response, in order; all findings reach the scorer in one call.

        Raises:
            RecordError: the first study or response that is none.
            FactServiceError: the scorer fails.
        """
        read = list(_read_responses(responses))
        wanted = {response.study_id for response in read}
        known = {study.id: study for study in read_studies(self.studies) if study.id in wanted}
        prepared = [self._prepare(response, known, responses) for response in read]
        f1s = iter(self.facts.score([pair for item in prepared for pair in item.pairs]))
        records = [item.finish([next(f1s) for _ in item.pairs]) for item in prepared]
        stamp = {"facts": self.facts.name}
        return [record.to_dict(response.study_id) | stamp for response, record in zip(read, records, strict=True)]

    def summary(self, rows: Sequence[Mapping[str, Any]]) -> Table:
        """Means over responses."""
        return means(rows, _SUMMARY, title=f"{len(rows)} responses, facts: {self.facts.name}")

    def _prepare(self, response: _Response, known: Mapping[str, Study], path: Path) -> Prepared:
        study = known.get(response.study_id)
        if study is None:
            problem = f"{response.study_id!r} is not the id of a study: give one of the studies' file"
            raise RecordError("id", problem, file=str(path), row=response.row)
        if self.trace.frame == "pixel_processed" and response.processed_size is None:
            problem = "missing: frame pixel_processed needs [width, height]"
            raise RecordError("processed_size", problem, file=str(path), row=response.row)
        frame = self.trace.frame_for(study.width, study.height, response.processed_size)
        return prepare(response.text, study, self.options, frame)


def _read_responses(path: Path) -> Iterator[_Response]:
    for row, record in read_records(path):
        for field in ("id", "response"):
            if not isinstance(record.get(field), str):
                problem = f"must be text, not {kind_of(record[field])}" if field in record else "missing: give text"
                raise RecordError(field, problem, file=str(path), row=row)
        size = record.get("processed_size")
        if size is not None:
            if not (isinstance(size, list) and len(size) == 2 and all(type(n) is int and n > 0 for n in size)):
                problem = "must be [width, height] in whole pixels"
                raise RecordError("processed_size", problem, file=str(path), row=row)
            size = (size[0], size[1])
        yield _Response(row, record["id"], record["response"], size)
