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
"""Where in a response its answer stands: in tags, in a box, after "the answer is", or nowhere in particular."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from verl_cxr.answers.wording import plain

__all__ = ["Place", "Scope", "scope_of", "tagged"]

_LIMIT = 4000  # characters that are read at either end; no answer needs more, and the time is to be bounded
_CUES = 8  # the last ones that are tried; a text with more of them is playing
_OPENING = re.compile(r"<\s?answer\s?>", re.IGNORECASE)
_CLOSING = re.compile(r"<\s?/\s?answer\s?>", re.IGNORECASE)
_CUE = re.compile(
    r"""\b(?:answer|(?:correct|best|right|final)\ (?:option|choice|statement|diagnosis|one))["')\]\s]{0,4}
        (?::|=|(?:is|are|would\ be|should\ be|must\ be)\b):?
      | \bI(?:\ would|'d|\ will|'ll)?\ (?:choose|pick|select|answer|go\ with)\b:?""",
    re.IGNORECASE | re.VERBOSE,
)
_SENTENCE_END = re.compile(r"[.!?;]\s|\n")


class Place(str, Enum):
    """What marks the place of an answer."""

    TAGS = "tags"
    BOX = "box"
    """LaTeX's ``\\boxed{}``."""
    TEXT = "text"
    """Nothing: it is somewhere in the text after the thoughts."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The piece of a response that holds its answer, in plain form (see :func:`~verl_cxr.answers.wording.plain`)."""

    place: Place
    text: str
    """All of it, or its last part."""
    first_line: str
    last_line: str

    def cues(self) -> list[str]:
        """What follows each "the answer is", to the end of its sentence; the last one first."""
        ends = [cue.end() for cue in _CUE.finditer(self.text)][-_CUES:]
        return [_sentence(self.text[end : end + _LIMIT]) for end in reversed(ends)]


def scope_of(text: str) -> Scope | None:
    """Where to look for the answer; None where the response ends before its thoughts do, or says nothing."""
    inside = tagged(text)
    if inside is not None:
        return _scope(Place.TAGS, inside)
    said = _said(text)
    boxed = _boxed(said)
    return _scope(Place.TEXT, said) if boxed is None else _scope(Place.BOX, boxed)


def tagged(text: str) -> str | None:
    """What the last ``<answer>`` tag encloses, to the end of the text if it is not closed; None without a tag."""
    opening = None
    for found in _OPENING.finditer(text):
        opening = found
    if opening is None:
        return None
    closing = _CLOSING.search(text, opening.end())
    return text[opening.end() : closing.start() if closing else len(text)].strip()


def _said(text: str) -> str:
    """The text without thoughts and tool calls."""
    start, end = text.rfind("<think>"), text.rfind("</think>")
    if start > end:
        return ""
    return text[end + len("</think>") if end >= 0 else 0 :].partition("<tool_call>")[0]


def _boxed(text: str) -> str | None:
    """What the last box encloses; None without a box that closes."""
    start = text.rfind(r"\boxed{")
    if start < 0:
        return None
    depth, start = 0, start + len(r"\boxed{")
    for at in range(start, min(start + _LIMIT, len(text))):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth < 0:
            return text[start:at]
    return None


def _scope(place: Place, text: str) -> Scope | None:
    text = text.strip()
    tail, head = plain(text[-_LIMIT:]).strip(), plain(text[:_LIMIT]).strip()
    if not tail and not head:
        return None
    return Scope(place, tail, head.partition("\n")[0].strip(), tail.rpartition("\n")[2].strip())


def _sentence(text: str) -> str:
    text = text.lstrip()
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text
