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
"""White space, blanks of de-identification, and sentences of report text."""

from __future__ import annotations

import re

__all__ = ["clean_text", "has_blank", "split_sentences"]

_SPACE = re.compile(r"\s+")
_UNDERSCORES = re.compile(r"_{2,}")
_BLANK = re.compile(r"___|\bXXXX\b")
_WET_READ = re.compile(r"WET READ(?: VERSION #\d+)?: (?:___ ?)*(?:\w{3} )?(?:___ )?\d{1,2}:\d{2} [AP]M ?")
_TITLE = re.compile(
    r"^(?:FINAL REPORT\s+)?(?:(?:SINGLE|PORTABLE|UPRIGHT|SUPINE|SEMI-?(?:UPRIGHT|ERECT)|ERECT|FRONTAL|LATERAL|AP|PA|AND"
    r"|TWO|ONE|VIEWS?|OF|THE|CHEST|RADIOGRAPHS?|XR|FINDINGS|IMPRESSION)\b[\s,/]*)+[:.]\s*"
)
# A full stop ends a sentence before a capital, a digit or a bracket, but not behind an initial, a title or the number
# of an item in a list.
_END = re.compile(r"(?:(?<=[\w)\]%][.?!])|(?<=[.?!][)\]]))\s+(?=[A-Z0-9\[(_])")
_NO_END = re.compile(r"(?:\b(?:Dr|Drs|Mr|Mrs|Ms|vs|No|St|approx|e\.g|i\.e)|(?:^|\s)\d{1,2}|\b[A-Z])\.$")


def clean_text(text: str) -> str:
    """Report text in one line: white space single, runs of underscores as `___`, titles of views and wet reads away."""
    text = _UNDERSCORES.sub("___", _SPACE.sub(" ", text)).strip()
    if "WET READ" in text:
        text = _WET_READ.sub("", text)
    return _TITLE.sub("", text)


def has_blank(text: str) -> bool:
    """Whether de-identification took a word out: `___` in MIMIC-CXR, `XXXX` in Open-i."""
    return _BLANK.search(text) is not None


def split_sentences(text: str) -> list[str]:
    """The sentences of a text in one line."""
    if ". " not in text and "? " not in text and "! " not in text:
        return [text] if text else []
    sentences: list[str] = []
    for piece in _END.split(text):
        if sentences and _NO_END.search(sentences[-1]):
            sentences[-1] += f" {piece}"
        else:
            sentences.append(piece)
    return [sentence for sentence in sentences if sentence]
