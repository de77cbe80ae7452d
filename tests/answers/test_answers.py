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
"""Which answer a text gives, as a table: the traps are those of real models and of policies that try them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.answers import Reason, extract, is_correct
from verl_cxr.question import Kind, Question, letter

SIX = ("Pleural effusion", "Pneumothorax", "A small nodule", "Cardiomegaly", "No finding", "Consolidation")
A, B, C, D, E, F = SIX
AMBIGUOUS, DENIED, REFUSED, EMPTY, NOT_FOUND = (
    Reason.AMBIGUOUS, Reason.DENIED, Reason.REFUSED, Reason.EMPTY, Reason.NOT_FOUND,
)  # fmt: skip


def ask(kind: Kind, *options: str, answer: tuple[str, ...] = (), question: str = "What is seen?") -> Question:
    right = answer or options[:1] or (("yes",) if kind is Kind.CLOSED else ("left lung",))
    return Question("q", (), question, options, right, kind)


RESTATED = "\n".join(f"{letter(place)}) {option}" for place, option in enumerate(SIX))

MULTIPLE_CHOICE = [
    # letters, however they are dressed
    ("B", B),
    ("b", B),
    ("(b)", B),
    ("B.", B),
    ("B)", B),
    ("[B]", B),
    ("**B**", B),
    ("__B__", B),
    ("`B`", B),
    ("### B", B),
    ("Option B", B),
    ("option b", B),
    ("Choice: B", B),
    ("The answer is B.", B),
    ("the answer is (b).", B),
    ("Answer: B", B),
    ("**Answer:** B", B),
    ("Answer: **B) Pneumothorax**", B),
    ("Final answer: B", B),
    ("The correct option is B", B),
    ("I would choose B.", B),
    ("I think it's B", B),
    ('{"answer": "B"}', B),
    ("B: Pneumothorax", B),
    ("B - Pneumothorax", B),
    ("B because of the pleural line", B),
    (r"\boxed{B}", B),
    (r"So \boxed{\text{B}}", B),
    (r"$\boxed{\mathrm{B}}$", B),
    ("<answer>B</answer>", B),
    ("<ANSWER> B </ANSWER>", B),
    ("<answer>B", B),
    ("<answer>\nB) Pneumothorax\n</answer>", B),
    ("<answer>A</answer> no: <answer>B</answer>", B),
    ("<think>A, or perhaps C.</think>B", B),
    ("<think>I first thought <answer>A</answer></think><answer>B</answer>", B),
    ("\uff22", B),  # full width
    ("\u200bB\u200b", B),  # invisible letters around it
    ("\u201cB\u201d", B),
    # the article and the pronoun
    ("A", A),
    ("A.", A),
    ("(A) is right", A),
    ("A is right", A),
    ("A pleural effusion", A),
    ("A small pleural effusion is seen", A),
    ("A small shadow is seen", NOT_FOUND),
    ("A pneumothorax is seen", B),
    ("A small nodule", C),
    ("The answer is a small nodule.", C),
    ("I see a line.", NOT_FOUND),
    ("A line is seen at the apex", NOT_FOUND),
    ("Kerley B lines", NOT_FOUND),
    ("A type B dissection", NOT_FOUND),
    # wording
    ("Pneumothorax", B),
    ("pneumothorax.", B),
    ("The film shows a PNEUMOTHORAX", B),
    ("pleural effusions", A),
    ("No finding", E),
    ("There is no finding.", E),
    # what is denied
    ("B, not A", B),
    ("B (not A)", B),
    ("not A, but B", B),
    ("It's not A, it's B", B),
    ("B rather than A", B),
    ("A is wrong. B is correct.", B),
    ("Neither A nor C; B", B),
    ("Unlike A, B explains the line.", B),
    ("The answer is B; it cannot be A.", B),
    ("The answer is not A but B.", B),
    ("not B", DENIED),
    ("The answer is not B", DENIED),
    ("There is no pneumothorax.", DENIED),
    ("Pneumothorax is unlikely.", DENIED),
    ("B is incorrect", DENIED),
    ("Pneumothorax cannot be excluded", B),
    # several
    ("A or B", AMBIGUOUS),
    ("A/B", AMBIGUOUS),
    ("Either A or B", AMBIGUOUS),
    ("A and B", AMBIGUOUS),
    ("The answer is A or B.", AMBIGUOUS),
    ("<answer>A, B</answer>", AMBIGUOUS),
    ("Pleural effusion with consolidation", AMBIGUOUS),
    ("B) Cardiomegaly", AMBIGUOUS),  # letter and wording disagree
    ("A\nB", AMBIGUOUS),
    # the options once more
    (RESTATED, AMBIGUOUS),
    (RESTATED + "\nB", B),
    (RESTATED + "\nThe answer is B.", B),
    (RESTATED + "\nThe best match is a pneumothorax", B),
    (RESTATED.replace("\n", " "), AMBIGUOUS),
    ("B) Pneumothorax\nA) is wrong since no meniscus is seen, and cardiomegaly was thought of.", B),
    ("The effusion and the consolidation are old.\nB", B),
    # no answer
    ("", EMPTY),
    (" \n ", EMPTY),
    ("<think>B", EMPTY),
    ("<answer></answer>", EMPTY),
    ("I cannot determine this from one film.", REFUSED),
    ("I'm sorry, but I can't help with medical images.", REFUSED),
    ("I cannot tell whether it is a pneumothorax.", REFUSED),
    ("G", NOT_FOUND),
    ("The lungs.", NOT_FOUND),
    ("42", NOT_FOUND),
]


def check(text: str, question: Question, expected: object) -> None:
    found = extract(text, question)
    if isinstance(expected, Reason):
        assert found.answer is None
        assert found.reason is expected
        assert is_correct(text, question) is None
    else:
        assert found.reason is Reason.FOUND, found
        assert found.answer == (expected if isinstance(expected, tuple) else (expected,))


@pytest.mark.parametrize(("text", "expected"), MULTIPLE_CHOICE, ids=[text[:40] for text, _ in MULTIPLE_CHOICE])
def test_multiple_choice(text: str, expected: object) -> None:
    check(text, ask(Kind.MULTIPLE_CHOICE, *SIX), expected)


CLOSED = [
    ("Yes", "yes"),
    ("yes.", "yes"),
    ("**Yes**", "yes"),
    ("YES!", "yes"),
    ("<answer>no</answer>", "no"),
    ("The answer is no.", "no"),
    ("Answer: Yes", "yes"),
    ("Yes, and there is no pneumothorax.", "yes"),
    ("No, there is not.", "no"),
    ("No.", "no"),
    ("No pneumothorax is seen.", "no"),
    ("No evidence of a pneumothorax", "no"),
    ("<answer>No pneumothorax</answer>", "no"),
    ("Yes there is a pneumothorax", "yes"),
    (r"\boxed{\text{Yes}}", "yes"),
    ("There is no rib fracture.", NOT_FOUND),
    ("No rib fracture.", NOT_FOUND),
    ("Yes or no", AMBIGUOUS),
    ("Yes. No.", AMBIGUOUS),
    ("Yes and no.", AMBIGUOUS),
    ("I cannot determine this.", REFUSED),
    ("A", NOT_FOUND),  # no options, no letters
    ("Noted.", NOT_FOUND),
]


@pytest.mark.parametrize(("text", "expected"), CLOSED, ids=[text for text, _ in CLOSED])
def test_closed(text: str, expected: object) -> None:
    check(text, ask(Kind.CLOSED, question="Is there a pneumothorax?"), expected)


def test_no_abnormality_does_not_deny_that_the_film_is_normal() -> None:
    check("No abnormality of the film", ask(Kind.CLOSED, question="Is the film normal?"), NOT_FOUND)


def test_closed_with_options_takes_letters_too() -> None:
    question = ask(Kind.CLOSED, "Yes", "No", answer=("No",))
    assert [is_correct(text, question) for text in ("B", "No", "B) No", "Yes", "A", "A) No", "B or A")] == [
        True, True, True, False, False, None, None,
    ]  # fmt: skip


TWO_OPTION = [
    ("left lung", "Left lung"),
    ("A", "Left lung"),
    ("The right lung.", "Right lung"),
    ("It is the left lung, not the right lung.", "Left lung"),
    ("Left lung or right lung", AMBIGUOUS),
    ("Both: the left lung and the right lung", AMBIGUOUS),
    ("not the left lung", DENIED),
]


@pytest.mark.parametrize(("text", "expected"), TWO_OPTION, ids=[text for text, _ in TWO_OPTION])
def test_two_options(text: str, expected: object) -> None:
    check(text, ask(Kind.TWO_OPTION, "Left lung", "Right lung"), expected)


MULTI_LABEL = [
    ("A, B", (A, B)),
    ("A and D", (A, D)),
    ("BA", (A, B)),
    ("A, B, and F", (A, B, F)),
    ("<answer>A; F</answer>", (A, F)),
    ("Pleural effusion, consolidation", (A, F)),
    ("The answer is pleural effusion and cardiomegaly, no pneumothorax.", (A, D)),
    ("A small nodule and a pneumothorax", (B, C)),
    ("None", ()),
    ("<answer>none of the above</answer>", ()),
    ("No findings.", (E,)),  # an option here
    ("not A", DENIED),
    ("I cannot tell.", REFUSED),
    ("", EMPTY),
]


@pytest.mark.parametrize(("text", "expected"), MULTI_LABEL, ids=[text for text, _ in MULTI_LABEL])
def test_multi_label(text: str, expected: object) -> None:
    check(text, ask(Kind.MULTI_LABEL, *SIX), expected)


def test_labels_are_right_as_a_set() -> None:
    question = ask(Kind.MULTI_LABEL, *SIX, answer=(A, D))
    assert [is_correct(text, question) for text in ("D and A", "A", "A, B, D", "none", "?")] == [
        True, False, False, False, None,
    ]  # fmt: skip
    free = ask(Kind.MULTI_LABEL, answer=("Cardiomegaly", "Pleural effusion"))
    assert is_correct("<answer>pleural effusions, cardiomegaly</answer>", free) is True
    assert is_correct("cardiomegaly", free) is False
    assert is_correct("no cardiomegaly, pleural effusion", free) is False
    assert is_correct("none", Question("q", (), "?", (), (), Kind.MULTI_LABEL)) is True


OPEN = [
    ("left lung", True),
    ("Lung, left", True),
    ("In the left lung.", True),
    ("<answer>The left lung</answer>", True),
    ("I see a shadow.\nThe answer is the left lung.", True),
    ("The left side of the lung", True),
    ("left", False),
    ("right lung", False),
    ("left lung, right lung", False),
    ("not the left lung", False),
    ("left or right lung", False),
    ("", None),
    ("...", None),
    ("I cannot determine the side.", None),
    ("lung " * 200, None),
]


@pytest.mark.parametrize(("text", "right"), OPEN, ids=[text[:30] for text, _ in OPEN])
def test_open(text: str, right: bool | None) -> None:
    assert is_correct(text, ask(Kind.OPEN)) is right


def test_an_open_answer_has_several_wordings_and_numbers() -> None:
    question = ask(Kind.OPEN, answer=("2", "a pair"))
    assert [is_correct(text, question) for text in ("two", "2", "Pair", "three")] == [True, True, True, False]


def test_options_that_hold_one_another() -> None:
    question = ask(Kind.MULTIPLE_CHOICE, "Effusion", "Pleural effusion", "Left pleural effusion", "No effusion")
    for option in question.options:
        check(f"The film shows: {option.lower()}.", question, option)


def test_options_that_are_the_same_but_for_their_case_answer_to_letters_only() -> None:
    question = ask(Kind.MULTIPLE_CHOICE, "Left", "left", "Right")
    check("left", question, NOT_FOUND)
    check("B", question, "left")
    check("right", question, "Right")


OPTIONS = st.lists(
    st.sampled_from(["Effusion", "Mass", "Nodule", "Fracture", "Collapse", "Oedema", "Hernia", "Fibrosis"]),
    min_size=2,
    max_size=8,
    unique=True,
)
FORMS = [
    "{letter}", "({letter})", "{letter}.", "{letter}) {option}", "The answer is {letter}", "The answer is: {option}.",
    "<answer>{letter}</answer>", "<think>x</think><answer>{option}</answer>", r"\boxed{{{letter}}}", "**{letter}**",
    "It is {letter}.", "Option {letter} is right", "A hard film.\n\n{letter}", "{restated}\nAnswer: {letter}",
]  # fmt: skip


@given(options=OPTIONS, place=st.integers(0, 7), form=st.sampled_from(FORMS))
def test_every_form_of_every_option_is_read(options: list[str], place: int, form: str) -> None:
    question = ask(Kind.MULTIPLE_CHOICE, *options)
    place %= len(options)
    restated = "\n".join(f"{letter(n)}. {option}" for n, option in enumerate(options))
    check(form.format(letter=letter(place), option=options[place], restated=restated), question, options[place])


@given(
    options=OPTIONS,
    places=st.lists(st.integers(0, 7), min_size=2, max_size=4),
    joint=st.sampled_from([" or ", ", ", "/", " and ", "; "]),
)
def test_two_answers_are_none(options: list[str], places: list[int], joint: str) -> None:
    question = ask(Kind.MULTIPLE_CHOICE, *options)
    chosen = {place % len(options) for place in places}
    text = "<answer>" + joint.join(letter(place) for place in chosen) + "</answer>"
    assert (is_correct(text, question) is None) == (len(chosen) > 1)


@given(text=st.text(max_size=300), kind=st.sampled_from(Kind))
def test_no_text_breaks_it(text: str, kind: Kind) -> None:
    question = ask(kind, *([] if kind in (Kind.CLOSED, Kind.OPEN) else SIX))
    found = extract(text, question)
    assert (found.answer is None) == (found.reason is not Reason.FOUND)
    if question.options and found.answer:
        assert set(found.answer) <= set(question.options)


HOSTILE = [
    "A" * 10**6, "A or " * 200_000, "<answer>" * 125_000, "the answer is " * 70_000, "(" * 10**6, "\n" * 10**6,
    r"\boxed{" * 140_000, "<think>" * 140_000, "not " * 250_000, "*" * 10**6, "< answer" * 120_000,
    "<answer>" + "A, " * 330_000, "\ufdfa" * 300_000, "pleural " * 125_000, "I cannot " * 110_000, "A\n" * 500_000,
    "no, " * 250_000, "\x00" * 10**6, "\ud800" * 10**6, "answer" + " " * 10**6,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:12].encode("unicode_escape").decode() for text in HOSTILE])
def test_a_megabyte_takes_bounded_time(text: str) -> None:
    begun = time.process_time()
    for kind in Kind:
        extract(text, ask(kind, *([] if kind in (Kind.CLOSED, Kind.OPEN) else SIX)))
    assert time.process_time() - begun < 2.5
