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
"""Options that questions state in their own words, and answers by text, letter and number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.data.questions.choices import among, inline_options, kind_of_options, said_options
from verl_cxr.files import RecordError
from verl_cxr.question import Kind

SIX = ("Edema", "Effusion", "Collapse", "Mass", "Fracture", "None of the above")


@pytest.mark.parametrize(
    ("text", "question", "options"),
    [
        ("What is shown? A) Edema B) Effusion", "What is shown?", ("Edema", "Effusion")),
        ("What is shown?\nA) Edema\nB) Effusion\n", "What is shown?", ("Edema", "Effusion")),
        ("What is shown? (A) Edema; (B) Effusion", "What is shown?", ("Edema", "Effusion")),
        ("Which? A. x, B. y, C. z", "Which?", ("x", "y", "z")),
        ("Which?\nA: left (see Fig. B) lung\nB: right", "Which?", ("left (see Fig. B) lung", "right")),
        ("Vitamin A is low. Which? A) yes B) no", "Vitamin A is low. Which?", ("yes", "no")),
        ("A) left B) right", "", ("left", "right")),
    ],
)
def test_options_inside_a_question(text, question, options):
    assert inline_options(text) == (question, options)


@pytest.mark.parametrize("text", ["What is shown?", "A) only one", "B) b A) a?", "Grade A. patient", ""])
def test_questions_without_options(text):
    assert inline_options(text) is None


@given(st.lists(st.from_regex(r"[a-z]{1,8}( [a-z]{1,8}){0,3}", fullmatch=True), min_size=2, max_size=8))
def test_options_that_were_written_are_read(options):
    lines = [f"{chr(65 + place)}) {option}" for place, option in enumerate(options)]
    for between in ("\n", " "):
        assert inline_options(between.join(["Which one?", *lines])) == ("Which one?", tuple(options))


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        (0, ("Edema",)),
        (5, ("None of the above",)),
        (1.0, ("Effusion",)),
        ("B", ("Effusion",)),
        ("(B)", ("Effusion",)),
        ("B) Effusion", ("Effusion",)),
        ("B. effusion.", ("Effusion",)),
        ("effusion", ("Effusion",)),
        ("A, C", ("Edema", "Collapse")),
        ("A;C & A", ("Edema", "Collapse")),
        (["A", "Mass"], ("Edema", "Mass")),
        ([], ()),
        ("3", ("Mass",)),
    ],
)
def test_answers_among_options(answer, chosen):
    assert among(answer, SIX) == chosen


@pytest.mark.parametrize(
    "answer", [6, -1, "G", "Pneumonia", "", None, float("nan"), True, 1.5, {"a": 1}, "B) Edema", ["B", "?"]]
)
def test_answers_that_are_no_option(answer):
    with pytest.raises(RecordError, match="field 'answer'"):
        among(answer, SIX)


def test_a_text_goes_before_a_letter():
    assert among("A", ("B", "A")) == ("A",)
    assert among("1", ("0", "1", "2")) == ("1",)


@pytest.mark.parametrize(
    ("question", "answer", "options", "chosen"),
    [
        ("Is this a solid or cystic lesion?", "Solid", ("solid", "cystic"), "solid"),
        ("Is this a PA or AP film?", "AP", ("PA", "AP"), "AP"),
        ("Which organ is abnormal, heart or lung?", "Lung", ("heart", "lung"), "lung"),
        (
            "Is this a pneumonia vs. pleural effusion?",
            "pleural effusion",
            ("pneumonia", "pleural effusion"),
            "pleural effusion",
        ),
        ("Which modality is shown, MRI, CT or X-Ray?", "X-Ray", ("MRI", "CT", "X-Ray"), "X-Ray"),
        ("Is the lung hyperinflated on one or both sides?", "both sides", ("one", "both sides"), "both sides"),
    ],
)
def test_options_that_a_question_states(question, answer, options, chosen):
    assert said_options(question, answer) == (options, chosen)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which organ is abnormal, heart or lung?", "Both"),
        ("Is the largest air collection on the patient's left or the right side?", "Right side"),
        ("Would you expect plaques on other surfaces vs just the hemithoraces?", "Not sure"),
        ("Is there an effusion?", "Small"),
        ("Is it left or right or both?", "left"),
        ("Is it small or small?", "small"),
        ("Is it large or small?", ""),
    ],
)
def test_where_no_options_can_be_told(question, answer):
    assert said_options(question, answer) is None


@given(st.text(max_size=60), st.text(max_size=20))
def test_any_words_give_options_that_hold_the_answer_or_none(question, answer):
    told = said_options(f"{question} or {answer}?", answer)
    if told is not None:
        options, chosen = told
        assert chosen in options
        assert len(set(options)) == len(options) >= 2


def test_kinds_by_options():
    assert kind_of_options(("Yes", "no")) is Kind.CLOSED
    assert kind_of_options(("left", "right")) is Kind.TWO_OPTION
    assert kind_of_options(SIX) is Kind.MULTIPLE_CHOICE
