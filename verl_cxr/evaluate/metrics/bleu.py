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
"""BLEU as the scorer of COCO captions computes it: words split at white space, case kept, one n-gram count a corpus.

sacrebleu counts; the formula is COCO's, whose small constants keep a text without a matching 4-gram a little above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version

import numpy as np

from verl_cxr.evaluate.metrics.scores import Numbers, Pair, Scores, UnavailableError

__all__ = ["MAX_ORDER", "Bleu"]

MAX_ORDER = 4
_TINY, _SMALL = 1e-15, 1e-9  # COCO's


class Bleu:
    """BLEU of one order (the geometric mean of the precisions up to it).

    Raises:
        UnavailableError: sacrebleu is not installed.
    """

    def __init__(self, order: int) -> None:
        try:
            from sacrebleu.metrics.bleu import BLEU
        except ImportError:
            raise UnavailableError("sacrebleu is not installed: pip install 'verl-cxr[eval]'") from None
        self._order = order
        self._scorer = BLEU(tokenize="none", smooth_method="none", max_ngram_order=MAX_ORDER, force=True)

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores]:
        """See `verl_cxr.evaluate.metrics.scores.Metric`."""
        counts = np.array([self._count(*pair) for pair in pairs], dtype=float)
        pool = partial(_pool, order=self._order)
        samples = tuple(float(value) for value in pool(counts))
        made_by = f"sacrebleu {version('sacrebleu')}, COCO's formula"
        return [Scores(f"bleu{self._order}", f"BLEU-{self._order}", made_by, samples, counts, pool)]

    def _count(self, predicted: str, reference: str) -> list[int]:
        found = self._scorer.corpus_score([predicted], [[reference]])
        return [*found.counts, *found.totals, found.sys_len, found.ref_len]


def _pool(counts: Numbers, *, order: int) -> Numbers:
    """(..., 10) sums of matching n-grams, n-grams and the two lengths to (...) BLEU."""
    matches, totals = counts[..., :order], counts[..., MAX_ORDER : MAX_ORDER + order]
    ratio = (counts[..., -2] + _TINY) / (counts[..., -1] + _SMALL)
    precision = np.prod((matches + _TINY) / (totals + _SMALL), axis=-1) ** (1 / order)
    return np.asarray(precision * np.exp(np.minimum(1 - 1 / ratio, 0)), dtype=float)
