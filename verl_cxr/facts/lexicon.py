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
"""Fact graphs from a word list, for machines without RadGraph's weights.

The graph has the form and the labels of RadGraph-XL (observations definitely present, definitely absent or uncertain;
anatomy; modify, located_at and suggestive_of), so the same F1 scores it. It is not RadGraph: its entities are the
canonical words of `lexicon.yaml`, so that "Cardiomegaly." and "The heart is enlarged." hold the same facts, "bilateral"
is left and right, and a side is part of its anatomy ("left lung base"). Sections of a report that describe no finding
of the film, such as the indication, are skipped. docs/facts.md has its agreement with public labels.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

from verl_cxr.facts.graph import Entity, FactGraph, tokenize
from verl_cxr.facts.sentence import Mention, read_sentence
from verl_cxr.facts.terms import load_terms

__all__ = ["annotate", "read_facts"]

_PARAGRAPH = re.compile(r"\n\s*\n")
_ABBREVIATIONS = frozenset({"vs", "dr", "approx"})
_HEADING = 6  # words
_CACHED_LENGTH = 4096  # characters; longer texts are rare, do not repeat, and would fill the memory
_CACHE_SIZE = 1 << 14


def annotate(texts: Sequence[str]) -> list[FactGraph]:
    """One fact graph a text, in order. Safe to call from several threads."""
    return [_cached(text) if len(text) <= _CACHED_LENGTH else read_facts(text) for text in texts]


def read_facts(text: str) -> FactGraph:
    """The fact graph of one text, in time linear in its length. A text without known words has no entity."""
    terms = load_terms()
    words: list[str] = []
    mentions: list[Mention] = []
    skipping = False
    for paragraph in _PARAGRAPH.split(text):
        tokens = tokenize(paragraph)
        lowered = [token.lower() for token in tokens]
        for start, end in _sentences(tokens, lowered, terms.skipped_sections, skipping):
            mentions += read_sentence(lowered[start:end], len(words) + start, terms)
        skipping = lowered[-1:] == [":"] and _heading(tokens, lowered, len(tokens) - 1, terms.skipped_sections)[1]
        words += tokens
    return FactGraph(" ".join(words), _entities(mentions))


_cached = functools.lru_cache(maxsize=_CACHE_SIZE)(read_facts)


def _sentences(
    tokens: Sequence[str], lowered: Sequence[str], skipped: frozenset[str], skipping: bool
) -> Iterator[tuple[int, int]]:
    """Where each sentence of a paragraph that is to be read starts and ends.

    The stop of "2.5 cm" or "vs." ends none; a heading starts one.
    """
    start = 0
    for at, word in enumerate(lowered):
        if word == "!" or (word == "." and not _inside(lowered, at)):
            if not skipping:
                yield start, at
            start = at + 1
        elif word == ":":
            begin, skip = _heading(tokens, lowered, at, skipped)
            if begin < at:
                if not skipping:
                    yield start, begin
                start, skipping = begin, skip
    if not skipping:
        yield start, len(lowered)


def _heading(tokens: Sequence[str], lowered: Sequence[str], colon: int, skipped: frozenset[str]) -> tuple[int, bool]:
    """Where the heading before a colon starts (at the colon: there is none), and whether its section is skipped."""
    for length in range(min(_HEADING, colon), 0, -1):
        if " ".join(lowered[colon - length : colon]) in skipped:
            return colon - length, True
    begin = colon
    while begin and colon - begin < _HEADING and tokens[begin - 1].isupper():
        begin -= 1
    return begin, False


def _inside(words: Sequence[str], at: int) -> bool:
    before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
    return before in _ABBREVIATIONS or (before.isdigit() and after.isdigit())


def _entities(mentions: Sequence[Mention]) -> tuple[Entity, ...]:
    """The entities in reading order. A place of which nothing is said is no fact, and left out."""
    places = {target for mention in mentions for _, target in mention.relations}
    kept = [mention for mention in mentions if mention.status or mention in places]
    kept.sort(key=lambda mention: (mention.start, mention.end))
    ids = {mention: str(number) for number, mention in enumerate(kept, start=1)}
    entities = []
    for mention in kept:
        relations = [(kind, ids[target]) for kind, target in mention.relations]
        if mention.modifies:
            relations.append(("modify", ids[mention.modifies]))
        head = mention
        while head.modifies:
            head = head.modifies
        status = head.status  # "no large effusion": large shares the status of what it describes
        label = f"Observation::{status}" if status else "Anatomy::definitely present"
        unique = tuple(dict.fromkeys(relations))
        entities.append(Entity(ids[mention], mention.name, label, mention.start, mention.end, unique))
    return tuple(entities)
