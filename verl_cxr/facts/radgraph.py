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
"""RadGraph as an annotator: any texts in, the graphs of the `radgraph` package out, many times faster.

The package reads one text in about 150 ms of one core. Here equal texts are read once, short ones are padded together
into batches of similar length, and nothing is kept for a backward pass (Jain et al. 2021, RadGraph; Delbrouck et al.
2024, RadGraph-XL; the speed and the equality are measured in tests/benchmarks/radgraph.py).

Where it departs from the package, on purpose:

* a blank text has an empty graph (the package crashes on white space, and reads "" as the word "None");
* a text of more than 512 words is read in windows, without relations between them (the package would need the square
  of the number of its words in memory).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from verl_cxr.facts.graph import Entity, FactGraph
from verl_cxr.facts.radgraph_forward import Pieces, Reading, read_alone, read_batch, words_of_encoder
from verl_cxr.facts.radgraph_model import load_model
from verl_cxr.facts.radgraph_words import PREPROCESSING, split_words, windows
from verl_cxr.facts.scorer import FactServiceError
from verl_cxr.facts.weights import RadGraphFiles

__all__ = ["Outcome", "RadGraphAnnotator", "all_or_raise", "batches"]

Outcome = FactGraph | FactServiceError
"""What became of one text: its graph, or why it has none."""

_log = logging.getLogger(__name__)

PAIRS = 16_384
"""Pairs of candidate spans in one batch: a pair takes about 20 kB at RadGraph-XL's size."""
_PIECES = {"cpu": 512, "cuda": 16_384}
_KNOWN_WORDS = 200_000


@dataclass(slots=True)
class _Part:
    """One window of a text, on its way through the model."""

    words: list[str]
    pieces: Pieces
    reading: Reading | None = None
    error: Exception | None = None
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = 2 + sum(map(len, self.pieces))


class RadGraphAnnotator:
    """Reads texts with the weights of `files`; threads may share one, they take turns.

    Args:
        files: see `verl_cxr.facts.weights.locate`.
        device: ``"cpu"`` or ``"cuda[:n]"``; never chosen for you.
        pieces: word pieces in one batch, padding included. Default: 512 on a CPU, where more does not help.

    Attributes:
        fingerprint: hash of all that decides an annotation but the text; part of the keys of a store.
        alone: how many texts were read one by one so far: long ones, and those that a batch left undecided.

    Raises:
        WeightsError: see `verl_cxr.facts.radgraph_model.load_model`.
    """

    def __init__(self, files: RadGraphFiles, *, device: str = "cpu", pieces: int | None = None) -> None:
        self.model_type = files.model_type
        self.fingerprint = f"{files.fingerprint()}/{PREPROCESSING}"
        self.alone = 0
        self._model = load_model(files, device=device)
        self._budget = pieces or _PIECES[self._model.device.type]
        self._pieces: dict[str, list[int]] = {}
        self._turn = threading.Lock()
        # otherwise a span embedding depends on co-reference between all spans of a text, which a batch does not compute
        self._batchable = not self._model.model._coref.coref_prop

    def __call__(self, texts: Sequence[str]) -> list[FactGraph]:
        """One graph a text, in order; see `read`.

        Raises:
            FactServiceError: a text could not be read.
        """
        return all_or_raise(self.read(texts))

    def read(self, texts: Sequence[str]) -> list[Outcome]:
        """One graph a text, in order, or the error that this text alone met. Equal texts are read once."""
        with self._turn:
            words = {text: split_words(text, model_type=self.model_type) for text in dict.fromkeys(texts)}
            parts = self._parts(words)
            self._read(list(parts.values()))
        graphs = {
            text: _assemble(text, words[text], [parts[tuple(part)] for part in windows(words[text])]) for text in words
        }
        return [graphs[text] for text in texts]

    def _parts(self, texts: dict[str, list[str]]) -> dict[tuple[str, ...], _Part]:
        wanted = {tuple(part): part for words in texts.values() for part in windows(words)}
        self._look_up({word for part in wanted.values() for word in words_of_encoder(part)})
        return {
            key: _Part(part, [self._pieces[word] for word in words_of_encoder(part)]) for key, part in wanted.items()
        }

    def _look_up(self, words: Iterable[str]) -> None:
        """Word pieces of the words that are new; each word is cut on its own, as the package does."""
        if len(self._pieces) > _KNOWN_WORDS:
            self._pieces.clear()
            words = list(words)
        unknown = [word for word in words if word not in self._pieces]
        if unknown:
            found = self._model.tokenizer(unknown, add_special_tokens=False)["input_ids"]
            self._pieces.update(zip(unknown, found, strict=True))

    def _read(self, parts: list[_Part]) -> None:
        """Fill in each part's reading, or its error."""
        if self._batchable:
            fitting = [part for part in parts if part.length <= self._model.max_pieces]
            for batch in batches(fitting, pieces=self._budget, pairs=PAIRS):
                try:
                    readings = read_batch(self._model, [part.pieces for part in batch])
                except RuntimeError as error:  # torch's, out of memory for one: none of these texts is lost for it
                    _log.warning("a batch of %d texts failed and is read one by one: %s", len(batch), error)
                    continue
                for part, reading in zip(batch, readings, strict=True):
                    part.reading = reading
        for part in parts:
            if part.reading is None:
                self.alone += 1
                try:
                    part.reading = read_alone(self._model, part.words)
                except Exception as error:  # whatever it is, it is this text's alone
                    part.error = error


def batches(parts: Iterable[_Part], *, pieces: int, pairs: int) -> Iterator[list[_Part]]:
    """Parts of similar length together, such that a padded batch has at most `pieces` word pieces and `pairs` pairs.

    A part that is too long for any batch is one by itself.
    """
    batch: list[_Part] = []
    most = 0
    for part in sorted(parts, key=lambda part: (part.length, len(part.words))):
        most = max(most, len(part.words))
        size = len(batch) + 1
        if batch and (size * part.length > pieces or size * most * most > 4 * pairs):  # half the words make pairs
            yield batch
            batch, most = [], len(part.words)
        batch.append(part)
    if batch:
        yield batch


def all_or_raise(outcomes: Iterable[Outcome]) -> list[FactGraph]:
    """The graphs, if every text has one.

    Raises:
        FactServiceError: the first error among them.
    """
    graphs = []
    for outcome in outcomes:
        if isinstance(outcome, FactServiceError):
            raise outcome
        graphs.append(outcome)
    return graphs


def _assemble(text: str, words: list[str], parts: Sequence[_Part]) -> Outcome:
    """The graph of a text from its windows."""
    entities: list[Entity] = []
    start = 0
    for part in parts:
        if part.reading is None:
            error = FactServiceError(f"RadGraph could not read the text {text!r:.300}: {part.error!r}")
            error.__cause__ = part.error
            return error
        entities += _entities(part, offset=start, count=len(entities))
        start += len(part.words)
    return FactGraph(" ".join(words), tuple(entities))


def _entities(part: _Part, *, offset: int, count: int) -> list[Entity]:
    """Entities numbered from ``count + 1``; a relation that starts or ends at a span without a label is dropped."""
    assert part.reading is not None
    ids = {span: str(number) for number, (span, _) in enumerate(part.reading.entities, count + 1)}
    relations: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for source, target, kind in part.reading.relations:
        if target in ids:
            relations.setdefault(source, []).append((kind, ids[target]))
    return [
        Entity(
            ids[span],
            " ".join(part.words[span[0] : span[1] + 1]),
            label,
            span[0] + offset,
            span[1] + offset,
            tuple(relations.get(span, ())),
        )
        for span, label in part.reading.entities
    ]
