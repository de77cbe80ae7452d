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
"""Whether a text agrees with a measurement: s_k of the accuracy-gated reward.

Two kinds of statement count. A quoted number ("CTR 0.55") agrees within the table's tolerance. A claim ("cardiomegaly",
"the heart is not enlarged", "mediastinal shift to the right") is a fact of the lexicon annotator, which reads negation,
and agrees if the value is in a state that the claim allows. A text agrees if it says something, and everything that it
says agrees: silence earns nothing, and neither does saying both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from reward_plugins.quotation import Quotation, numbers_of, quotations
from reward_plugins.relevance import Measure, MeasurementTable
from verl_cxr.answers import plain
from verl_cxr.facts.lexicon import annotate

__all__ = ["Said", "Stance", "read", "stance"]

_LIMIT = 20_000  # characters of a rationale that are read, its last ones
_DENIED = "definitely absent"
_SIDE_BEFORE = re.compile(r"\b(?:right|left)(?:ward)? (?:\w+ )?$")
_SIDE_AFTER = re.compile(r"[\s,(]*(?:(?:to|towards?) the )?(?:right|left)")


@dataclass(frozen=True, slots=True)
class Said:
    """What a text says about one measurement: the numbers that it quotes, and of each claim the states it allows."""

    quoted: tuple[Quotation, ...] = ()
    allowed: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stance:
    """How a text stands to the value of a measurement."""

    agrees: bool
    contradicts: bool
    """Something that it says is not so. A text that says nothing neither agrees nor contradicts."""


def read(text: str, table: MeasurementTable, *, asked: str = "", denied: bool | None = None) -> dict[str, Said]:
    """What a text says about each measurement of a table.

    Args:
        text: rationale and answer.
        table: see :func:`~reward_plugins.relevance.load_table`.
        asked: the question; numbers that it gives are no quotations of a measurement.
        denied: of a closed question, whether the answer is no: then the claims of the question are the answer's,
            turned around for a no. None: the question claims nothing.
    """
    text, asked = plain(text[-_LIMIT:]).lower(), plain(asked).lower()
    quoted = quotations(text, table, numbers_of(asked))
    claims = _claims(_without_names(text, quoted, table), table)
    asking = {} if denied is None else _claims(asked, table)
    said = {}
    for name, measure in table.measures.items():
        allowed = [*claims.get(name, ())]
        allowed += [measure.all_states - states if denied else states for states in asking.get(name, ())]
        said[name] = Said(tuple(quotation for quotation in quoted if quotation.name == name), tuple(allowed))
    return said


def stance(said: Said, value: float, measure: Measure, backend: str | None = None) -> Stance:
    """Compare what a text says with the value of the measurement; see the module."""
    states = measure.states(value, backend)
    true = [_is_close(quotation, value, measure) for quotation in said.quoted if quotation.value is not None]
    true += [bool(allowed & states) for allowed in said.allowed]
    return Stance(agrees=bool(true) and all(true), contradicts=not all(true))


def _is_close(quotation: Quotation, value: float, measure: Measure) -> bool:
    if measure.signed and not quotation.signed:
        value = abs(value)
    return abs((quotation.value or 0.0) - value) <= measure.tolerance + 1e-9


def _without_names(text: str, quoted: Sequence[Quotation], table: MeasurementTable) -> str:
    """The text less names that claim more than their number: "mediastinal shift 0.01", but not "0.1 to the left"."""
    parts: list[str] = []
    at = 0
    for quotation in quoted:
        start, end = quotation.start, quotation.end
        sided = _SIDE_BEFORE.search(text[max(0, start - 24) : start]) or _SIDE_AFTER.match(text, end)
        if start >= at and not sided and quotation.name in _claims(text[start:end], table):
            parts += [text[at:start], "it"]
            at = end
    return "".join([*parts, text[at:]])


def _claims(text: str, table: MeasurementTable) -> dict[str, list[frozenset[str]]]:
    """The states that each claim of a plain text in lower case allows, by measurement."""
    return _cached_claims(text, table) if len(text) <= 4096 else _read_claims(text, table)


def _read_claims(text: str, table: MeasurementTable) -> dict[str, list[frozenset[str]]]:
    for pattern, words in table.rewrites:
        text = pattern.sub(words, text)
    (graph,) = annotate([text])
    names = {entity.id: entity.tokens for entity in graph.entities}
    found: dict[str, list[frozenset[str]]] = {}
    for entity in graph.entities:
        kind, _, status = entity.label.partition("::")
        if kind != "Observation":
            continue
        places = [names[target] for relation, target in entity.relations if relation == "located_at"]
        for name, measure in table.measures.items():
            claim = next((claim for claim in measure.claims if claim.holds(entity.tokens, places)), None)
            if claim is not None:
                states = measure.all_states - claim.states if status == _DENIED else claim.states
                found.setdefault(name, []).append(states)
    return found


_cached_claims = lru_cache(maxsize=4096)(_read_claims)
