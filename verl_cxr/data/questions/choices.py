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
"""Options that a question set writes into its questions, and answers that name them by text, letter or number."""

from __future__ import annotations

import re

from verl_cxr.files import RecordError
from verl_cxr.question import Kind, letter

__all__ = ["among", "inline_options", "kind_of_options", "said_options"]

_LETTERED = re.compile(r"(?:^|(?<=[\s;,.?:]))\(?([A-Z])[).:]\s*(?=\S)")
_LETTERED_LINE = re.compile(r"^[ \t]*\(?([A-Z])[).:]\s*(?=\S)", re.MULTILINE)
_LETTERS = re.compile(r"\s*\(?([A-Z])\)?(?:\s*[,;&/]\s*\(?([A-Z])\)?)*\s*")
_PLACE = re.compile(r"\s*[0-9]{1,3}(?:\.0+)?\s*")
_OR = re.compile(r"\s+(?:or|vs\.?|versus)\s+", re.IGNORECASE)
_LEAD = frozenset({"a", "an", "the", "on", "in", "at", "of", "to", "more", "either"})
_MOST_WORDS = 3
_WORD = re.compile(r"[\w'-]+")


def inline_options(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The question and its options, of a text that letters them: ``Which is it? A) Edema B) Pneumonia``.

    Letters at the start of lines go before others. None if they do not run from A on, at least to B.
    """
    places = _run(_LETTERED_LINE, text)
    if len(places) < 2:
        places = _run(_LETTERED, text)
    if len(places) < 2:
        return None
    ends = [*(place.start() for place in places[1:]), len(text)]
    options = tuple(text[place.end() : end].strip(" \t\n;,") for place, end in zip(places, ends, strict=True))
    return text[: places[0].start()].strip(), options


def _run(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    places: list[re.Match[str]] = []
    for match in pattern.finditer(text):
        if match[1] == letter(len(places)):
            places.append(match)
    return places


def among(answer: object, options: tuple[str, ...], field: str = "answer") -> tuple[str, ...]:
    """The options that an answer names: a place from 0, a text, a letter, letters (``A, C``), or a list of these.

    Raises:
        RecordError: it names none.
    """
    if isinstance(answer, list):
        found = dict.fromkeys(text for part in answer for text in among(part, options, field))
        return tuple(found)
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    if type(answer) is int:
        if 0 <= answer < len(options):
            return (options[answer],)
        raise RecordError(field, f"no such option: number {answer} of {len(options)}")
    if not isinstance(answer, str) or not answer.strip():
        raise RecordError(field, "missing: should be an option's text, letter or number")
    for option in options:
        if _plain(option) == _plain(answer):
            return (option,)
    if _LETTERS.fullmatch(answer):
        places = [ord(name) - ord("A") for name in re.findall(r"[A-Z]", answer)]
        if max(places) < len(options):
            return tuple(dict.fromkeys(options[place] for place in places))
    lettered = re.fullmatch(r"\s*\(?([A-Z])[).:]\s*(.+)", answer, re.DOTALL)
    if lettered and ord(lettered[1]) - ord("A") < len(options):
        option = options[ord(lettered[1]) - ord("A")]
        if _plain(option) == _plain(lettered[2]):
            return (option,)
    if _PLACE.fullmatch(answer):
        return among(int(float(answer)), options, field)
    raise RecordError(field, f"none of the options: {answer[:60]!r}")


def kind_of_options(options: tuple[str, ...]) -> Kind:
    """Closed for yes and no, two-option or multiple-choice by their number."""
    if {option.strip().lower() for option in options} == {"yes", "no"}:
        return Kind.CLOSED
    return Kind.TWO_OPTION if len(options) == 2 else Kind.MULTIPLE_CHOICE


def said_options(question: str, answer: str) -> tuple[tuple[str, ...], str] | None:
    """The options that a question states by `or`, and the one that is the answer.

    ``Is this a solid or cystic lesion?`` answered by ``Solid`` gives ``("solid", "cystic")`` and ``"solid"``. None
    where the answer stands on neither side of the `or`, or where the other side cannot be told: this is a reading of
    people's words, and a wrong option is worse than an open question.
    """
    wanted = _content(answer)
    parts = _OR.split(question)
    if len(parts) != 2 or not wanted or len(wanted) > _MOST_WORDS:
        return None
    listed = [part.strip() for part in parts[0].split(",")]
    if len(listed) > 1 and all(len(_content(part)) <= _MOST_WORDS for part in listed[1:]) and listed[-1]:
        options = tuple(_words_of(part) for part in [*listed[1:], parts[1]])
        chosen = [option for option in options if _plain(option) == _plain(answer)]
        if len(chosen) == 1 and all(options) and len(set(map(_plain, options))) == len(options):
            return options, chosen[0]
    before, after = _WORD.findall(parts[0]), _WORD.findall(re.split(r"[?.,;(]", parts[1])[0])
    while after and after[0].lower() in _LEAD:
        after = after[1:]
    count = len(wanted)
    left, right = before[-count:], after[:count]
    if [word.lower() for word in left] == wanted:
        chosen_text, other = " ".join(left), " ".join(right)
    elif [word.lower() for word in right] == wanted:
        while left and left[0].lower() in _LEAD:
            left = left[1:]
        chosen_text, other = " ".join(right), " ".join(left)
    else:
        return None
    if not other or "'" in other or _plain(other) == _plain(chosen_text):
        return None
    return ((chosen_text, other) if [word.lower() for word in before[-count:]] == wanted else (other, chosen_text)), (
        chosen_text
    )


def _content(text: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(text)]
    while words and words[0] in _LEAD:
        words = words[1:]
    return words


def _words_of(text: str) -> str:
    return " ".join(re.sub(r"[?.]+\s*$", "", text).split())


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))
