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
"""METEOR 1.5 in Java against its own corpus scores, and nltk's on a WordNet without words."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from nltk.corpus import LazyCorpusLoader, WordNetCorpusReader

from verl_cxr.evaluate.metrics.meteor import JavaMeteor, NltkMeteor, make_meteor
from verl_cxr.evaluate.metrics.scores import UnavailableError

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="no java on the PATH")


@needs_java
def test_meteor_is_that_of_the_java_program(sentences):
    pairs = sentences["pairs"]
    hostile = [("a ||| b\nSCORE ||| x", "a ||| b"), ("\udcff 肺野清晰 🫁", "clear lungs"), ("x" * 5000, "x")]
    (scores,) = JavaMeteor()([*pairs, *hostile])
    ours = scores.part(0, len(pairs))
    assert [ours.value, *ours.samples] == pytest.approx(sentences["meteor"], abs=1e-12)
    assert np.isfinite(scores.samples).all()
    assert scores.made_by == "METEOR 1.5 (Java)"


def test_recorded_scores_are_of_many_kinds(sentences):
    _, *samples = sentences["meteor"]
    assert min(samples) == 0
    assert max(samples) == 1
    assert len({round(value, 3) for value in samples}) > 8


@needs_java
def test_a_java_program_that_fails_says_why(tmp_path):
    meteor = JavaMeteor()
    meteor._folder = tmp_path
    with pytest.raises(UnavailableError, match=r"Java program failed: .*meteor-1.5.jar"):
        meteor([("a", "a")])


def test_without_java_and_wordnet_both_reasons_are_given(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("nltk.data.path", [])
    monkeypatch.setattr("nltk.corpus.wordnet", LazyCorpusLoader("wordnet", WordNetCorpusReader))
    with pytest.raises(
        UnavailableError, match=r"no `java` on the PATH\. nltk's: .*WordNet data are not on this machine"
    ):
        make_meteor()


def test_without_the_jar(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: "java")
    monkeypatch.setattr("verl_cxr.evaluate.metrics.meteor.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'verl-cxr\[eval\]'"):
        JavaMeteor()


def test_nltks_is_named_as_nltks(monkeypatch):
    no_synonyms = SimpleNamespace(ensure_loaded=lambda: None, synsets=lambda word: [])
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("nltk.corpus.wordnet", no_synonyms)
    meteor = make_meteor()
    assert isinstance(meteor, NltkMeteor)
    (scores,) = meteor([("clear lungs", "clear lungs"), ("a", "b")])
    assert scores.label == "METEOR (nltk)"
    # two words in one chunk: 1 - 0.5 * (1 / 2) ** 3
    assert scores.samples == (pytest.approx(1 - 0.5 / 8), 0)
