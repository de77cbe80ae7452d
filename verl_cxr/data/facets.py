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
"""What a study can be counted and sampled by: view, split, source, regions, and the findings that its texts state.

Labels come from the lexicon of `verl_cxr.facts.lexicon`. They say what the report calls present (without a report: what
the regions' findings do), and nothing about the film itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_cxr.anatomy import load_vocabulary
from verl_cxr.facts.lexicon import annotate
from verl_cxr.study import Study

__all__ = ["FACETS", "NOT_STATED", "NO_FINDING", "facets", "require_facets"]

NOT_STATED = "not stated"
NO_FINDING = "no finding"
_AFFIRMING = frozenset({"normal", "clear", "intact", "expanded"})


def _labels(study: Study) -> tuple[str, ...]:
    texts = [study.report.text] if study.report.text else [region.finding for region in study.regions]
    present = {
        entity.tokens
        for graph in annotate(texts)
        for entity in graph.entities
        if entity.label == "Observation::definitely present"
        and entity.tokens not in _AFFIRMING
        and not any(kind == "modify" for kind, _ in entity.relations)
    }
    return tuple(sorted(present)) or (NO_FINDING,)


def _regions(study: Study) -> tuple[str, ...]:
    canonical = load_vocabulary().canonical
    return tuple(dict.fromkeys(canonical(region.name) for region in study.regions)) or ("no region",)


FACETS: dict[str, Callable[[Study], tuple[str, ...]]] = {
    "view": lambda study: (study.view or NOT_STATED,),
    "region": _regions,
    "label": _labels,
    "source": lambda study: (study.source or NOT_STATED,),
}
"""The values of a study under each name; a study has one view and one source, and any number of regions and labels."""


def facets(study: Study, names: Sequence[str]) -> list[tuple[str, ...]]:
    """The study's values under each of the names."""
    return [FACETS[name](study) for name in names]


def require_facets(names: Sequence[str]) -> None:
    """Check names that a user gave.

    Raises:
        ValueError: one is unknown.
    """
    for name in names:
        if name not in FACETS:
            raise ValueError(f"nothing to stratify by is called {name!r}: use some of {', '.join(FACETS)}")
