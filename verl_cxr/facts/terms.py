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
"""The word list of the lexicon annotator, compiled: phrases of a text to terms, longest phrase first.

`lexicon.yaml`, beside this file, holds the words and says how each part of it is read.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from typing import Any

import yaml

from verl_cxr.facts.graph import tokenize

__all__ = ["Kind", "Term", "Terms", "load_terms"]


class Kind(Enum):
    """What a phrase does in a sentence; the values are the section names of `lexicon.yaml`."""

    OBSERVATION = "observations"
    STATE = "states"
    AFFIRMING = "affirming"
    COMPOUND = "compounds"
    ANATOMY = "anatomy"
    SIDE = "sides"
    MODIFIER = "modifiers"
    DEGREE = "degrees"
    ABSENT = "absent"
    UNCERTAIN = "uncertain"
    VERSUS = "versus"
    SUGGESTS = "suggests"
    MEANS = "means"
    ABSENT_AFTER = "absent_after"
    UNCERTAIN_AFTER = "uncertain_after"
    AND = "and"
    OR = "or"
    COMMA = "comma"
    PLACE = "place"
    VERB = "verb"
    THERE = "there"
    CLOSE = "close"
    BUT = "but"
    IGNORE = "ignore"

    __hash__ = object.__hash__  # members are singletons; Enum's own hash is a slow Python function


@dataclass(frozen=True, slots=True)
class Term:
    """What a phrase means.

    `name` is the canonical word of an observation, state, modifier or side; `anatomy` the parts that the phrase names;
    `side` the side it implies (``"left"``, ``"right"``, ``"both"``).
    """

    kind: Kind
    name: str = ""
    anatomy: tuple[str, ...] = ()
    side: str | None = None


_Node = dict[str, Any]  # word -> node; "" -> the Term of the phrase that ends here
_MARKS = {",": Term(Kind.COMMA), ":": Term(Kind.VERB), ";": Term(Kind.BUT)}


class Terms:
    """Finds terms in words; immutable once made, so that threads may share it.

    Attributes:
        skipped_sections: the headings under which no finding of the film stands.
        unsided: the parts that take no side.
        wholes: for a part such as ``"lung base"``, the names that may follow it ("base of the right *lung*").
    """

    def __init__(
        self,
        entries: Iterable[tuple[str, Term]],
        *,
        wholes: Mapping[str, frozenset[str]],
        unsided: frozenset[str],
        skipped_sections: frozenset[str],
    ) -> None:
        self.wholes = wholes
        self.unsided = unsided
        self.skipped_sections = skipped_sections
        self._root: _Node = {}
        for phrase, term in entries:
            node = self._root
            for word in phrase.split():
                node = node.setdefault(word, {})
            known = node.setdefault("", term)
            if known != term:
                raise ValueError(f"the phrase {phrase!r} means both {known} and {term}")

    def find(self, words: Sequence[str]) -> list[tuple[Term, int, int]]:
        """The terms of one sentence as (term, first word, last word), in order; words that mean nothing are left out.

        Args:
            words: lower-case words and punctuation marks, as `verl_cxr.facts.graph.tokenize` gives them.
        """
        found = []
        root = self._root
        count = len(words)
        at = 0
        while at < count:
            word = words[at]
            node = root.get(word)
            term, end, ahead = _MARKS.get(word), at, at + 1
            while node is not None:
                if "" in node:
                    term, end = node[""], ahead - 1
                while ahead < count and words[ahead] == "-":
                    ahead += 1
                if ahead == count:
                    break
                node = node.get(words[ahead])
                ahead += 1
            if term is not None:
                found.append((term, at, end))
            at = end + 1
        return found


@functools.cache
def load_terms() -> Terms:
    """The terms of `lexicon.yaml`.

    Raises:
        ValueError: the file is malformed, or gives one phrase two meanings.
    """
    text = resources.files("verl_cxr.facts").joinpath("lexicon.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    wholes: dict[str, set[str]] = {}
    for whole, parts in data["parts"].items():
        for part in parts:
            wholes.setdefault(part, set()).add(whole)
    return Terms(
        _entries(data),
        wholes={part: frozenset(names) for part, names in wholes.items()},
        unsided=frozenset(data["unsided"]),
        skipped_sections=frozenset(data["skipped_sections"]),
    )


def _entries(data: Mapping[str, Any]) -> Iterator[tuple[str, Term]]:
    affirming = set(data["affirming"])
    for name, phrases in data["observations"].items():
        yield from _nouns([name, *phrases], Term(Kind.OBSERVATION, name))
    for name, phrases in data["states"].items():
        kind = Kind.AFFIRMING if name in affirming else Kind.STATE
        yield from _words([name, *phrases], Term(kind, name))
    for name, phrases in data["nominal"].items():
        yield from _nouns(phrases, Term(Kind.OBSERVATION, name))
    for name, phrases in data["adjectival"].items():
        yield from _words(phrases, Term(Kind.STATE, name))
    for entry in data["compounds"]:
        yield from _nouns(entry["phrases"], Term(Kind.COMPOUND, entry["finding"], (entry["anatomy"],)))
    for name, value in data["anatomy"].items():
        phrases, side = (value["phrases"], value["side"]) if isinstance(value, dict) else (value, None)
        yield from _nouns([name, *phrases], Term(Kind.ANATOMY, "", (name,), side))
    for entry in data["several_parts"]:
        yield from _nouns(entry["phrases"], Term(Kind.ANATOMY, "", tuple(entry["anatomy"]), entry.get("side")))
    for kind in (Kind.SIDE, Kind.DEGREE, Kind.MODIFIER):
        for name, phrases in data[kind.value].items():
            yield from _words([name, *phrases], Term(kind, name))
    for section, phrases in data["cues"].items():
        yield from _words(_filled(phrases, data["sets"]), Term(Kind(section)))


def _words(phrases: Sequence[str], term: Term) -> Iterator[tuple[str, Term]]:
    for phrase in phrases:
        if not isinstance(phrase, str):
            raise ValueError(f"the phrase {phrase!r} of {term} is not text: YAML needs quotes around it")
        yield " ".join(word for word in tokenize(phrase.lower()) if word != "-"), term


def _nouns(phrases: Sequence[str], term: Term) -> Iterator[tuple[str, Term]]:
    for phrase, _ in _words(phrases, term):
        yield phrase, term
        if re.search(r"[^aeiou]y$", phrase):
            yield phrase[:-1] + "ies", term
        elif re.search(r"(s|x|z|ch|sh)$", phrase):
            yield phrase + "es", term
        else:
            yield phrase + "s", term


def _filled(phrases: Sequence[str], sets: Mapping[str, Sequence[str]]) -> list[str]:
    """Each phrase with every ``<name>`` replaced by each member of that set."""
    filled = []
    for phrase in phrases:
        parts = re.split(r"<(\w+)>", str(phrase) if not isinstance(phrase, bool) else "")
        choices = [sets[part] if i % 2 else [part] for i, part in enumerate(parts)]
        filled += ["".join(choice) for choice in itertools.product(*choices)]
    return filled
