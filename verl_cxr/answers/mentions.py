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
"""Which options a piece of text names, by letter or by wording, and which of them it denies.

The traps are ordinary English. "A small effusion" names no option A; "B, not A" names B; "A or B" names two;
"no pneumothorax" is an option of its own where there is one, and denies "pneumothorax" where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from verl_cxr.answers.wording import singular, tokens, words

__all__ = ["Mentions", "mentions"]

_ARTICLES = frozenset({"a", "an", "the"})
_NAMING = frozenset({"option", "choice", "answer", "letter", "alternative", "statement"})
_BEFORE = frozenset({
    "is", "be", "are", "choose", "chose", "select", "pick", "with", "or", "and", "not", "nor", "neither", "either",
    "than", "but", "of", "therefore", "thus", "hence", "both", ",", "/", "&", ":", ";", "+", "\n", "(", "[", '"', "'",
    "=", ">", "}", "{", "|", ".", "!", "?", "it's", "that's", "say",
})  # fmt: skip
_AFTER = frozenset({
    "is", "are", "was", "because", "since", "or", "and", "but", "not", "nor", "rather", "as", "seems", "fits",
    "appears", "would", "instead", "over", "with", "cannot", "can't", "isn't", "due", "than",
    "explains", "matches", "describes", "shows", "represents",
})  # fmt: skip
_DENYING = frozenset({
    "not", "no", "cannot", "can't", "never", "neither", "nor", "without", "than", "unlike", "exclude", "excludes",
    "excluded", "excluding", "except", "isn't", "wasn't", "aren't", "doesn't", "don't", "didn't", "couldn't",
    "wouldn't", "instead", "against", "deny", "denies", "incorrect", "wrong",
})  # fmt: skip
_BE = frozenset({"is", "are", "was", "were", "be", "can", "could", "seems", "appears", "looks", "would", "has", "been"})
_ADVERBS = frozenset({"also", "clearly", "definitely", "therefore", "very", "thus", "probably", "most"})
_DENIED = frozenset({
    "not", "incorrect", "wrong", "unlikely", "excluded", "false", "absent", "ruled", "less", "rejected",
})  # fmt: skip
_DENIED_AT_ONCE = frozenset({"isn't", "cannot", "can't", "doesn't", "wasn't", "aren't"})
_POSSIBLE = frozenset({"excluded", "ruled"})
"""What follows "cannot be" where an option is not denied after all."""
_CLAUSE_END = frozenset({".", ";", ",", "!", "?", ":", "\n", "but", "because", "since", "while", "whereas"})
_REACH = 6  # words that a denial reaches forward


@dataclass(frozen=True, slots=True)
class Mentions:
    """The places of the options that a text names, in ascending order."""

    named: tuple[int, ...]
    """Named and not denied."""
    denied: tuple[int, ...]
    leads: bool
    """The text opens with an option that is not denied, as an answer that is followed by its explanation does."""


def mentions(text: str, options: tuple[str, ...], *, letters: bool = True) -> Mentions:
    """Read a :func:`~verl_cxr.answers.wording.plain` text.

    Args:
        text: of a few thousand characters at most; the time is linear in it.
        options: their texts; the first one has the letter A.
        letters: whether letters name options.
    """
    found = tokens(text)
    spans = _wordings(found, options)
    if letters:
        spans += _letters(found, len(options), taken={at for _, start, end in spans for at in range(start, end)})
    spans.sort(key=lambda span: span[1])
    denied = {option for option, start, end in spans if _is_denied(found, start, end)}
    named = {option for option, _, _ in spans} - denied
    first = next((at for at, token in enumerate(found) if _is_word(token)), 0)
    before = found[first : spans[0][1]] if spans else ()
    leads = bool(spans) and spans[0][0] in named and not any(_is_word(token) for token in before if not _article(token))
    return Mentions(tuple(sorted(named)), tuple(sorted(denied)), leads)


Span = tuple[int, int, int]
"""Place of an option, first token, token after the last."""


def _wordings(found: Sequence[str], options: tuple[str, ...]) -> list[Span]:
    """Options by their wording, the longest first, without overlap."""
    starts = _starts(options)
    places = [at for at, token in enumerate(found) if _is_word(token) and not _article(token)]
    said = [singular(found[at]) for at in places]
    spans: list[Span] = []
    at = 0
    while at < len(said):
        for wording, option in starts.get(said[at], ()):
            if tuple(said[at : at + len(wording)]) == wording:
                end = places[at + len(wording) - 1] + 1
                if wording != ("no",) or not _followed_by_word(found, end):
                    spans.append((option, places[at], end))
                    at += len(wording) - 1
                    break
        at += 1
    return spans


@lru_cache(maxsize=4096)
def _starts(options: tuple[str, ...]) -> dict[str, list[tuple[tuple[str, ...], int]]]:
    """Wordings by their first word, the longest first; without those that two options share."""
    wordings: dict[tuple[str, ...], list[int]] = {}
    for place, option in enumerate(options):
        wordings.setdefault(words(option), []).append(place)
    starts: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for wording, places in sorted(wordings.items(), key=lambda item: -len(item[0])):
        if wording and len(places) == 1:
            starts.setdefault(wording[0], []).append((wording, places[0]))
    return starts


def _letters(found: Sequence[str], count: int, *, taken: set[int]) -> list[Span]:
    alone = sum(map(_is_word, found)) == 1
    spans: list[Span] = []
    for at, token in enumerate(found):
        option = ord(token.upper()) - ord("A") if len(token) == 1 and token.isascii() and token.isalpha() else count
        if option < count and at not in taken and (alone or _is_letter(found, at)):
            spans.append((option, at, at + 1))
    return spans


def _is_letter(found: Sequence[str], at: int) -> bool:
    """Whether a one-letter word is meant as the letter of an option."""
    token = found[at]
    before = found[at - 1].lower() if at else "\n"
    after = found[at + 1].lower() if at + 1 < len(found) else "\n"
    enclosed = before in ("(", "[", "\n") and after in (")", "]")
    if enclosed or (after == ")" and before not in ("-",) and not _is_word(before)):
        return True
    ends = not _is_word(after) and after != "-"
    if before in _NAMING:
        return ends or (token.isupper() and (after in _AFTER or token not in "AI"))
    opens = not any(map(_is_word, found[max(0, at - 3) : at])) or before == "\n"
    if opens and after in (".", ":", "-") and (token.isupper() or after != "-"):
        return True
    if not token.isupper() or not (opens or before in _BEFORE):
        return False
    return ends or after in _AFTER or (opens and token not in "AI")


def _is_denied(found: Sequence[str], start: int, end: int) -> bool:
    reach = 0
    for at in range(start - 1, -1, -1):
        token = found[at].lower()
        if token in _CLAUSE_END or reach >= _REACH:
            break
        if token in _DENYING:
            return True
        reach += _is_word(token)
    later = [token.lower() for token in found[end : end + 4] if token not in (")", "]", '"')]
    if later and later[0] in _DENIED_AT_ONCE:
        return not _POSSIBLE.intersection(later)
    at = 0
    while at < len(later) and later[at] in _BE | _ADVERBS:
        at += 1
    return 0 < at < len(later) and later[at] in _DENIED


def _article(token: str) -> bool:
    return token.lower() in _ARTICLES


def _is_word(token: str) -> bool:
    return token[0].isalnum()


def _followed_by_word(found: Sequence[str], end: int) -> bool:
    return end < len(found) and _is_word(found[end])
