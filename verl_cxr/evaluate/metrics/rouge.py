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
"""ROUGE-L: the F-measure over the longest common subsequence of stemmed words, the mean over reports."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from verl_cxr.evaluate.metrics.scores import Pair, Scores, UnavailableError, mean_of

__all__ = ["RougeL"]


class RougeL:
    """ROUGE-L by Google's rouge_score, with its Porter stemmer.

    Raises:
        UnavailableError: rouge_score is not installed.
    """

    def __init__(self) -> None:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise UnavailableError("rouge-score is not installed: pip install 'verl-cxr[eval]'") from None
        self._scorer = RougeScorer(["rougeL"], use_stemmer=True)

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores]:
        """See `verl_cxr.evaluate.metrics.scores.Metric`."""
        samples = [float(self._scorer.score(reference, predicted)["rougeL"].fmeasure) for predicted, reference in pairs]
        return [mean_of("rougeL", "ROUGE-L", f"rouge_score {version('rouge-score')}, stemmed", samples)]
