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
"""What every fact scorer does: its name, its options, one annotation a text, and failures that are errors."""

from __future__ import annotations

import pytest

from verl_cxr.facts import Entity, FactGraph, FactServiceError, GraphScorer, make_scorer


def test_exact_compares_sentences():
    scorer = make_scorer("exact")
    pairs = [
        ("The left lung is clear.", "the  left lung\nis clear"),
        ("The left lung is clear.", "The right lung is clear."),
        ("", "Clear."),
        (" ", "\n."),
    ]
    assert scorer.score(pairs) == [1.0, 0.0, 0.0, None]
    assert scorer.name == "exact"
    assert scorer.score([]) == []


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "lexicon/partial"),
        ({"level": "complete"}, "lexicon/complete"),
        ({"case": "lower"}, "lexicon/partial/lower"),
    ],
)
def test_the_stamp_says_how_it_was_scored(options, name):
    assert make_scorer("lexicon", **options).name == name


@pytest.mark.parametrize("spec", ["", "Exact", "radgraph-xxl", "precomputed", "precomputed:", "lexicon:x"])
def test_an_unknown_name_is_refused(spec):
    with pytest.raises(ValueError, match="unknown fact scorer"):
        make_scorer(spec)


@pytest.mark.parametrize("options", [{"level": "all"}, {"case": "upper"}])
def test_an_unknown_option_is_refused(options):
    with pytest.raises(ValueError, match="is one of"):
        make_scorer("lexicon", **options)


def one_word_a_fact(texts):
    return [
        FactGraph(
            text, tuple(Entity(str(i), word, "Observation::uncertain", i, i) for i, word in enumerate(text.split()))
        )
        for text in texts
    ]


def test_each_text_is_annotated_once_and_blank_ones_never():
    calls = []

    def annotate(texts):
        calls.append(list(texts))
        return one_word_a_fact(texts)

    scorer = GraphScorer(annotate, name="words")
    pairs = [("a b", "b c"), ("b c", "a b"), ("a b", "b c"), ("", "a b"), (" ", ""), ("a b", "a b")]
    assert scorer.score(pairs) == [0.5, 0.5, 0.5, 0.0, None, 1.0]
    assert calls == [["a b", "b c"]]
    assert scorer.score([("", " ")]) == [None]
    assert len(calls) == 1


def test_a_service_that_fails_stops_the_run():
    def annotate(texts):
        raise FactServiceError("no worker answers")

    with pytest.raises(FactServiceError, match="no worker answers"):
        GraphScorer(annotate, name="words").score([("a", "b")])
    with pytest.raises(FactServiceError, match="words/partial: 1 graphs came back for 2 texts"):
        GraphScorer(lambda texts: one_word_a_fact(texts[:1]), name="words").score([("a", "b")])
