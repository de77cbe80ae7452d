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
"""The plain form of a text: what two writings of one answer have in common."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

__all__ = ["Token", "contents", "plain", "singular", "tokens", "words"]

_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe00-\ufe0f]")
_MARKUP = re.compile(r"<[^<>\n]{0,40}>|\\(?:text|textbf|mathrm|mathbf|mathsf|boxed|rm|bf)\b|[*_`#~$\\]")
_QUOTES = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2010": "-", "\u2011": "-", "\u2013": "-"}
    | {"\u2014": "-", "\u2212": "-"}
)
_TOKEN = re.compile(r"\n|[^\W_]+(?:'[^\W_]+)?|[^\w\s]")
_ARTICLES = frozenset({"a", "an", "the"})
_FILLERS = _ARTICLES | {
    "is", "are", "was", "in", "on", "of", "at", "it", "its", "this", "that", "there", "here", "seen", "shown", "shows",
    "image", "film", "radiograph", "located", "side", "by", "as",
}  # fmt: skip
_NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
}

Token = str
"""A word, a punctuation mark, or a line break."""


def plain(text: str) -> str:
    """The text without compatibility forms, invisible letters, typographic quotes and mark-up. Case and lines stay."""
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).translate(_QUOTES)
    return _MARKUP.sub(" ", text)


def tokens(text: str) -> list[Token]:
    """Words and marks of a :func:`plain` text, in its case."""
    return _TOKEN.findall(text)


@lru_cache(maxsize=4096)
def singular(word: str) -> str:
    """The word in lower case without a plural s, and digits for number words."""
    word = word.lower()
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _NUMBERS.get(word, word)


def words(text: str) -> tuple[str, ...]:
    """The words of a text, singular and in lower case, without articles; its words as they are if it is an article."""
    found = [singular(token) for token in tokens(plain(text)) if token[0].isalnum()]
    return tuple(word for word in found if word not in _ARTICLES) or tuple(found)


def contents(text: str) -> tuple[str, ...]:
    """The words that carry an open answer, sorted: "in the right lung" and "Lung, right" have the same."""
    found = words(text)
    return tuple(sorted(word for word in found if word not in _FILLERS)) or tuple(sorted(found))
