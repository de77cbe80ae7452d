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
"""F1 between fact graphs: by hand, by property, and against the radgraph package's own reward functions."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.facts import CASES, LEVELS, Entity, FactGraph, graph_f1

PRESENT, ABSENT, PLACE = (
    "Observation::definitely present",
    "Observation::definitely absent",
    "Anatomy::definitely present",
)


def graph(*entities: tuple[str, str, list[tuple[str, str]]]) -> FactGraph:
    """A graph of (tokens, label, relations); an entity's id is its position, from "1"."""
    return FactGraph(
        "text",
        tuple(Entity(str(i), tokens, label, i, i, tuple(rel)) for i, (tokens, label, rel) in enumerate(entities, 1)),
    )


# "Small left effusion": small -modify-> effusion -located_at-> left
SMALL_LEFT = graph(
    ("small", PRESENT, [("modify", "2")]), ("effusion", PRESENT, [("located_at", "3")]), ("left", PLACE, [])
)
# "Large left effusion"
LARGE_LEFT = graph(
    ("large", PRESENT, [("modify", "2")]), ("effusion", PRESENT, [("located_at", "3")]), ("left", PLACE, [])
)
# "Small right effusion"
SMALL_RIGHT = graph(
    ("small", PRESENT, [("modify", "2")]), ("effusion", PRESENT, [("located_at", "3")]), ("right", PLACE, [])
)
EFFUSION = graph(("effusion", PRESENT, []))
NO_EFFUSION = graph(("effusion", ABSENT, []))
EMPTY = graph()


@pytest.mark.parametrize(
    ("predicted", "reference", "simple", "partial", "complete"),
    [
        (SMALL_LEFT, SMALL_LEFT, 1.0, 1.0, 1.0),
        # two of three entities agree, relations and all
        (LARGE_LEFT, SMALL_LEFT, 2 / 3, 2 / 3, 2 / 3),
        # the effusion is somewhere (partial), but not there (complete: only small -> effusion is shared)
        (SMALL_RIGHT, SMALL_LEFT, 2 / 3, 2 / 3, 1 / 3),
        # simple: P 1, R 1/3; with relations the bare effusion is another fact
        (EFFUSION, SMALL_LEFT, 0.5, 0.0, 0.0),
        # negation is part of the label
        (NO_EFFUSION, EFFUSION, 0.0, 0.0, 0.0),
        (EMPTY, EFFUSION, 0.0, 0.0, 0.0),
        (EFFUSION, EMPTY, 0.0, 0.0, 0.0),
        (EMPTY, EMPTY, None, None, None),
        # a fact counts once however often it is mentioned
        (graph(("effusion", PRESENT, []), ("effusion", PRESENT, [])), EFFUSION, 1.0, 1.0, 1.0),
    ],
)
def test_by_hand(predicted, reference, simple, partial, complete):
    assert [graph_f1(predicted, reference, level=level) for level in LEVELS] == [simple, partial, complete]


def test_case_is_compared_as_the_release_does_or_not_at_all():
    upper = graph(("Small", PRESENT, [("modify", "2")]), ("Effusion", PRESENT, []))
    lower = graph(("small", PRESENT, [("modify", "2")]), ("effusion", PRESENT, []))
    assert [graph_f1(upper, lower, level=level) for level in LEVELS] == [0.0, 0.0, 0.5]  # relation facts are lowered
    assert [graph_f1(upper, lower, level=level, case="lower") for level in LEVELS] == [1.0, 1.0, 1.0]


def random_graph(rng: random.Random) -> FactGraph:
    """Few words, so that graphs overlap; both cases, both label schemes, several relations, also to itself."""
    ids = [str(i) for i in range(1, rng.choice([0, 1, 1, 2, 3, 5, 9]) + 1)]
    return FactGraph(
        "text",
        tuple(
            Entity(
                id_,
                rng.choice(["effusion", "Effusion", "small", "Small", "left lung", "Left lung"]),
                rng.choice([PRESENT, ABSENT, "Observation::uncertain", PLACE, "OBS-DP", "ANAT-DP"]),
                i,
                i,
                tuple(
                    (rng.choice(["modify", "located_at", "suggestive_of"]), rng.choice(ids))
                    for _ in range(rng.choice([0, 0, 1, 2, 3]))
                ),
            )
            for i, id_ in enumerate(ids)
        ),
    )


def package_rewards() -> ModuleType:
    """radgraph/rewards.py alone: importing the package would need its own pins of transformers."""
    spec = importlib.util.find_spec("radgraph")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the radgraph package is not installed (pip install --no-deps radgraph==0.1.18)")
    path = Path(spec.submodule_search_locations[0]) / "rewards.py"
    rewards_spec = importlib.util.spec_from_file_location("radgraph_rewards", path)
    assert rewards_spec is not None
    assert rewards_spec.loader is not None
    module = importlib.util.module_from_spec(rewards_spec)
    rewards_spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("level", LEVELS)
def test_equals_the_package_on_random_graphs(level):
    compute_reward = package_rewards().compute_reward
    rng = random.Random(0)
    seen = set()
    for _ in range(2000):
        predicted, reference = random_graph(rng), random_graph(rng)
        theirs = compute_reward(predicted.to_dict(), reference.to_dict(), level)
        ours = graph_f1(predicted, reference, level=level)
        if not predicted.entities and not reference.entities:
            assert (ours, theirs) == (None, 0.0)  # the package says 0 where there is nothing to compare
        else:
            assert ours == theirs
        seen.add(ours)
    assert len(seen) > 20  # the graphs do overlap in many ways


def by_definition(graph: FactGraph, level: str, case: str) -> set[tuple]:
    """The sets of radgraph_and_metrics.md, written out."""
    words = {e.id: e.tokens for e in graph.entities}
    keep = str.lower if case == "lower" else str
    if level == "simple":
        return {(keep(e.tokens), e.label) for e in graph.entities}
    if level == "partial":
        return {(keep(e.tokens), e.label, e.relations != ()) for e in graph.entities}
    bare = {(keep(e.tokens), e.label) for e in graph.entities if not e.relations}
    return bare | {
        (e.tokens.lower(), e.label, kind, words[target].lower()) for e in graph.entities for kind, target in e.relations
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("level", LEVELS)
@given(seed=st.integers(0, 2**32))
def test_properties(level, case, seed):
    rng = random.Random(seed)
    a, b = random_graph(rng), random_graph(rng)
    score = graph_f1(a, b, level=level, case=case)
    assert score == graph_f1(b, a, level=level, case=case)
    assert (score is None) == (not a.entities and not b.entities)
    assert graph_f1(a, a, level=level, case=case) == (1.0 if a.entities else None)
    ours, theirs = by_definition(a, level, case), by_definition(b, level, case)
    if ours or theirs:
        assert score == pytest.approx(2 * len(ours & theirs) / (len(ours) + len(theirs)))
