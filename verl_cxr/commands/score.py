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

``--reward cascade`` reads studies (:mod:`verl_cxr.study`) and responses, one ``{"id": study id, "response": text}`` a
line; with ``--frame pixel_processed`` a row also has ``"processed_size": [width, height]``. ``--reward accuracy-gated``
reads questions (:mod:`verl_cxr.question`) and trajectories (:mod:`verl_cxr.trajectory`). Either writes one row a
response, in the same order: the reward's record and, for the cascade, ``facts``, the scorer's stamp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import orjson
import typer
from rich.console import Console
from rich.table import Table

from verl_cxr.commands.score_accuracy import AccuracyScoring
from verl_cxr.commands.score_cascade import CascadeScoring
from verl_cxr.commands.shared import key_values, stop
from verl_cxr.facts import FactServiceError
from verl_cxr.files import RecordError, replacing

__all__ = ["score"]

_NEEDS = {"cascade": ("studies", "facts"), "accuracy-gated": ("questions",)}
_TAKES = {"cascade": ("studies", "facts", "frame", "tau"), "accuracy-gated": ("questions",)}


class _Scoring(Protocol):
    def rows(self, responses: Path) -> list[dict[str, Any]]: ...

    def summary(self, rows: Sequence[Mapping[str, Any]]) -> Table: ...


def score(
    responses: Annotated[
        Path, typer.Option(help='Rows {"id", "response"}, or trajectories (JSONL).', exists=True, dir_okay=False)
    ],
    out: Annotated[Path, typer.Option(help="Where to write one row a response (JSONL).", dir_okay=False)],
    reward: Annotated[str, typer.Option(help=f"Reward: {', '.join(_NEEDS)}.")] = "cascade",
    studies: Annotated[
        Path | None, typer.Option(help="Cascade: grounded studies (JSONL).", exists=True, dir_okay=False)
    ] = None,
    facts: Annotated[
        str | None, typer.Option(help="Cascade: fact scorer, exact, lexicon or precomputed:GRAPHS.jsonl.")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="Accuracy-gated: questions (JSONL).", exists=True, dir_okay=False)
    ] = None,
    frame: Annotated[
        str | None,
        typer.Option(
            help="Cascade: frame of the boxes in the text, relative_1000 (default), pixel_original or pixel_processed."
        ),
    ] = None,
    tau: Annotated[float | None, typer.Option(help="Cascade: IoU above which a finding counts. Default: 0.25.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Another option of the reward, such as verify=both; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Score responses with a reward, outside of training."""
    given = {"studies": studies, "facts": facts, "questions": questions, "frame": frame, "tau": tau}
    try:
        _check(reward, [name for name, value in given.items() if value is not None])
        settings = key_values([*([] if tau is None else [f"tau={tau}"]), *(option or [])])
        scoring: _Scoring
        if studies is not None and facts is not None:
            scoring = CascadeScoring(studies, facts, frame, settings)
        else:
            assert questions is not None
            scoring = AccuracyScoring(questions, settings)
    except (ValueError, OSError, FactServiceError) as error:
        raise stop(error, code=2) from None
    try:
        rows = scoring.rows(responses)
        with replacing(out) as file:
            for row in rows:
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    except (RecordError, OSError, FactServiceError) as error:
        raise stop(error, code=1) from None
    Console().print(scoring.summary(rows))
    typer.echo(f"wrote {out}")


def _check(reward: str, given: Sequence[str]) -> None:
    if reward not in _NEEDS:
        raise ValueError(f"unknown reward {reward!r}: use one of {', '.join(_NEEDS)}")
    for name in _NEEDS[reward]:
        if name not in given:
            raise ValueError(f"reward {reward!r} needs --{name}")
    for name in given:
        if name not in _TAKES[reward]:
            raise ValueError(f"reward {reward!r} has no use for --{name}")
