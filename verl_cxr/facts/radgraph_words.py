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
"""From a text to the words that RadGraph reads, as the package cuts them; long texts in windows."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from verl_cxr.facts.radgraph_compat import load_package

__all__ = ["MAX_CHARACTERS", "MAX_WORDS", "PREPROCESSING", "WINDOW_WORDS", "collapse", "split_words", "windows"]

PREPROCESSING = 1
"""Part of a store's keys: raise it when anything here changes an annotation."""

MAX_WORDS = 512
MAX_CHARACTERS = 16_384
"""Longest text that is read in one piece. The package scores every pair of half its words: beyond this it needs
gigabytes, at ten thousand words hundreds of them."""
WINDOW_WORDS = 256


def collapse(text: str) -> str:
    """The text with single spaces and without lone surrogates, which no tokenizer or file can hold.

    RadGraph sees no difference, so texts that collapse to the same one share an annotation.
    """
    text = " ".join(text.split())
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def split_words(text: str, *, model_type: str) -> list[str]:
    """The words of `text`, punctuation on its own, by the package's own preprocessing; none for a blank text."""
    load_package()
    if not text.strip():
        return []
    utils = importlib.import_module("radgraph.utils")
    words: list[str] = utils.preprocess_reports([collapse(text)], model_type)[0]["sentences"][0]
    return words


def windows(words: Sequence[str]) -> list[list[str]]:
    """The parts that are read on their own: all of `words` in one unless they are too many, see `MAX_WORDS`.

    A word that alone has more than `MAX_CHARACTERS` is read by its beginning.
    """
    if len(words) <= MAX_WORDS and sum(map(len, words)) <= MAX_CHARACTERS:
        return [list(words)] if words else []
    parts: list[list[str]] = [[]]
    room = MAX_CHARACTERS
    for word in words:
        word = word[:MAX_CHARACTERS]
        if len(parts[-1]) == WINDOW_WORDS or len(word) > room:
            parts.append([])
            room = MAX_CHARACTERS
        parts[-1].append(word)
        room -= len(word)
    return [part for part in parts if part]
