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
"""Removal of what a report says about earlier examinations, which a single film cannot support, keeping what it shows.

"Unchanged small left effusion" becomes "Small left effusion", "Heart size is unchanged." goes altogether, and so does
"Interval removal of the tube." What counts as a mention, and what does not:

    a mention      stable, unchanged, new, again, persistent, interval, improved, increasing; compared to, since or from
                   an earlier study or a blank (___, XXXX); "no change"; "has resolved"; "no prior for comparison"
    not a mention  history of disease and surgery ("prior CABG", "old fracture", "chronic", "status post"), the state of
                   things ("increased markings", "decreased volumes", "degenerative changes"), advice on what comes next

A sentence without a cue word is returned as it is. One with a cue goes through `prior_rules.yaml`, an ordered list of
replacements, the first of which take comparisons out; then every part of the sentence (between commas) in which
something was replaced must still say something: a part that only names normal anatomy ("heart size") is dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from re import Pattern

import yaml

from verl_cxr.reports.text import split_sentences

__all__ = ["without_priors"]

_CACHED = 1 << 16
_LONGEST = 2000  # characters of a sentence; a longer one is no sentence, and its comparison would take time
_PART = re.compile(r"([,;:]\s+)")
_WORD = re.compile(r"[a-z]+")
_SPACE = re.compile(r"\s+")
_MARK = "\x00"


@dataclass(frozen=True, slots=True)
class _Rules:
    cue: Pattern[str]
    drop: tuple[Pattern[str], ...]
    replace: tuple[tuple[Pattern[str], str], ...]
    neutral: frozenset[str]
    tidy: tuple[tuple[Pattern[str], str], ...]


def without_priors(text: str) -> str:
    """A text without mentions of earlier examinations; empty if nothing else is in it.

    Args:
        text: sentences with single spaces. Those without a mention are returned as they are.
    """
    if not _rules().cue.search(text):
        return text
    return " ".join(kept for kept in map(_sentence, split_sentences(text)) if kept)


@lru_cache(maxsize=_CACHED)
def _sentence(sentence: str) -> str:
    rules = _rules()
    if len(sentence) > _LONGEST or not rules.cue.search(sentence):
        return sentence
    body = sentence.rstrip(" .")
    if any(pattern.search(body) for pattern in rules.drop):
        return ""
    marked = body
    for pattern, replacement in rules.replace:
        marked = pattern.sub(replacement, marked)
    if _MARK not in marked:
        return sentence
    kept = _kept_parts(marked, rules.neutral)
    for pattern, replacement in rules.tidy:
        kept = pattern.sub(replacement, kept)
    kept = kept.strip(" ,;:.")
    if rules.neutral.issuperset(_WORD.findall(kept.lower())):
        return ""
    return kept[0].upper() + kept[1:] + (sentence[len(body) :].strip() or ".")


def _kept_parts(marked: str, neutral: frozenset[str]) -> str:
    """The parts of a sentence that still say something, with the marks taken out."""
    pieces = _PART.split(marked)
    kept: list[str] = []
    for index in range(0, len(pieces), 2):
        part = pieces[index]
        if _MARK in part:
            part = _SPACE.sub(" ", part.replace(_MARK, " ")).strip()
            if neutral.issuperset(_WORD.findall(part.lower())):
                continue
        if kept:
            kept.append(pieces[index - 1])
        kept.append(part)
    return "".join(kept)


@cache
def _rules() -> _Rules:
    document = yaml.safe_load(
        (resources.files("verl_cxr") / "reports" / "prior_rules.yaml").read_text(encoding="utf-8")
    )
    names: dict[str, str] = {}

    def expand(pattern: str) -> str:
        pattern = pattern.replace("\n", "")
        return re.sub(r"<(\w+)>", lambda match: f"(?:{names[match[1]]})", pattern)

    for name, pattern in document["names"].items():
        names[name] = expand(pattern)

    def compiled(pattern: str) -> Pattern[str]:
        return re.compile(expand(pattern), re.IGNORECASE)

    def table(key: str) -> tuple[tuple[Pattern[str], str], ...]:
        return tuple((compiled(pattern), replacement.replace("~", _MARK)) for pattern, replacement in document[key])

    return _Rules(
        cue=compiled(document["cue"]),
        drop=tuple(compiled(pattern) for pattern in document["drop"]),
        replace=table("replace"),
        neutral=frozenset(document["neutral"].split()),
        tidy=table("tidy"),
    )
