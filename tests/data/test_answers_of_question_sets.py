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
"""Every answer of real question sets is read back from the ways in which a model may write it, and no other is."""

import pytest
from reading import questions_of, shared

from verl_cxr.answers import is_correct
from verl_cxr.question import Kind, Question

WORDED = (
    "{answer}",
    "**{answer}**",
    "<answer>{answer}</answer>",
    "The answer is {answer}.",
    "<think>Let me look. A small opacity may be seen, or not.</think>\n{answer}",
    "Based on the film, the final answer: {answer}",
)
LETTERED = ("{letters}", "<answer>{letters}</answer>", "The answer is {letters}.")
ONE_LETTER = ("{letters}) {answer}", "I think it is ({letters}) {answer}")


def wrong_answer(question: Question) -> str | None:
    if question.kind is Kind.CLOSED:
        return {"yes": "no", "no": "yes"}[question.answer[0].lower()]
    if question.kind in (Kind.MULTIPLE_CHOICE, Kind.TWO_OPTION):
        return next(option for option in question.options if option not in question.answer)
    return None


@pytest.mark.parametrize("name", ["slake", "vqa_rad", "rad_restruct"])
def test_answers_of_a_set(name: str) -> None:
    questions, _ = questions_of(name, root=shared(name))
    assert len(questions) > 100
    for question in questions[::5]:
        several = question.kind is Kind.MULTI_LABEL
        answer = (", ".join(question.answer) or "none") if several else question.answer[0]
        forms = list(WORDED)
        if question.letters:
            forms += [*LETTERED, *(() if several else ONE_LETTER)]
        for form in forms:
            text = form.format(answer=answer, letters=", ".join(question.letters))
            assert is_correct(text, question) is True, (question, text)
        wrong = wrong_answer(question)
        for form in WORDED if wrong else ():
            assert is_correct(form.format(answer=wrong), question) is False, (question, form, wrong)
