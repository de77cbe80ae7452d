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
"""BLEU, ROUGE-L and fact F1: hand-computed values, RadEval's recorded ones, and independent implementations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.translate.bleu_score import corpus_bleu
from pycocoevalcap.bleu.bleu import Bleu as CocoBleu

from verl_cxr.evaluate.metrics import METRICS, MetricOptions, Scores, Skipped, compute
from verl_cxr.evaluate.metrics.bleu import Bleu
from verl_cxr.evaluate.metrics.facts import Facts
from verl_cxr.evaluate.metrics.rouge import RougeL
from verl_cxr.evaluate.metrics.scores import UnavailableError

PREDICTED, REFERENCE = "the lungs are clear today", "the lungs are clear of disease"
# matching n-grams: 4 of 5, 3 of 4, 2 of 3, 1 of 2; the prediction is one word short
BREVITY = math.exp(1 - 6 / 5)

words = st.lists(st.sampled_from(["a", "A", "b", "c", "no", "clear", "."]), max_size=8).map(" ".join)
references = words.filter(str.strip)


def only(found):
    (scores,) = found
    return scores


def test_bleu_by_hand():
    pair = [(PREDICTED, REFERENCE)]
    assert only(Bleu(2)(pair)).value == pytest.approx(BREVITY * (4 / 5 * 3 / 4) ** 0.5)
    assert only(Bleu(4)(pair)).value == pytest.approx(BREVITY * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


def test_bleu_pools_counts_over_the_corpus_and_keeps_case():
    pairs = [("a b", "a b"), ("A b", "a b")]
    scores = only(Bleu(2)(pairs))
    assert scores.samples[0] == pytest.approx(1)
    assert scores.samples[1] == pytest.approx(0, abs=1e-6)
    assert scores.value == pytest.approx((3 / 4 * 1 / 2) ** 0.5)
    assert only(Bleu(2)([("a  b", "a\nb")])).value == pytest.approx(1)


@pytest.mark.parametrize(("metric", "key"), [(Bleu(2), "bleu_2"), (Bleu(4), "bleu"), (RougeL(), "rougeL")])
def test_radeval_says_the_same_of_the_sentences(sentences, metric, key):
    scores = only(metric(sentences["pairs"]))
    corpus, *samples = sentences["radeval"][key]
    assert round(scores.value, 4) == corpus
    assert scores.samples == pytest.approx(samples, abs=5.001e-5)  # it rounds to 4 decimals


@given(st.lists(st.tuples(words, references), min_size=1, max_size=5))
def test_bleu_is_that_of_the_coco_scorer(pairs):
    ids = range(len(pairs))
    values, samples = CocoBleu(4).compute_score(
        {i: [pairs[i][1]] for i in ids}, {i: [pairs[i][0]] for i in ids}, verbose=0
    )
    for order in (2, 4):
        scores = only(Bleu(order)(pairs))
        assert scores.value == pytest.approx(values[order - 1], rel=1e-9, abs=1e-15)
        assert scores.samples == pytest.approx(samples[order - 1], rel=1e-9, abs=1e-15)


def test_bleu_on_real_reports_is_also_nltks(open_i):
    pairs = open_i[:300]
    expected = corpus_bleu([[reference.split()] for _, reference in pairs], [text.split() for text, _ in pairs])
    assert only(Bleu(4)(pairs)).value == pytest.approx(
        expected, abs=1e-3
    )  # it counts a n-gram in texts too short for one


def test_rouge_by_hand():
    # stemmed and in lower case, "." is no word: the common subsequence is "no effusion" of 3 and 4 words
    scores = only(RougeL()([("No effusions seen.", "there is no effusion"), ("x", "y")]))
    assert scores.samples == (pytest.approx(2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4)), 0)
    assert scores.value == pytest.approx(scores.samples[0] / 2)


def test_facts_come_at_all_levels_under_the_name_of_their_scorer():
    scores = Facts("lexicon")([("Small left effusion.", "Moderate left effusion."), ("Film rotated.", "Rotated film.")])
    assert [(s.name, s.label, s.made_by.split(",")[0]) for s in scores] == [
        ("facts_simple", "lexicon F1 (simple)", "lexicon/simple"),
        ("facts_partial", "lexicon F1 (partial)", "lexicon/partial"),
        ("facts_complete", "lexicon F1 (complete)", "lexicon/complete"),
    ]
    assert [s.name for s in Facts("exact")([("a", "a")])] == ["facts"]
    assert scores[1].samples == (pytest.approx(2 / 3), 0)


@pytest.mark.parametrize(("no_fact", "value"), [("0", 1 / 3), ("1", 5 / 6), ("skip", 2 / 3)])
def test_what_a_pair_without_a_fact_is_worth(no_fact, value):
    pairs = [("Small left effusion.", "Moderate left effusion."), ("Film rotated.", "Film rotated.")]
    scores = Facts("lexicon", no_fact=no_fact)(pairs)[1]
    assert scores.value == pytest.approx(value)
    assert (scores.samples[1] is None) == (no_fact == "skip")


def test_the_texts_are_read_once_for_all_levels(monkeypatch):
    from verl_cxr.facts import FactGraph, GraphScorer

    read = []

    def annotate(texts):
        read.extend(texts)
        return [FactGraph(text) for text in texts]

    monkeypatch.setattr(
        "verl_cxr.evaluate.metrics.facts.make_scorer", lambda spec: GraphScorer(annotate, name="radgraph-xl")
    )
    scores = Facts("radgraph-xl")([("a", "b"), ("b", "c")])
    assert sorted(read) == ["a", "b", "c"]
    assert [s.label for s in scores] == [f"RadGraph-F1 ({level})" for level in ("simple", "partial", "complete")]


def test_what_cannot_be_computed_is_skipped_with_its_reason(tmp_path):
    graphs = tmp_path / "graphs.jsonl"
    graphs.write_text('{"text": "a", "entities": {}}\n')
    pairs = [("a", "b")]
    assert compute(["facts", "chexbert"], pairs) == [
        Skipped("facts", "no fact scorer was named: --facts radgraph-xl, lexicon or precomputed:G.jsonl"),
        Skipped(
            "chexbert", "CheXbert's weights are not on this machine; where they can be fetched, --official computes it"
        ),
    ]
    (skipped,) = compute(["facts"], pairs, MetricOptions(facts=f"precomputed:{graphs}"))
    assert "holds no fact graph for the text 'b'" in skipped.reason
    (skipped,) = compute(["facts"], pairs, MetricOptions(facts=f"radgraph-xl:{tmp_path}"))
    assert "weights" in skipped.reason
    simple, *_ = compute(["facts"], [("x", "y")], MetricOptions(facts="lexicon", no_fact="skip"))
    assert simple == Skipped("facts_simple", "undefined for every report")


def test_a_library_that_is_not_there_is_a_reason(monkeypatch):
    import sys

    for module, metric in [("sacrebleu.metrics.bleu", "bleu2"), ("rouge_score.rouge_scorer", "rougeL")]:
        monkeypatch.setitem(sys.modules, module, None)
        (skipped,) = compute([metric], [("a", "b")])
        assert "pip install 'verl-cxr[eval]'" in skipped.reason


def test_a_wrong_request_is_an_error():
    with pytest.raises(ValueError, match="unknown metric 'blue': use bleu2, bleu4"):
        compute(["blue"], [("a", "b")])
    with pytest.raises(ValueError, match="unknown fact scorer 'oracle'"):
        compute(["facts"], [("a", "b")], MetricOptions(facts="oracle"))
    with pytest.raises(ValueError, match="not '2'"):
        compute(["facts"], [("a", "b")], MetricOptions(facts="lexicon", no_fact="2"))
    with pytest.raises(ValueError, match="no report"):
        compute(["bleu2"], [])
    assert issubclass(UnavailableError, RuntimeError)


@pytest.mark.parametrize("name", ["bleu2", "bleu4", "rougeL", "facts"])
def test_perfect_and_empty_predictions(name):
    reports = ["Small left effusion is present.", "No pneumothorax or focal consolidation."]
    options = MetricOptions(facts="lexicon")
    perfect = METRICS[name](options)([(report, report) for report in reports])
    empty = METRICS[name](options)([("", report) for report in reports])
    assert all(isinstance(scores, Scores) for scores in perfect)
    assert [scores.value for scores in perfect] == pytest.approx([1] * len(perfect))
    assert [scores.value for scores in empty] == pytest.approx([0] * len(empty))
    assert np.isfinite([scores.samples for scores in empty]).all()
