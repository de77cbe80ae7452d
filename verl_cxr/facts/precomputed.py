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
"""Fact graphs that were made elsewhere: a file of them answers for the texts it holds, and for no other.

Two layouts, plain or gzipped, also mixed in one file. One graph a row, or the `radgraph` package's own output, whose
keys count the texts of one call (a whole file, or one such object a row)::

    {"text": "Small left effusion.", "entities": {"1": {"tokens": "effusion", "label": ..., "relations": []}}}
    {"0": {"text": "No pneumothorax .", "entities": {...}}, "1": {...}}

Texts are matched by their words and punctuation, not their white space: the package writes ``pneumothorax .`` for a
text that read ``pneumothorax.``.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from verl_cxr.facts.graph import FactGraph, GraphError, tokenize
from verl_cxr.facts.scorer import FactServiceError

__all__ = ["PrecomputedGraphs"]


class PrecomputedGraphs:
    """The annotator that looks texts up in the file at `path`; reads it once, when made.

    Raises:
        FactServiceError: the file cannot be read.
        GraphError: a row is no graph, or two rows give one text different entities.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._graphs: dict[str, FactGraph] = {}
        for where, record in _records(self.path):
            graph = FactGraph.from_dict(record, where=where)
            earlier = self._graphs.setdefault(_key(graph.text), graph)
            if earlier.entities != graph.entities:
                raise GraphError(f"{where}: the text {graph.text!r:.200} has other entities in an earlier row")

    def __call__(self, texts: Sequence[str]) -> list[FactGraph]:
        """One graph a text, in order.

        Raises:
            FactServiceError: a text is not in the file.
        """
        return [self._find(text) for text in texts]

    def _find(self, text: str) -> FactGraph:
        graph = self._graphs.get(_key(text))
        if graph is None:
            raise FactServiceError(
                f"{self.path} holds no fact graph for the text {text!r:.300}: annotate it and add its row "
                f"({len(self._graphs)} texts are there)"
            )
        return graph


def _key(text: str) -> str:
    return " ".join(tokenize(text))


def _records(path: Path) -> Iterator[tuple[str, object]]:
    """Each graph of the file as a decoded JSON value, with a name for where it stands."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise FactServiceError(f"the fact graphs of {path} cannot be read: {error}") from error
    for where, value in _values(text, path):
        if isinstance(value, dict) and value and "text" not in value and "entities" not in value:
            for key, record in value.items():
                yield f"{where}, graph {key!r}", record
        else:
            yield where, value


def _values(text: str, path: Path) -> Iterator[tuple[str, object]]:
    try:
        whole = json.loads(text)
    except ValueError:  # more than one value: rows
        pass
    else:
        yield str(path), whole
        return
    for row, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield f"{path}, row {row}", json.loads(line)
        except ValueError as error:
            raise GraphError(f"{path}, row {row}: not JSON ({error})") from error
