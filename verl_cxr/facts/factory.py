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
"""From the name of a fact scorer in a configuration or on a command line to the scorer."""

from __future__ import annotations

from verl_cxr.facts.exact import ExactScorer
from verl_cxr.facts.f1 import Case, Level
from verl_cxr.facts.scorer import FactScorer, GraphScorer

__all__ = ["make_scorer"]

_PRECOMPUTED = "precomputed:"


def make_scorer(spec: str, *, level: Level = "partial", case: Case = "0.1.18") -> FactScorer:
    """The fact scorer that `spec` names.

    Args:
        spec: ``"exact"`` (equal texts), ``"lexicon"`` (fact graphs from a word list, no weights) or
            ``"precomputed:PATH"`` (fact graphs from a file).
        level: which facts F1 counts, see `verl_cxr.facts.f1`; ``"exact"`` has no use for it.
        case: how F1 compares letters, see `verl_cxr.facts.f1`; ``"exact"`` has no use for it.

    Raises:
        ValueError: an unknown name, level or case; or a file whose rows are no fact graphs (`GraphError`).
        FactServiceError: a file that cannot be read.
    """
    if spec == "exact":
        return ExactScorer()
    if spec == "lexicon":
        from verl_cxr.facts.lexicon import annotate

        return GraphScorer(annotate, name="lexicon", level=level, case=case)
    if spec.startswith(_PRECOMPUTED) and len(spec) > len(_PRECOMPUTED):
        from verl_cxr.facts.precomputed import PrecomputedGraphs

        return GraphScorer(PrecomputedGraphs(spec[len(_PRECOMPUTED) :]), name="precomputed", level=level, case=case)
    raise ValueError(f"unknown fact scorer {spec!r}: it is 'exact', 'lexicon' or 'precomputed:PATH'")
