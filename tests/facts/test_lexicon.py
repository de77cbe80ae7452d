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
"""What the lexicon annotator reads from a text: a table of phrases, and properties that hold for any text."""

from __future__ import annotations

import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_cxr.facts import FactGraph, make_scorer
from verl_cxr.facts.graph import tokenize
from verl_cxr.facts.lexicon import annotate, read_facts
from verl_cxr.facts.terms import Kind, Term, Terms, load_terms

SIGNS = {
    "Observation::definitely present": "+",
    "Observation::definitely absent": "-",
    "Observation::uncertain": "?",
    "Anatomy::definitely present": "",
}
ARROWS = {"modify": ">", "located_at": "@", "suggestive_of": "~"}


def facts(text: str) -> set[str]:
    """Each relation, and each observation without one: "+opacity @ left lung", "-pneumothorax"."""
    graph = read_facts(text)
    names = {e.id: e.tokens for e in graph.entities}
    lines = set()
    for e in graph.entities:
        sign = SIGNS[e.label]
        lines |= {f"{sign}{e.tokens} {ARROWS[kind]} {names[target]}" for kind, target in e.relations}
        if sign and not e.relations:
            lines.add(f"{sign}{e.tokens}")
    return lines


TABLE = {
    # a place that is clear or normal
    "The right lung is clear.": "+clear @ right lung",
    "Both lungs are clear.": "+clear @ left lung; +clear @ right lung",
    "Left and right lungs are clear.": "+clear @ left lung; +clear @ right lung",
    "Clear lungs and normal heart.": "+clear @ lung; +normal @ heart",
    "Normal heart size.": "+normal @ heart",
    "The cardiac silhouette is within normal limits.": "+normal @ heart",
    "Heart size, mediastinal contour, and pulmonary vascularity are unremarkable.": "+normal @ heart; "
    "+normal @ mediastinum; +normal @ pulmonary vasculature",
    "Heart size normal, lungs clear.": "+normal @ heart; +clear @ lung",
    # one fact, several wordings
    "The heart is enlarged.": "+enlarged @ heart",
    "Cardiomegaly.": "+enlarged @ heart",
    "Enlargement of the cardiac silhouette.": "+enlarged @ heart",
    "The heart is not enlarged.": "-enlarged @ heart",
    "No cardiomegaly.": "-enlarged @ heart",
    "Hyperinflated lungs.": "+hyperinflated @ lung",
    "The right hemidiaphragm is elevated.": "+elevated @ right hemidiaphragm",
    "Elevation of the right hemidiaphragm.": "+elevated @ right hemidiaphragm",
    "The lung is consolidated.": "+consolidation @ lung",
    # severity, side, place
    "Small left pleural effusion.": "+small > pleural effusion; +pleural effusion @ left",
    "Moderate consolidation in the right lower lung.": "+moderate > consolidation; +consolidation @ right lower lung",
    "Mild consolidation in the right lower lung.": "+mild > consolidation; +consolidation @ right lower lung",
    "Bilateral pleural effusions, left greater than right.": "+pleural effusion @ left; +pleural effusion @ right",
    "Large right and small left pleural effusions.": "+large > pleural effusion; +pleural effusion @ right; "
    "+small > pleural effusion; +pleural effusion @ left",
    "Left effusion is small.": "+small > pleural effusion; +pleural effusion @ left",
    "Bibasilar atelectasis.": "+atelectasis @ left lung base; +atelectasis @ right lung base",
    "Opacity at the base of the right lung.": "+opacity @ right lung base",
    "Opacities at the bases of both lungs.": "+opacity @ left lung base; +opacity @ right lung base",
    "RLL pneumonia.": "+pneumonia @ right lower lobe",
    "Right middle and lower lobe opacities.": "+opacity @ right middle lobe; +opacity @ right lower lobe",
    "Opacity in the left lung and the heart is enlarged.": "+opacity @ left lung; +enlarged @ heart",
    "Left lung opacity, right effusion and cardiomegaly.": "+opacity @ left lung; +pleural effusion @ right; "
    "+enlarged @ heart",
    "Extensive ground glass opacity and mild consolidation in the right lung.": "+extensive > ground glass opacity; "
    "+ground glass opacity @ right lung; +mild > consolidation; +consolidation @ right lung",
    "In the left lung, there is consolidation and effusion.": "+consolidation @ left lung; "
    "+pleural effusion @ left lung",
    "Rightward deviation of the trachea.": "+deviated @ right; +deviated @ trachea",
    "Enlarged hilar lymph nodes.": "+enlarged @ hilum; +enlarged @ lymph node",
    # change over time
    "Unchanged mild pulmonary edema.": "+stable > pulmonary edema; +mild > pulmonary edema; +pulmonary edema",
    "No change in the left effusion.": "+stable > pleural effusion; +pleural effusion @ left",
    "Mild cardiomegaly, stable mediastinal contours.": "+mild > enlarged; +enlarged @ heart; +stable @ mediastinum",
    # negation
    "Pneumothorax": "+pneumothorax",
    "No pneumothorax": "-pneumothorax",
    "No focal consolidation, pleural effusion, or pneumothorax.": "-focal > consolidation; -consolidation; "
    "-pleural effusion; -pneumothorax",
    "No effusion, edema, pneumothorax.": "-pleural effusion; -pulmonary edema; -pneumothorax",
    "No pneumothorax, small left effusion.": "-pneumothorax; +small > pleural effusion; +pleural effusion @ left",
    "No pneumothorax and small left effusion.": "-pneumothorax; +small > pleural effusion; +pleural effusion @ left",
    "No pneumothorax but right effusion.": "-pneumothorax; +pleural effusion @ right",
    "No effusion, heart is enlarged.": "-pleural effusion; +enlarged @ heart",
    "No effusion, heart normal and lungs clear.": "-pleural effusion; +normal @ heart; +clear @ lung",
    "Neither effusion nor pneumothorax is seen.": "-pleural effusion; -pneumothorax",
    "Lungs are clear without effusion or edema and heart size is normal.": "+clear @ lung; -pleural effusion; "
    "-pulmonary edema; +normal @ heart",
    "Lungs free of consolidation.": "-consolidation @ lung",
    "Effusion and pneumothorax are not seen.": "-pleural effusion; -pneumothorax",
    "No findings to suggest pneumonia.": "-abnormality; -pneumonia",
    "No device over the mediastinum.": "-device @ mediastinum",
    "No change.": "",
    # gone, or not
    "Resolution of pneumothorax.": "-pneumothorax",
    "The right pneumothorax has resolved.": "-pneumothorax @ right",
    "The effusion is no longer seen.": "-pleural effusion",
    "Partial resolution of the effusion.": "+improved > pleural effusion; +pleural effusion",
    "The chest tube has been removed.": "-chest tube",
    "Old healed right rib fractures.": "+old > fracture; +fracture @ right rib",
    # uncertainty
    "Possible small right apical pneumothorax.": "?small > pneumothorax; ?pneumothorax @ right lung apex",
    "Cannot exclude small left effusion.": "?small > pleural effusion; ?pleural effusion @ left",
    "Pneumonia cannot be entirely excluded.": "?pneumonia",
    "Underlying infection is not excluded.": "?superimposed > pneumonia; ?pneumonia",
    "Pleural effusions, if any, are small.": "?pleural effusion; ?small > pleural effusion",
    "There may be a left effusion.": "?pleural effusion @ left",
    "Pneumonia?": "?pneumonia",
    "? pneumonia": "?pneumonia",
    "Atelectasis versus pneumonia.": "?atelectasis; ?pneumonia",
    "No pneumothorax. Possible effusion.": "-pneumothorax; ?pleural effusion",
    # evidence
    "Left lung opacity may reflect pneumonia.": "+opacity @ left lung; +opacity ~ pneumonia; ?pneumonia",
    "Opacity, likely atelectasis or pneumonia.": "+opacity ~ atelectasis; +opacity ~ pneumonia; "
    "?atelectasis; ?pneumonia",
    "Opacity could be atelectasis, although pneumonia cannot be excluded.": "+opacity ~ atelectasis; "
    "+opacity ~ pneumonia; ?atelectasis; ?pneumonia",
    "Opacity and likely effusion.": "+opacity; ?pleural effusion",
    "Nodule in the left lung, consistent with granuloma.": "+nodule @ left lung; +nodule ~ granuloma; +granuloma",
    # devices
    "Endotracheal tube and nasogastric tube and external tubing projects over the trachea.": ""
    "+endotracheal tube @ trachea; +nasogastric tube @ trachea; +external tubing @ trachea",
    "The ET tube is 4.5 cm above the carina.": "+endotracheal tube @ carina",
    "NG tube below the diaphragm with the tip not identified.": "+nasogastric tube @ subdiaphragmatic region",
    # sections
    "INDICATION: Rule out pneumonia. FINDINGS: The lungs are clear.": "+clear @ lung",
    "History: effusion, cough\n\nThe lungs are clear.": "+clear @ lung",
    "HISTORY:\n\nEffusion.\n\nIMPRESSION: No effusion.": "-pleural effusion",
    "Lungs: clear.": "+clear @ lung",
    # nothing to read
    "": "",
    "PA and lateral views.": "",
    "The right lower lung.": "",
    "Le cœur est normal — 肺 😀": "+normal",
}


@pytest.mark.parametrize("text", TABLE)
def test_reads(text):
    assert facts(text) == {fact for fact in TABLE[text].split("; ") if fact}


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("No pneumothorax.", "Pneumothorax."),
        ("Mild edema.", "Moderate edema."),
        ("Left effusion.", "Right effusion."),
        ("Possible pneumonia.", "Pneumonia."),
        ("The left lung is clear.", "The right lung is clear."),
        ("Old rib fracture.", "Acute rib fracture."),
    ],
)
def test_tells_apart(text, other):
    for level in ("simple", "partial", "complete"):
        same, different = make_scorer("lexicon", level=level).score([(text, text), (text, other)])
        assert same == 1.0
        assert different < 0.7


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Cardiomegaly.", "The heart is enlarged."),
        ("Bilateral effusions.", "Left effusion and right effusion."),
        ("There is no pneumothorax or effusion.", "No effusion. No pneumothorax."),
        ("GROUND-GLASS OPACITIES in the left lung", "Ground glass opacity in left lung."),
    ],
)
def test_wording_does_not_matter(text, other):
    assert make_scorer("lexicon").score([(text, other)]) == [1.0]


def test_words_are_those_of_the_text():
    graph = read_facts("HISTORY: Cough.\n\nNo acute ground-glass opacity.\n\nSmall left effusion.")
    words = graph.text.split()
    spans = {e.tokens: " ".join(words[e.start_ix : e.end_ix + 1]) for e in graph.entities}
    assert spans == {
        "acute": "acute",
        "ground glass opacity": "ground - glass opacity",
        "small": "Small",
        "left": "left",
        "pleural effusion": "effusion",
    }


def test_reads_every_finding_of_the_real_films():
    path = Path(__file__).parents[3] / "shared" / "data" / "organ_masks" / "studies.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    findings = {r["finding"] for line in path.read_text().splitlines() for r in json.loads(line)["regions"]}
    scorer = make_scorer("lexicon", level="complete")
    assert all(score == 1.0 for score in scorer.score([(finding, finding) for finding in findings]))
    distinct = [(a, b) for a in findings for b in findings if a < b]
    assert all(score < 1.0 for score in scorer.score(distinct))


def check(graph: FactGraph) -> None:
    """What holds for any graph: the format, spans in the text, no idle place, modifiers of their target's status."""
    assert FactGraph.from_dict(graph.to_dict()) == graph
    count = len(graph.text.split())
    targets = {target for e in graph.entities for _, target in e.relations}
    by_id = {e.id: e for e in graph.entities}
    for e in graph.entities:
        assert e.end_ix < count
        assert SIGNS[e.label] or e.id in targets
        assert len(set(e.relations)) == len(e.relations)
        for kind, target in e.relations:
            assert target != e.id
            assert kind != "modify" or by_id[target].label == e.label


WORDS = sorted({word for phrase in TABLE for word in tokenize(phrase)})


@given(st.lists(st.sampled_from([*WORDS, "\n\n"]), max_size=40).map(" ".join))
@settings(max_examples=300)
def test_any_words_give_a_sound_graph(text):
    graph = read_facts(text)
    check(graph)
    assert read_facts(text) == graph
    for level in ("simple", "partial", "complete"):
        [score, itself] = make_scorer("lexicon", level=level).score([(text, "Small left effusion."), (text, text)])
        assert 0 <= score <= 1
        assert itself == (1.0 if graph.entities else None)


@given(st.text(max_size=200))
def test_any_text_gives_a_sound_graph(text):
    check(read_facts(text))


HOSTILE = [
    "no ",
    "left lung opacity and ",
    "effusion, ",
    "opacity may reflect pneumonia ",
    "opacity not seen ",
    "normal ",
    "lung, ",
    "small ",
    "small left and ",
    "in the base of both lungs ",
    "ground-",
    "[{",
    "A: ",
    "\n ",
    ". ",
    "肺",
]


@pytest.mark.parametrize("piece", [*HOSTILE, "lists"])
def test_hostile_text_takes_linear_time(piece):
    def seconds(size: int) -> float:
        if piece == "lists":  # as many links as findings times places, were they not bounded
            text = ("effusion and " * (size // 26) + "edema in ") + "lung and " * (size // 18)
        else:
            text = piece * (size // len(piece))
        gc.disable()  # or the whole suite's objects are searched for garbage meanwhile
        try:
            start = time.process_time()
            graph = read_facts(text)
            taken = time.process_time() - start
        finally:
            gc.enable()
        assert sum(len(e.relations) for e in graph.entities) < size
        return taken

    seconds(1000)
    short = min(seconds(20_000) for _ in range(3))  # the least of three: another process can only add to a reading
    long = min(seconds(200_000) for _ in range(3))
    assert long < 50 * max(short, 0.01)  # a quadratic reader takes 100 times as long


def test_a_megabyte_is_read():
    pieces = "".join(HOSTILE)
    check(read_facts(pieces * (1_000_000 // len(pieces))))


def test_threads_share_it():
    texts = list(TABLE) * 5
    expected = annotate(texts)
    with ThreadPoolExecutor(8) as pool:
        assert all(graphs == expected for graphs in pool.map(annotate, [texts] * 16))


def test_the_word_list_is_compiled_once_and_has_one_meaning_a_phrase():
    assert load_terms() is load_terms()
    with pytest.raises(ValueError, match="the phrase 'clear' means both"):
        Terms(
            [("clear", Term(Kind.STATE, "clear")), ("clear", Term(Kind.MODIFIER, "clear"))],
            wholes={},
            unsided=frozenset(),
            skipped_sections=frozenset(),
        )
