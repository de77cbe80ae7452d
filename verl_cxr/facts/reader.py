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
"""Reads each text once: from memory, else from the store, else with the annotator. Threads may share a reader."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from verl_cxr.facts.graph import FactGraph
from verl_cxr.facts.radgraph import Outcome, RadGraphAnnotator, all_or_raise
from verl_cxr.facts.radgraph_options import RadGraphOptions
from verl_cxr.facts.radgraph_words import collapse
from verl_cxr.facts.store import FactStore
from verl_cxr.facts.weights import fetch, locate

__all__ = ["FactReader", "ReaderCounts", "open_reader"]


@dataclass(slots=True)
class ReaderCounts:
    """Where the texts that were asked for came from; repeated texts of one call count once."""

    memory: int = 0
    store: int = 0
    read: int = 0


class FactReader:
    """The annotator, with what it has read before.

    Args:
        annotator: reads what is new.
        store: keeps graphs between runs and processes; None: they last as long as this object.
        remember: graphs held in memory, those used last; one of a phrase takes about 3 kB.
    """

    def __init__(
        self, annotator: RadGraphAnnotator, *, store: FactStore | None = None, remember: int = 100_000
    ) -> None:
        self.annotator = annotator
        self.store = store
        self.counts = ReaderCounts()
        self._remember = remember
        self._memory: OrderedDict[str, FactGraph] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> list[FactGraph]:
        """One graph a text, in order.

        Raises:
            FactServiceError: a text could not be read; the others are kept.
            StoreError: the store failed.
        """
        return all_or_raise(self.read([collapse(text) for text in texts]))

    def remembered(self, text: str) -> FactGraph | None:
        """The graph of a collapsed text if it is in memory; does not wait for an annotator at work."""
        with self._lock:
            graph = self._memory.get(text)
            if graph is not None:
                self._memory.move_to_end(text)
                self.counts.memory += 1
        return graph

    def read(self, texts: Sequence[str]) -> list[Outcome]:
        """One graph a text, in order, or the error that this text alone met.

        Args:
            texts: collapsed, see `verl_cxr.facts.radgraph_words.collapse`.

        Raises:
            StoreError: the store failed.
        """
        found: dict[str, Outcome] = {}
        for text in dict.fromkeys(texts):
            known = self.remembered(text)
            if known is not None:
                found[text] = known
        unknown = [text for text in dict.fromkeys(texts) if text not in found]
        if self.store is not None and unknown:
            stored = self.store.get(unknown)
            found |= stored
            self.counts.store += len(stored)
            unknown = [text for text in unknown if text not in stored]
        if unknown:
            found |= zip(unknown, self.annotator.read(unknown), strict=True)
            self.counts.read += len(unknown)
            if self.store is not None:
                self.store.put({text: graph for text in unknown if isinstance(graph := found[text], FactGraph)})
        with self._lock:
            for text, read in found.items():
                if isinstance(read, FactGraph):
                    self._memory[text] = read
            while len(self._memory) > self._remember:
                self._memory.popitem(last=False)
        return [found[text] for text in texts]

    def close(self) -> None:
        """Let go of the store."""
        if self.store is not None:
            self.store.close()


def open_reader(options: RadGraphOptions) -> FactReader:
    """Load the weights and open the store.

    Raises:
        WeightsError, StoreError: either cannot be used.
    """
    files = (fetch if options.download else locate)(options.model_type, options.weights)
    annotator = RadGraphAnnotator(files, device=options.device)
    store = None
    if options.store is not None:
        store = FactStore(
            options.store,
            fingerprint=annotator.fingerprint,
            name=options.model_type,
            max_bytes=int(options.store_gib * (1 << 30)),
        )
    return FactReader(annotator, store=store)
