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
"""Mentions of earlier examinations: what goes, what stays, and how that agrees with labelled sentences of Open-i."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prior_agreement import LABELS, REPORTS, agreement

from verl_cxr.reports.prior import without_priors

REWRITTEN = {
    # adjectives of a finding
    "Unchanged small left effusion.": "Small left effusion.",
    "Stable appearance of the large hiatal hernia.": "Large hiatal hernia.",
    "Mild stable cardiomegaly, no acute disease.": "Mild cardiomegaly, no acute disease.",
    "New right internal jugular line ends in the SVC.": "Right internal jugular line ends in the SVC.",
    "Persistent mild elevation of the right hemidiaphragm.": "Mild elevation of the right hemidiaphragm.",
    "Worsening bilateral opacities.": "Bilateral opacities.",
    "Interval development of mild edema.": "Mild edema.",
    # what is said of a finding
    "Mild cardiomegaly is unchanged.": "Mild cardiomegaly.",
    "Moderate pulmonary edema has improved.": "Moderate pulmonary edema.",
    "Right lower lobe opacity is new since ___.": "Right lower lobe opacity.",
    "Low lung volumes are again noted with atelectasis.": "Low lung volumes are noted with atelectasis.",
    "The thoracic aorta remains tortuous.": "The thoracic aorta is tortuous.",
    "Cardiac silhouette is enlarged but unchanged.": "Cardiac silhouette is enlarged.",
    "The heart size is stable and within normal limits.": "The heart size is within normal limits.",
    "The left lung continues to show volume loss.": "The left lung shows volume loss.",
    "Pneumonia has not resolved.": "Pneumonia.",
    # comparisons
    "Compared to the prior study of ___, there is new consolidation in the right lower lobe.":
        "There is consolidation in the right lower lobe.",
    "Calcified granuloma unchanged from prior.": "Calcified granuloma.",
    "There is a stable 4 mm nodule in the left upper lobe, which is unchanged since ___.":
        "There is a 4 mm nodule in the left upper lobe.",
    "As compared to ___, moderate right effusion is slightly larger.": "Moderate right effusion.",
    "Distal clavicle shortening also present on the previous exam, possibly posttraumatic.":
        "Distal clavicle shortening, possibly posttraumatic.",
    "Scarring in the right apex as before.": "Scarring in the right apex.",
    "Without comparisons, this may represent infection.": "This may represent infection.",
    "In the interval, a 2 cm nodule has developed in the left lung.": "A 2 cm nodule is present in the left lung.",
    "There is increasing basilar opacity.": "There is basilar opacity.",
    "The opacity is increasing in size.": "Opacity.",
    "Left base atelectasis, with interval improvement.": "Left base atelectasis.",
    # negation stays with what it negates
    "No interval development of pneumothorax.": "No pneumothorax.",
    "No new focal consolidation.": "No focal consolidation.",
    "No significant interval improvement in the left effusion.": "Left effusion.",
    "No change in the right middle lobe opacification.": "Right middle lobe opacification.",
    "No evidence of acute process or significant interval change.": "No evidence of acute process.",
    # parts of a sentence
    "Heart size within normal limits, stable mediastinal contours, right port tip in the SVC.":
        "Heart size within normal limits, right port tip in the SVC.",
    "The right effusion is no longer seen and the lungs are clear.": "The lungs are clear.",
    "Stable chest, no acute disease.": "No acute disease.",
}  # fmt: skip

GONE = [
    "No change.",
    "No significant interval change.",
    "As compared to the previous radiograph, there is no relevant change.",
    "In comparison with the study of ___, there is little overall change.",
    "Heart size and mediastinal contours are unchanged.",
    "The cardiomediastinal silhouette is stable compared to prior examinations.",
    "The monitoring and support devices are constant.",
    "Interval removal of the endotracheal tube.",
    "Chest tubes have been removed.",
    "Previously seen right lower lobe opacity has resolved.",
    "Resolved interstitial edema.",
    "Interval extubation.",
    "No prior studies for comparison.",
    "The most recent study is not available for comparison.",
    "Overall, the appearance is similar to the prior study from ___.",
]

KEPT = [
    "Status post prior CABG.",
    "Evidence of prior granulomatous disease.",
    "Multiple old right-sided rib fractures.",
    "Clips from prior cholecystectomy are noted.",
    "Degenerative changes of the thoracic spine.",
    "Increased interstitial markings are present.",
    "Lung volumes are decreased.",
    "The lungs are hyperexpanded, with increased AP diameter of the chest.",
    "Chronic inflammatory change in the right midlung.",
    "Followup radiograph to document resolution is recommended.",
    "Opacity consistent with developing infection.",
    "Remaining lungs are clear.",
    "The examination is limited by rotation.",
    "If there is continued concern for fracture, consider dedicated views.",
    "No pneumothorax.",
    "Mass in the right renal compartment.",
    "",
]


@pytest.mark.parametrize(("sentence", "expected"), REWRITTEN.items())
def test_the_current_finding_stays(sentence, expected):
    assert without_priors(sentence) == expected


@pytest.mark.parametrize("sentence", GONE)
def test_nothing_but_a_comparison_goes(sentence):
    assert without_priors(sentence) == ""


@pytest.mark.parametrize("sentence", KEPT)
def test_what_is_no_mention_stays_as_it_is(sentence):
    assert without_priors(sentence) == sentence


def test_sentences_of_a_text_are_taken_one_by_one():
    text = "The lungs are clear. No change. Unchanged small left effusion. Status post prior CABG."
    assert without_priors(text) == "The lungs are clear. Small left effusion. Status post prior CABG."


@pytest.mark.parametrize("sentence", [*REWRITTEN.values(), *KEPT])
def test_a_second_time_changes_nothing(sentence):
    assert without_priors(sentence) == sentence


WORDS = ["stable", "unchanged", "new", "prior", "study", "compared", "to", "the", "since", "___", ",", ".", "no",
         "change", "in", "effusion", "is", "are", "and", "has", "resolved", "left"]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join))
def test_any_words_give_text_without_marks(text):
    result = without_priors(text)
    assert "\x00" not in result
    assert "~" not in result
    assert result == result.strip() or result == text


@given(st.text(max_size=80))
def test_text_without_a_cue_is_returned_as_it_is(text):
    result = without_priors(text)
    assert isinstance(result, str)


def test_time_is_bounded_for_hostile_sentences():
    start = time.perf_counter()
    for word in (
        "compared to the ",
        "prior ",
        "ct ",
        "unchanged and ",
        "no significant ",
        "_ ",
        "there is no new ",
        "is stable ",
    ):
        without_priors(word * 20_000)
        without_priors(word * (1900 // len(word)))
    assert time.perf_counter() - start < 20


@pytest.mark.skipif(not REPORTS.is_dir(), reason="the shared data are not beside this checkout")
@pytest.mark.parametrize("labels", LABELS, ids=lambda path: path.stem)
def test_agreement_with_labelled_sentences(labels):
    found = agreement(labels)
    assert found.hit + found.missed >= 40
    assert found.kept + found.false >= 40
    assert found.precision >= 0.97, found.disagreements
    assert found.recall >= 0.92, found.disagreements
    assert found.exact / found.hit >= 0.85, found.disagreements
