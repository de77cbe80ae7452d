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
"""METEOR: version 1.5 in Java, which papers report; nltk's, another metric of that name, only where there is no Java.

The package pycocoevalcap ships METEOR's jar and its paraphrase table; nothing is downloaded. The jar counts matches,
one line of 23 numbers a pair, and the score of sums of such lines is the corpus score (Denkowski and Lavie 2014).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from verl_cxr.evaluate.metrics.scores import Metric, Numbers, Pair, Scores, UnavailableError, mean_of

__all__ = ["JavaMeteor", "NltkMeteor", "make_meteor"]

# English, task "rank": the defaults of 1.5
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])  # exact, stem, synonym, paraphrase


def make_meteor() -> Metric:
    """METEOR 1.5 where Java and the jar are, else nltk's.

    Raises:
        UnavailableError: there is neither.
    """
    try:
        return JavaMeteor()
    except UnavailableError as no_java:
        try:
            return NltkMeteor()
        except UnavailableError as no_nltk:
            raise UnavailableError(f"METEOR 1.5: {no_java}. nltk's: {no_nltk}") from None


class JavaMeteor:
    """METEOR 1.5, English, texts normalised by it (``-norm``): what the scorer of COCO captions runs.

    Raises:
        UnavailableError: no Java, or no jar.
    """

    def __init__(self) -> None:
        java, package = shutil.which("java"), find_spec("pycocoevalcap")
        if java is None:
            raise UnavailableError("there is no `java` on the PATH")
        if package is None or not package.submodule_search_locations:
            raise UnavailableError("pycocoevalcap, which holds the jar, is not installed: pip install 'verl-cxr[eval]'")
        self._folder = Path(package.submodule_search_locations[0]) / "meteor"
        self._command = [java, "-Xmx2G", "-Dfile.encoding=UTF-8", "-jar", "meteor-1.5.jar"]
        self._command += ["-", "-", "-stdio", "-l", "en", "-norm"]

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores]:
        """See `verl_cxr.evaluate.metrics.scores.Metric`."""
        distinct = list(dict.fromkeys(pairs))
        found = dict(zip(distinct, self._count(distinct), strict=True))
        counts = np.array([found[pair] for pair in pairs])
        # as METEOR adds them up: a text that matches its reference as a whole is not fragmented
        whole = (counts[:, 20] == 1) & (counts[:, 21] == counts[:, 0]) & (counts[:, 22] == counts[:, 1])
        counts[whole, 20] = 0
        samples = tuple(float(value) for value in _pool(counts))
        return [Scores("meteor", "METEOR", "METEOR 1.5 (Java)", samples, counts, _pool)]

    def _count(self, pairs: Sequence[Pair]) -> list[list[float]]:
        lines = [f"SCORE ||| {_one_line(reference)} ||| {_one_line(predicted)}\n" for predicted, reference in pairs]
        done = subprocess.run(
            self._command, cwd=self._folder, input="".join(lines).encode(errors="replace"), capture_output=True
        )
        counts = [[float(number) for number in line.split()] for line in done.stdout.decode().splitlines()]
        if done.returncode or len(counts) != len(pairs) or any(len(row) != 23 for row in counts):
            problem = done.stderr.decode(errors="replace").strip() or f"{len(counts)} lines for {len(pairs)} pairs"
            raise UnavailableError(f"METEOR's Java program failed: {problem[-500:]}")
        return counts


class NltkMeteor:
    """nltk's METEOR, the mean over reports, on words and punctuation marks. Its numbers are not those of METEOR 1.5.

    Raises:
        UnavailableError: nltk or its WordNet is not there.
    """

    def __init__(self) -> None:
        try:
            from nltk.corpus import wordnet
            from nltk.translate.meteor_score import meteor_score

            wordnet.ensure_loaded()
        except ImportError:
            raise UnavailableError("nltk is not installed: pip install 'verl-cxr[eval]'") from None
        except LookupError:
            raise UnavailableError("nltk's WordNet data are not on this machine (nltk.download('wordnet'))") from None
        self._score, self._wordnet = meteor_score, wordnet

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores]:
        """See `verl_cxr.evaluate.metrics.scores.Metric`."""
        from nltk.tokenize import wordpunct_tokenize

        samples = [
            float(self._score([wordpunct_tokenize(reference)], wordpunct_tokenize(predicted), wordnet=self._wordnet))
            for predicted, reference in pairs
        ]
        return [mean_of("meteor", "METEOR (nltk)", f"nltk {version('nltk')} METEOR", samples)]


def _one_line(text: str) -> str:
    return " ".join(text.replace("|||", " ").split())


def _pool(counts: Numbers) -> Numbers:
    """(..., 23) sums of METEOR's counts to (...) scores.

    Lengths of the two texts, their function words, their matches; for each of the four kinds of match: content words of
    either text, function words of either; chunks; matched words of either text.
    """
    stages = counts[..., 4:20].reshape(*counts.shape[:-1], 4, 4)
    content, function = stages[..., :2], stages[..., 2:]
    matched = (_WEIGHTS[:, None] * (_DELTA * content + (1 - _DELTA) * function)).sum(axis=-2)
    lengths, functions = counts[..., 0:2], counts[..., 2:4]
    words = _DELTA * (lengths - functions) + (1 - _DELTA) * functions
    share = np.divide(matched, words, out=np.zeros_like(matched), where=words > 0)
    precision, recall = share[..., 0], share[..., 1]
    product = precision * recall
    mean = np.divide(product, _ALPHA * precision + (1 - _ALPHA) * recall, out=np.zeros_like(product), where=product > 0)
    chunks, aligned = counts[..., 20], counts[..., 21:23].mean(axis=-1)
    fragmentation = np.divide(chunks, aligned, out=np.zeros_like(chunks), where=aligned > 0)
    return np.asarray(mean * (1 - _GAMMA * fragmentation**_BETA), dtype=float)
