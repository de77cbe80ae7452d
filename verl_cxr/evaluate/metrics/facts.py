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
"""F1 of the facts of two reports, at every level, by the scorer that is named; only RadGraph's is RadGraph-F1."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal, cast, get_args

from verl_cxr.evaluate.metrics.scores import Pair, Scores, UnavailableError, mean_of
from verl_cxr.facts import LEVELS, Annotate, FactGraph, FactScorer, FactServiceError, GraphScorer, Level, make_scorer

__all__ = ["Facts", "NoFact"]

NoFact = Literal["0", "1", "skip"]
"""What a pair in which neither text has a fact is worth; ``"0"`` as in the radgraph package, ``"skip"``: undefined."""


class Facts:
    """The F1 of a fact scorer, the mean over reports.

    Args:
        spec: see `verl_cxr.facts.make_scorer`.
        no_fact: see `NoFact`.

    Raises:
        UnavailableError: the scorer's weights or file are not there.
        ValueError: no such scorer, or `no_fact` is none of its values.
    """

    def __init__(self, spec: str, *, no_fact: NoFact = "0") -> None:
        if no_fact not in get_args(NoFact):
            raise ValueError(f"a pair without facts counts {', '.join(get_args(NoFact))}, not {no_fact!r}")
        try:
            self._scorers = _at_every_level(make_scorer(spec))
        except FactServiceError as error:
            raise UnavailableError(str(error)) from None
        self._undefined = None if no_fact == "skip" else float(no_fact)

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores]:
        """See `verl_cxr.evaluate.metrics.scores.Metric`."""
        found = []
        for name, scorer in self._scorers.items():
            try:
                values = scorer.score(pairs)
            except FactServiceError as error:
                raise UnavailableError(str(error)) from None
            samples = [self._undefined if value is None else value for value in values]
            found.append(mean_of(name, _label(scorer.name), f"{scorer.name}, verl-cxr {version('verl-cxr')}", samples))
        return found


def _at_every_level(scorer: FactScorer) -> dict[str, FactScorer]:
    """Scorers by the name of their metric; all levels of a graph scorer share one reading of the texts."""
    if not isinstance(scorer, GraphScorer):
        return {"facts": scorer}
    reader = scorer.name.partition("/")[0]
    annotate = _remembering(scorer.annotate)
    levels = cast("tuple[Level, ...]", LEVELS)
    return {f"facts_{level}": GraphScorer(annotate, name=reader, level=level) for level in levels}


def _remembering(annotate: Annotate) -> Annotate:
    known: dict[str, FactGraph] = {}

    def remember(texts: Sequence[str]) -> list[FactGraph]:
        new = [text for text in texts if text not in known]
        if new:
            known.update(zip(new, annotate(new), strict=True))
        return [known[text] for text in texts]

    return remember


def _label(stamp: str) -> str:
    reader, _, level = stamp.partition("/")
    name = "RadGraph-F1" if reader in ("radgraph-xl", "radgraph") else f"{reader} F1"
    return f"{name} ({level})" if level else name
