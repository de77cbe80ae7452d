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
"""Numbers that a text gives for a measurement: "CTR of 0.55", "an LFA of -0.36", "0.61 cardiothoracic ratio"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reward_plugins.relevance import MeasurementTable

__all__ = ["Quotation", "numbers_of", "quotations"]

_SIGN_AND_DIGITS = r"(?P<sign>(?<![\w)])[-+])?(?<![\w.])(?P<digits>{})(?P<unit>\s?%|\s?percent\b|\s?[cm]m\b)?"
_NUMBER = re.compile(_SIGN_AND_DIGITS.format(r"\d{1,9}(?:\.\d{1,9})?|\.\d{1,9}"))
_BEFORE = re.compile(_SIGN_AND_DIGITS.format(r"\d{0,9}\.\d{1,9}") + r"\s*(?:\(|=|is|for|as)?\s*(?:the )?$")
_REACH, _REACH_BACK = 60, 24  # characters between a name and its number
_STOP = re.compile(r"[.;!?]\s|\n\n")
_COMPARING = re.compile(
    r"[<>\u2264\u2265]|\b(?:above|over|beyond|below|under|than|exceed\w*|threshold|limit|cut-?\s?off|normal|abnormal)\b"
)
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Quotation:
    """A name of a measurement and the number that goes with it.

    Attributes:
        name: of the measurement, as the table has it.
        start, end: of the name in the text, and of the number if it follows.
        value: None where the unit is a length, in which no measurement is given.
        signed: the text writes a sign.
    """

    name: str
    start: int
    end: int
    value: float | None
    signed: bool


def numbers_of(text: str) -> frozenset[str]:
    """The digits of all numbers of a text."""
    return frozenset(number["digits"] for number in _NUMBER.finditer(text))


def quotations(text: str, table: MeasurementTable, given: frozenset[str] = frozenset()) -> list[Quotation]:
    """Each name of a measurement with the number that follows it, or else precedes it, in the order of the text.

    Args:
        text: plain and in lower case.
        table: names and limits.
        given: digits that the question gives: to repeat them is not to quote a measurement.
    """
    names = sorted((*match.span(), name) for name, m in table.measures.items() for match in m.named.finditer(text))
    found: list[Quotation] = []
    start = 0
    for place, (begin, end, name) in enumerate(names):
        _, previous_end, previous = names[place - 1] if place else (0, 0, "")
        if previous != name or _WORD.search(
            text, previous_end, begin
        ):  # else: "lung-field asymmetry (LFA)" is one name
            start = begin
        following = names[place + 1][0] if place + 1 < len(names) else len(text)
        piece = text[end : max(end, min(end + _REACH, following))]
        stop = _STOP.search(piece)
        number = _first(piece[: stop.start()] if stop else piece, table.measures[name].limits, given)
        if number is not None:
            found.append(_quotation(name, start, end + number.end(), number))
        elif before := _BEFORE.search(text[max(0, begin - _REACH_BACK) : begin]):
            found.append(_quotation(name, start, end, before))
    return found


def _first(piece: str, limits: Sequence[float], given: frozenset[str]) -> re.Match[str] | None:
    """The first number that can be a value: none of the question's, no limit of comparison, no count."""
    for number in _NUMBER.finditer(piece):
        if number["digits"] in given or ("." not in number["digits"] and not number["unit"]):
            continue
        if _value(number) in limits and _COMPARING.search(piece, 0, number.start()):
            continue
        return number
    return None


def _quotation(name: str, start: int, end: int, number: re.Match[str]) -> Quotation:
    return Quotation(name, start, end, _value(number), number["sign"] is not None)


def _value(number: re.Match[str]) -> float | None:
    unit = (number["unit"] or "").strip()
    if unit in ("cm", "mm"):
        return None
    value = float(number["digits"]) / (100 if unit else 1)
    return -value if number["sign"] == "-" else value
