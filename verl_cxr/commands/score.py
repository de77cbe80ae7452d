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
"""``verl-cxr score``: what a reward says about responses, outside of training.

Reads studies (:mod:`verl_cxr.study`) and responses, one ``{"id": study id, "response": text}`` a line, and writes one
row a response in the same order: :meth:`reward_plugins.record.RewardRecord.to_dict`, and ``facts``, the scorer's stamp.
With ``--frame pixel_processed`` a response's row also has ``"processed_size": [width, height]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple, cast

import orjson
import typer
from rich.console import Console
from rich.table import Table

from reward_plugins.cascade import CascadeOptions, Prepared, RewardRecord, prepare
from verl_cxr.anatomy import load_vocabulary
from verl_cxr.commands.shared import stop
from verl_cxr.facts import FactScorer, FactServiceError, make_scorer
from verl_cxr.files import RecordError, kind_of, read_records, replacing
from verl_cxr.study import Study, read_studies
from verl_cxr.trace import TraceFormat, TraceFrame

__all__ = ["score"]

_REWARDS = ("cascade",)


class _Response(NamedTuple):
    row: int
    study_id: str
    text: str
    processed_size: tuple[int, int] | None


def score(
    studies: Annotated[Path, typer.Option(help="Grounded studies (JSONL).", exists=True, dir_okay=False)],
    responses: Annotated[Path, typer.Option(help='Rows {"id", "response"} (JSONL).', exists=True, dir_okay=False)],
    out: Annotated[Path, typer.Option(help="Where to write one row a response (JSONL).", dir_okay=False)],
    facts: Annotated[str, typer.Option(help="Fact scorer: exact, lexicon or precomputed:GRAPHS.jsonl.")],
    reward: Annotated[str, typer.Option(help=f"Reward: {', '.join(_REWARDS)}.")] = "cascade",
    frame: Annotated[
        str, typer.Option(help="Frame of the boxes in the text: relative_1000, pixel_original or pixel_processed.")
    ] = "relative_1000",
    tau: Annotated[float | None, typer.Option(help="IoU above which a finding counts. Default: 0.25.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Another option of the reward, such as verify=both; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Score responses with a reward, outside of training."""
    try:
        if reward not in _REWARDS:
            raise ValueError(f"unknown reward {reward!r}: use one of {', '.join(_REWARDS)}")
        options = _options(tau, option or [])
        load_vocabulary(options.vocabulary)
        trace, scorer = TraceFormat(cast(TraceFrame, frame)), make_scorer(facts)
    except (ValueError, OSError, FactServiceError) as error:
        raise stop(error, code=2) from None
    try:
        rows = list(_read_responses(responses))
        known = _wanted(studies, {row.study_id for row in rows})
        prepared = [_prepare(row, known, options, trace, responses) for row in rows]
        records = _finish(prepared, scorer)
        with replacing(out) as file:
            for row, record in zip(rows, records, strict=True):
                line = record.to_dict(row.study_id) | {"facts": scorer.name}
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    except (RecordError, OSError, FactServiceError) as error:
        raise stop(error, code=1) from None
    Console().print(_summary(records, scorer.name))
    typer.echo(f"wrote {out}")


def _options(tau: float | None, settings: Sequence[str]) -> CascadeOptions:
    texts: dict[str, str] = {} if tau is None else {"tau": str(tau)}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"option {setting!r} is not KEY=VALUE")
        if key in texts:
            raise ValueError(f"option {key!r} is given twice")
        texts[key] = value
    return CascadeOptions.from_text(texts)


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


def _wanted(path: Path, ids: set[str]) -> dict[str, Study]:
    """The studies that have responses; the others are checked and let go."""
    return {study.id: study for study in read_studies(path) if study.id in ids}


def _prepare(
    response: _Response, known: dict[str, Study], options: CascadeOptions, trace: TraceFormat, path: Path
) -> Prepared:
    study = known.get(response.study_id)
    if study is None:
        problem = f"{response.study_id!r} is not the id of a study: give one of the studies' file"
        raise RecordError("id", problem, file=str(path), row=response.row)
    if trace.frame == "pixel_processed" and response.processed_size is None:
        problem = "missing: frame pixel_processed needs [width, height]"
        raise RecordError("processed_size", problem, file=str(path), row=response.row)
    frame = trace.frame_for(study.width, study.height, response.processed_size)
    return prepare(response.text, study, options, frame)


def _finish(prepared: Sequence[Prepared], scorer: FactScorer) -> list[RewardRecord]:
    """All rewards, with one call to the scorer."""
    f1s = iter(scorer.score([pair for item in prepared for pair in item.pairs]))
    return [item.finish([next(f1s) for _ in item.pairs]) for item in prepared]


def _summary(records: Sequence[RewardRecord], facts: str) -> Table:
    table = Table("", "mean", "of", title=f"{len(records)} responses, facts: {facts}")
    measures: dict[str, list[Any]] = {
        "reward": [record.reward for record in records],
        "format": [record.format for record in records],
        "mean IoU": [record.spatial for record in records],
        "gated F1": [record.factual for record in records],
        "report F1": [record.answer for record in records],
        "unverifiable": [record.unverifiable for record in records],
    }
    for name, values in measures.items():
        scored = [float(value) for value in values if value is not None]
        table.add_row(name, f"{fmean(scored):.4f}" if scored else "-", str(len(scored)))
    return table
