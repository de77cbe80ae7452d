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

import sys
from typing import Any

from verl_cxr.facts.exact import ExactScorer
from verl_cxr.facts.f1 import Case, Level
from verl_cxr.facts.scorer import Annotate, FactScorer, GraphScorer

__all__ = ["make_scorer"]

_PRECOMPUTED = "precomputed:"
_RADGRAPH = ("radgraph-xl", "radgraph", "modern-radgraph-xl")  # the last is known, to be refused with its reason


def make_scorer(
    spec: str, *, level: Level = "partial", case: Case = "0.1.18", service: bool | None = None, **options: Any
) -> FactScorer:
    """The fact scorer that `spec` names.

    Args:
        spec: ``"exact"`` (equal texts), ``"lexicon"`` (fact graphs from a word list, no weights),
            ``"precomputed:PATH"`` (fact graphs from a file), ``"radgraph-xl"`` or ``"radgraph"`` (fact graphs from
            RadGraph; ``"radgraph-xl:FOLDER"`` is short for ``weights=FOLDER``).
        level: which facts F1 counts, see `verl_cxr.facts.f1`; ``"exact"`` has no use for it.
        case: how F1 compares letters, see `verl_cxr.facts.f1`; ``"exact"`` has no use for it.
        service: RadGraph only: read in this node's service, which needs a Ray session, or in this process. None: in the
            service where there is a Ray session.
        options: RadGraph only: fields of `verl_cxr.facts.radgraph_options.RadGraphOptions`.

    Raises:
        ValueError: an unknown name, option, level or case; or a file whose rows are no fact graphs (`GraphError`).
        FactServiceError: a file that cannot be read, or weights that are missing.
    """
    model_type, _, weights = spec.partition(":")
    if model_type in _RADGRAPH:
        if weights:
            options = {"weights": weights} | options
        annotate = _radgraph(model_type, service, options)
        return GraphScorer(annotate, name=model_type, level=level, case=case)
    if options or service is not None:
        unused = ", ".join([*options, *(["service"] if service is not None else [])])
        raise ValueError(f"{spec!r} has no use for {unused}: only {' and '.join(_RADGRAPH[:2])} have these options")
    if spec == "exact":
        return ExactScorer()
    if spec == "lexicon":
        from verl_cxr.facts.lexicon import annotate

        return GraphScorer(annotate, name="lexicon", level=level, case=case)
    if spec.startswith(_PRECOMPUTED) and len(spec) > len(_PRECOMPUTED):
        from verl_cxr.facts.precomputed import PrecomputedGraphs

        return GraphScorer(PrecomputedGraphs(spec[len(_PRECOMPUTED) :]), name="precomputed", level=level, case=case)
    raise ValueError(
        f"unknown fact scorer {spec!r}: it is 'exact', 'lexicon', 'precomputed:PATH', 'radgraph-xl' or 'radgraph'"
    )


def _radgraph(model_type: str, service: bool | None, options: dict[str, Any]) -> Annotate:
    from verl_cxr.facts.radgraph_options import RadGraphOptions
    from verl_cxr.facts.weights import locate

    try:
        chosen = RadGraphOptions(model_type=model_type, **options)
    except TypeError as error:
        raise ValueError(f"{model_type}: {error}") from None
    if not chosen.download:
        locate(chosen.model_type, chosen.weights)  # before a run has begun, not at its first reward
    if service is None:
        ray = sys.modules.get("ray")
        service = ray is not None and bool(ray.is_initialized())
    if service:
        from verl_cxr.facts.service import ServiceAnnotator

        return ServiceAnnotator(chosen)
    from verl_cxr.facts.reader import open_reader

    return open_reader(chosen)
