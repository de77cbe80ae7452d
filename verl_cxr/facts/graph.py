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
"""Fact graphs: the entities of a radiology text and how they relate, in RadGraph's JSON format.

One graph as the `radgraph` package writes it (Jain et al. 2021, RadGraph; Delbrouck et al. 2024, RadGraph-XL)::

    {"text": "No evidence of pneumothorax .",
     "entities": {"1": {"tokens": "pneumothorax", "label": "Observation::definitely absent",
                        "start_ix": 3, "end_ix": 3, "relations": []}}}

`start_ix` and `end_ix` count the white-space separated words of `text`, both inclusive. A relation is
``[type, target entity id]``; the types are ``modify``, ``located_at`` and ``suggestive_of``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Entity", "FactGraph", "GraphError", "tokenize"]

_TOKEN = re.compile(r"\w+|[^\w\s]")


def tokenize(text: str) -> list[str]:
    """Words, and every punctuation mark on its own, so that a text and RadGraph's spaced copy of it agree."""
    return _TOKEN.findall(text)


class GraphError(ValueError):
    """A record that is not a fact graph; the message names the place, the field and what would be right."""


@dataclass(frozen=True, slots=True)
class Entity:
    """One mention. `relations` holds ``(type, target id)`` pairs in the order of the record."""

    id: str
    tokens: str
    label: str
    start_ix: int
    end_ix: int
    relations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FactGraph:
    """The annotated text: `entities` in the order of the record, each relation pointing at one of them."""

    text: str
    entities: tuple[Entity, ...] = ()

    @classmethod
    def from_dict(cls, record: object, *, where: str = "graph") -> FactGraph:
        """Read one graph of the JSON format; keys beyond ``text`` and ``entities`` are ignored.

        Args:
            record: the decoded JSON value.
            where: what to call the record in an error, such as ``"graphs.jsonl, row 3"``.

        Raises:
            GraphError: a field is missing or has the wrong type, or a relation points at no entity.
        """
        fields = _mapping(record, where)
        text = _field(fields, "text", str, where)
        raw = _mapping(_field(fields, "entities", Mapping, where), f"{where}, entities")
        entities = tuple(_entity(id_, value, raw, f"{where}, entity {id_!r}") for id_, value in raw.items())
        return cls(text, entities)

    def to_dict(self) -> dict[str, Any]:
        """The JSON format; `from_dict` reads it back to an equal graph."""
        return {
            "text": self.text,
            "entities": {
                e.id: {
                    "tokens": e.tokens,
                    "label": e.label,
                    "start_ix": e.start_ix,
                    "end_ix": e.end_ix,
                    "relations": [list(relation) for relation in e.relations],
                }
                for e in self.entities
            },
        }


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GraphError(f"{where}: a JSON object is needed, not {type(value).__name__}")
    for key in value:
        if not isinstance(key, str):
            raise GraphError(f"{where}: keys are strings, not {key!r}")
    return value


def _field(fields: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    if name not in fields:
        raise GraphError(f"{where}: the field {name!r} is missing")
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise GraphError(f"{where}: {name!r} must be of type {kind.__name__}, not {value!r:.80}")
    return value


def _entity(id_: str, value: object, ids: Mapping[str, Any], where: str) -> Entity:
    fields = _mapping(value, where)
    tokens, label = _field(fields, "tokens", str, where), _field(fields, "label", str, where)
    if not tokens or not label:
        raise GraphError(f"{where}: 'tokens' and 'label' must not be empty")
    start, end = _field(fields, "start_ix", int, where), _field(fields, "end_ix", int, where)
    if not 0 <= start <= end:
        raise GraphError(f"{where}: 0 <= start_ix <= end_ix does not hold for {start} and {end}")
    relations = []
    for relation in _field(fields, "relations", list, where):
        if (
            not isinstance(relation, (list, tuple))
            or len(relation) != 2
            or not all(isinstance(x, str) for x in relation)
        ):
            raise GraphError(f"{where}: a relation is [type, target id], both strings, not {relation!r:.80}")
        if relation[1] not in ids:
            raise GraphError(f"{where}: a relation points at {relation[1]!r}, which is no entity of this graph")
        relations.append((relation[0], relation[1]))
    return Entity(id_, tokens, label, start, end, tuple(relations))
