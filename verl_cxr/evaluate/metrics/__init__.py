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
"""Report metrics, by name. A metric that cannot be computed here is `Skipped` with its reason, and never left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verl_cxr.evaluate.metrics.bertscore import BertScore
from verl_cxr.evaluate.metrics.bleu import Bleu
from verl_cxr.evaluate.metrics.facts import Facts, NoFact
from verl_cxr.evaluate.metrics.meteor import make_meteor
from verl_cxr.evaluate.metrics.rouge import RougeL
from verl_cxr.evaluate.metrics.scores import Metric, Pair, Scores, UnavailableError, mean_of

__all__ = ["METRICS", "Metric", "MetricOptions", "Pair", "Scores", "Skipped", "UnavailableError", "compute", "mean_of"]


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """What metrics are told.

    Attributes:
        facts: the fact scorer, see `verl_cxr.facts.make_scorer`; None skips ``facts``.
        no_fact: see `verl_cxr.evaluate.metrics.facts.NoFact`.
        bertscore: folder of distilbert-base-uncased; None: the hub's cache.
    """

    facts: str | None = None
    no_fact: NoFact = "0"
    bertscore: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A metric that could not be computed, and why."""

    name: str
    reason: str


def _facts(options: MetricOptions) -> Metric:
    if options.facts is None:
        raise UnavailableError("no fact scorer was named: --facts radgraph-xl, lexicon or precomputed:G.jsonl")
    return Facts(options.facts, no_fact=options.no_fact)


def _chexbert(options: MetricOptions) -> Metric:
    raise UnavailableError(
        "CheXbert's weights are not on this machine; where they can be fetched, --official computes it"
    )


METRICS: Mapping[str, Callable[[MetricOptions], Metric]] = {
    "bleu2": lambda options: Bleu(2),
    "bleu4": lambda options: Bleu(4),
    "rougeL": lambda options: RougeL(),
    "meteor": lambda options: make_meteor(),
    "bertscore": lambda options: BertScore(options.bertscore),
    "facts": _facts,
    "chexbert": _chexbert,
}


def compute(
    names: Sequence[str], pairs: Sequence[Pair], options: MetricOptions | None = None
) -> list[Scores | Skipped]:
    """All metrics in `names` on the same pairs, in that order; one name may give several metrics.

    Raises:
        ValueError: no such metric or fact scorer, or no pair.
    """
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ValueError(f"unknown metric {unknown[0]!r}: use {', '.join(METRICS)}")
    if not pairs:
        raise ValueError("there is no report to score")
    options = options or MetricOptions()
    found: list[Scores | Skipped] = []
    for name in names:
        try:
            scores = METRICS[name](options)(pairs)
        except UnavailableError as error:
            found.append(Skipped(name, str(error)))
            continue
        found += (
            Skipped(score.name, "undefined for every report") if np.isnan(score.value) else score for score in scores
        )
    return found
