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
"""F1 between two fact graphs, at the three levels of the `radgraph` package.

A graph is turned into a set of facts; precision and recall count the facts that both sets hold.

========  ==========================================================================================  ==========
level     facts of an entity                                                                          also called
========  ==========================================================================================  ==========
simple    (tokens, label)                                                                             RG_E
partial   (tokens, label), and whether it has any relation                                            RG_ER
complete  (tokens, label) without relations; (tokens, label, relation, tokens of the target) for each RG_ER-bar
========  ==========================================================================================  ==========

`partial` is the level that, by the package's README, papers report.

Case: release 0.1.18 of the package compares tokens as they are written, except inside the relation facts of `complete`,
which it lowers. ``case="0.1.18"`` does the same; ``case="lower"`` lowers every token.
"""

from __future__ import annotations

from typing import Literal, get_args

from verl_cxr.facts.graph import FactGraph

__all__ = ["CASES", "LEVELS", "Case", "Level", "fact_set", "graph_f1"]

Level = Literal["simple", "partial", "complete"]
Case = Literal["0.1.18", "lower"]
LEVELS: tuple[str, ...] = get_args(Level)
CASES: tuple[str, ...] = get_args(Case)

_Fact = tuple[str, ...] | tuple[str, str, bool]


def fact_set(graph: FactGraph, *, level: Level, case: Case = "0.1.18") -> frozenset[_Fact]:
    """The set of facts of `graph` at a level."""
    words = {e.id: e.tokens.lower() for e in graph.entities} if level == "complete" or case == "lower" else {}
    names = words if case == "lower" else {e.id: e.tokens for e in graph.entities}
    if level == "simple":
        return frozenset((names[e.id], e.label) for e in graph.entities)
    if level == "partial":
        return frozenset((names[e.id], e.label, bool(e.relations)) for e in graph.entities)
    found: set[_Fact] = set()
    for e in graph.entities:
        if e.relations:
            found.update((words[e.id], e.label, kind, words[target]) for kind, target in e.relations)
        else:
            found.add((names[e.id], e.label))
    return frozenset(found)


def graph_f1(predicted: FactGraph, reference: FactGraph, *, level: Level, case: Case = "0.1.18") -> float | None:
    """F1 in [0, 1] between two graphs; symmetric in its arguments.

    Returns:
        None when neither graph has an entity: there is nothing to compare, and the caller decides what that is worth
        (the package says 0.0). 0.0 when only one has, as in the package.
    """
    if not predicted.entities and not reference.entities:
        return None
    ours, theirs = fact_set(predicted, level=level, case=case), fact_set(reference, level=level, case=case)
    shared = len(ours & theirs)
    # the package's own order of operations, so that the floats are equal and not merely close
    if not shared:
        return 0.0
    precision, recall = shared / len(ours), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)
