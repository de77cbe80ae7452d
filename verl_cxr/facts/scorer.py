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
"""What a fact scorer is, and the one that compares fact graphs whichever way they were made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from verl_cxr.facts.f1 import CASES, LEVELS, Case, Level, graph_f1
from verl_cxr.facts.graph import FactGraph

__all__ = ["Annotate", "FactScorer", "FactServiceError", "GraphScorer"]

Annotate = Callable[[Sequence[str]], list[FactGraph]]
"""Texts in, one graph a text out, in order. Raises `FactServiceError` when it cannot."""


class FactServiceError(RuntimeError):
    """The service that reads facts failed, not the text: a run must stop here, never go on with a score of 0."""


class FactScorer(Protocol):
    """Scores how far the facts of a predicted text agree with those of a reference."""

    @property
    def name(self) -> str:
        """The stamp on every result, such as ``"exact"`` or ``"lexicon/partial"``."""
        ...

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float | None]:
        """One score in [0, 1] for each ``(predicted, reference)`` pair, in order.

        None means undefined: neither text carries a fact.

        Raises:
            FactServiceError: the service failed.
        """
        ...


class GraphScorer:
    """F1 between the fact graphs that `annotate` reads from the two texts.

    Each distinct text of a call is annotated once and each distinct pair compared once. A blank text has no entity and
    never reaches `annotate`.

    Args:
        annotate: the reader; called with distinct texts that are not blank.
        name: what made the graphs, such as ``"lexicon"``; the stamp is ``name/level``, with ``/lower`` for that case.
        level: see `verl_cxr.facts.f1`.
        case: see `verl_cxr.facts.f1`.
    """

    def __init__(self, annotate: Annotate, *, name: str, level: Level = "partial", case: Case = "0.1.18") -> None:
        if level not in LEVELS:
            raise ValueError(f"level is one of {', '.join(LEVELS)}, not {level!r}")
        if case not in CASES:
            raise ValueError(f"case is one of {', '.join(CASES)}, not {case!r}")
        self.name = f"{name}/{level}" + ("/lower" if case == "lower" else "")
        self.annotate = annotate
        self._level = level
        self._case = case

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float | None]:
        """See `FactScorer.score`."""
        distinct = dict.fromkeys(pairs)
        texts = list(dict.fromkeys(text for pair in distinct for text in pair if text.strip()))
        graphs = self.annotate(texts) if texts else []
        if len(graphs) != len(texts):
            raise FactServiceError(f"{self.name}: {len(graphs)} graphs came back for {len(texts)} texts")
        by_text = dict(zip(texts, graphs, strict=True))
        blank = FactGraph("")
        scores = {
            (predicted, reference): graph_f1(
                by_text.get(predicted, blank), by_text.get(reference, blank), level=self._level, case=self._case
            )
            for predicted, reference in distinct
        }
        return [scores[pair] for pair in pairs]
