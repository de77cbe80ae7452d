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
"""RadGraph's annotations are those of the `radgraph` package, whatever the text and whatever else is in the batch."""

from __future__ import annotations

import random
import socket

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from radgraph_model import RELATIONS, XL_NER, build_radgraph

from verl_cxr.facts import FactGraph, FactServiceError
from verl_cxr.facts import radgraph as module
from verl_cxr.facts import radgraph_forward as forward
from verl_cxr.facts.radgraph import RadGraphAnnotator, batches
from verl_cxr.facts.radgraph_words import MAX_WORDS, WINDOW_WORDS, collapse, split_words, windows
from verl_cxr.facts.weights import WeightsError, locate

ODD = [
    "effusion",  # one word
    ".",
    "?!?!",
    "PA and/. lateral/? views (2).",  # the package's reader changes two words
    "Heart size 14.5 cm, 50%. 'Clear.'",
    "small \\n left \\f effusion",  # escapes that the package removes
    'a \\"quoted\\" finding',
    "caf\u00e9 \u00fcber na\u00efve",
    "\U0001f600 effusion \U0001fac1\U0001f468\u200d\u2695\ufe0f",  # emoji, one of several code points
    "\u80ba\u90e8\u6e05\u6670\u3002\u65e0\u80f8\u8154\u79ef\u6db2",  # CJK
    "\u0631\u0626\u0629 \u0633\u0644\u064a\u0645\u0629",
    "\u200b effusion \ufeff",  # words without a word piece
    "\x00\x01 effusion \x7f",
    "effusion\u00a0left\u2003base\u2028new",  # white space of other kinds
    "x" * 400,  # one long word
    "left " * 90,  # more pieces than the encoder takes: folded
    "no effusion. " * 60,
    "-" * 120,
    "<think>[{}]</think>",
    "None",
]


@pytest.fixture(scope="module")
def package(radgraph_root):
    """The package's own class on the same folder, one text at a time."""
    from verl_cxr.facts.radgraph_compat import load_package

    model = load_package().RadGraph(model_type="radgraph-xl", model_cache_dir=str(radgraph_root), cuda=-1)

    def annotate(text):
        with torch.no_grad():
            return FactGraph.from_dict(model([text])["0"])

    return annotate


def test_annotations_are_those_of_the_package(annotator, package, phrases):
    draw = random.Random(0)
    reports = [". ".join(draw.sample(phrases, draw.randint(2, 9))).capitalize() + "." for _ in range(60)]
    texts = [*phrases[:260], *reports, *ODD]
    assert len(texts) >= 340
    before = annotator.alone
    graphs = annotator(texts)
    differing = [text for text, graph in zip(texts, graphs, strict=True) if graph != package(text)]
    assert differing == []
    assert annotator.alone - before < 80  # most of them were read in batches
    # the comparison means something: all labels and relations occur, and texts differ
    assert {e.label for graph in graphs for e in graph.entities} == set(XL_NER)
    assert {kind for graph in graphs for e in graph.entities for kind, _ in e.relations} == set(RELATIONS)
    assert sum(len(e.relations) for graph in graphs for e in graph.entities) > 100
    assert len({graph.entities for graph in graphs}) > 200


def test_the_first_radgraph_too(tmp_path, phrases):
    from radgraph import RadGraph

    files = build_radgraph(tmp_path, texts=phrases, model_type="radgraph", seed=1)
    package = RadGraph(model_type="radgraph", model_cache_dir=str(tmp_path), cuda=-1)
    texts = [*phrases[::8], *ODD]
    with torch.no_grad():
        expected = [FactGraph.from_dict(package([text])["0"]) for text in texts]
    assert RadGraphAnnotator(files)(texts) == expected
    assert {e.label[:4] for graph in expected for e in graph.entities} == {"OBS-", "ANAT"}


def test_other_weights_give_other_graphs(tmp_path, annotator, phrases):
    other = RadGraphAnnotator(build_radgraph(tmp_path, texts=phrases, seed=7))
    assert other(phrases[:20]) != annotator(phrases[:20])
    assert other.fingerprint != annotator.fingerprint


@settings(max_examples=25)
@given(st.data())
def test_an_annotation_does_not_depend_on_its_batch(annotator, phrases, data):
    company = data.draw(st.lists(st.sampled_from([*phrases, *ODD]), min_size=1, max_size=12))
    together = annotator(company)
    assert together == [annotator([text])[0] for text in company]


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_any_text_has_a_graph(annotator, text):
    (graph,) = annotator([text])
    words = graph.text.split()
    for entity in graph.entities:
        assert entity.tokens == " ".join(words[entity.start_ix : entity.end_ix + 1])
    assert FactGraph.from_dict(graph.to_dict()) == graph


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u00a0", "\\n", "\x1f"])
def test_a_blank_text_has_an_empty_graph(annotator, text):
    assert annotator([text, "effusion"])[0] == FactGraph("")


@pytest.mark.parametrize("text", ["\ud83d effusion", "left \udc00", "\ud800"])
def test_half_a_surrogate_pair_is_read_as_a_replacement_character(annotator, text):
    (graph,) = annotator([text])
    assert "\ufffd" in graph.text
    graph.text.encode()  # and can be stored


def test_ten_thousand_words_are_read_in_windows(annotator, phrases):
    words = split_words(" and ".join(phrases * 9), model_type="radgraph-xl")[:10_000]
    assert len(words) == 10_000
    graph, neighbour = annotator([" ".join(words), "small left effusion"])
    assert graph.text == " ".join(words)
    assert neighbour == annotator(["small left effusion"])[0]
    parts = windows(words)
    assert len(parts) == -(-10_000 // WINDOW_WORDS)
    assert [word for part in parts for word in part] == words
    assert max(entity.start_ix for entity in graph.entities) > 9_000
    assert [entity.id for entity in graph.entities] == [str(i) for i in range(1, len(graph.entities) + 1)]
    for entity in graph.entities:
        assert entity.tokens == " ".join(words[entity.start_ix : entity.end_ix + 1])
        # no relation leaves its window
        ends = {graph.entities[int(target) - 1].start_ix // WINDOW_WORDS for _, target in entity.relations}
        assert ends <= {entity.start_ix // WINDOW_WORDS}
    # a window is read as if it were alone
    third = annotator([" ".join(parts[2])])[0]
    inside = [e for e in graph.entities if e.start_ix // WINDOW_WORDS == 2]
    assert [(e.tokens, e.label) for e in inside] == [(e.tokens, e.label) for e in third.entities]


def test_windows():
    assert windows([]) == []
    assert windows(["a"] * MAX_WORDS) == [["a"] * MAX_WORDS]  # the package's own reading
    assert [len(part) for part in windows(["a"] * (MAX_WORDS + 1))] == [WINDOW_WORDS, WINDOW_WORDS, 1]
    huge = "\u80ba" * 50_000  # one word, a word piece a character
    assert [list(map(len, part)) for part in windows([huge, "b"])] == [[16_384], [1]]


def test_collapse_keeps_what_radgraph_sees():
    assert collapse("  small\n left\u00a0 effusion ") == "small left effusion"
    assert collapse("\ud83d\ude00") == "\U0001f600"  # a pair that was cut in two becomes one character again
    assert collapse("a\ud83d") == "a\ufffd"


def test_scores_of_a_batch_are_far_closer_to_the_packages_than_close(annotator, phrases):
    """`CLOSE` must be well above what batching does to a score; else an undecided text would pass as decided."""
    loaded = annotator._model
    heads = {
        "entity": loaded.model._ner._ner_scorers["radgraph-xl__ner_labels"],
        "mention": loaded.model._relation._mention_pruners["radgraph-xl__relation_labels"]._scorer,
    }
    seen: dict[str, list[torch.Tensor]] = {}
    hooks = [
        head.register_forward_hook(lambda _, __, out, name=name: seen.setdefault(name, []).append(out.clone()))
        for name, head in heads.items()
    ]
    words = [split_words(text, model_type="radgraph-xl") for text in phrases[:64]]
    annotator(phrases[:64])
    try:
        seen.clear()
        forward.read_batch(loaded, [[annotator._pieces[word] for word in text] for text in words])
        batch = {name: scores[0] for name, scores in seen.items()}
        drift = 0.0
        for i, text in enumerate(words):
            seen.clear()
            forward.read_alone(loaded, text)
            for name, (alone,) in seen.items():
                difference = (batch[name][i, : alone.size(1)] - alone[0]).abs() / alone[0].abs().clamp(min=1)
                drift = max(drift, float(difference.max()))
    finally:
        for hook in hooks:
            hook.remove()
    assert 0 < drift < forward.CLOSE / 10


def test_undecided_texts_are_read_alone(annotator, phrases, monkeypatch):
    expected = annotator(phrases[:30])
    monkeypatch.setattr(forward, "CLOSE", 1e9)  # nothing is decided in a batch
    before = annotator.alone
    assert annotator(phrases[:30]) == expected
    assert annotator.alone - before == 30


def test_a_batch_that_fails_loses_no_text(annotator, phrases, monkeypatch, caplog):
    expected = annotator(phrases[:30])

    def fails(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "read_batch", fails)
    assert annotator(phrases[:30]) == expected
    assert "out of memory" in caplog.text


def test_one_bad_text_fails_alone(annotator, phrases, monkeypatch):
    expected = annotator(phrases[:3])
    read_alone = forward.read_alone

    def picky(loaded, words):
        if "poison" in words:
            raise MemoryError("too large")
        return read_alone(loaded, words)

    monkeypatch.setattr(module, "read_alone", picky)
    monkeypatch.setattr(forward, "CLOSE", 1e9)
    outcomes = annotator.read([phrases[0], "a poison text", *phrases[1:3]])
    assert [outcomes[0], *outcomes[2:]] == expected
    assert isinstance(outcomes[1], FactServiceError)
    assert "a poison text" in str(outcomes[1])
    assert "too large" in str(outcomes[1])
    with pytest.raises(FactServiceError, match="poison"):
        annotator(["a poison text"])


def test_equal_texts_are_read_once(annotator, phrases, monkeypatch):
    sizes = []
    read_batch = forward.read_batch
    monkeypatch.setattr(module, "read_batch", lambda *args: sizes.append(len(args[1])) or read_batch(*args))
    first, again, spaced = annotator([phrases[5], phrases[5], f"  {phrases[5]}\n"])
    assert first == again == spaced
    assert sum(sizes) == 1


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 3)), max_size=80),
    st.integers(16, 256),
    st.integers(16, 512),
)
def test_batches_keep_to_their_budgets(shapes, pieces, pairs):
    parts = [module._Part(["w"] * words, [[0] * each] * words) for words, each in shapes]
    made = list(batches(parts, pieces=pieces, pairs=pairs))
    assert sorted(map(id, parts)) == sorted(id(part) for batch in made for part in batch)
    for batch in made:
        if len(batch) > 1:
            assert len(batch) * max(part.length for part in batch) <= pieces
            assert len(batch) * max(len(part.words) for part in batch) ** 2 <= 4 * pairs


def test_nothing_is_asked_of_the_network_and_nothing_is_trained(radgraph_root, monkeypatch):
    def refuse(*_):
        raise AssertionError("a network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    made = RadGraphAnnotator(locate("radgraph-xl", radgraph_root))
    made(["small left effusion"])
    parameters = list(made._model.model.parameters())
    assert not any(parameter.requires_grad for parameter in parameters)
    assert {parameter.dtype for parameter in parameters} == {torch.float32}
    assert {parameter.device.type for parameter in parameters} == {"cpu"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_an_error(radgraph_root):
    with pytest.raises(WeightsError, match="sees no GPU"):
        RadGraphAnnotator(locate("radgraph-xl", radgraph_root), device="cuda")
