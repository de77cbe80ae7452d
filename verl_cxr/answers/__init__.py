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
"""From what a model wrote to the answer that it gave, for every kind of question.

An answer that cannot be read is no answer: nothing is guessed, and why is told. Used by the accuracy-gated reward, by
``verl-cxr evaluate questions`` and by filters of training data, so that all three mean the same by "right".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from verl_cxr.answers.mentions import Mentions, mentions
from verl_cxr.answers.wording import contents, plain, words
from verl_cxr.answers.zone import Place, Scope, scope_of, tagged
from verl_cxr.question import Kind, Question, letter

__all__ = ["Extracted", "Reason", "extract", "is_correct", "is_right", "plain", "tagged", "words"]

_YES_NO = ("yes", "no")
_NEGATIVE_QUESTION = frozenset({"normal", "clear", "unremarkable", "intact", "free", "no", "not", "without", "absent"})
_REFUSAL = re.compile(
    r"\b(?:cannot|can't|can not|unable to|not able to|impossible to|could not|couldn't)\s(?:be\s)?(?:\w+ly\s)?"
    r"(?:determine|answer|assess|tell|say|conclude|evaluate|provide|help|interpret|identif|diagnose|comment|give|make)"
    r"|\bsorry\b|\bas an ai\b|\b(?:insufficient|not enough) (?:information|evidence)|\bconsult a\b|\bi don't know\b",
    re.IGNORECASE,
)
_NONE = re.compile(
    r"^\W*(?:none|nothing|no (?:finding|label|abnormality|option)s?|none of (?:them|these|the above))\W*$", re.I
)
_SEPARATOR = re.compile(r"[,;\n/]|\band\b", re.IGNORECASE)
_LETTER_RUN = re.compile(r"^\W*([A-Z]{2,26})\W*$")
_OPEN_LIMIT = 400  # characters of an open answer that no mark sets off from its explanation
_LABELS = 200


class Reason(str, Enum):
    """How the answer was found, or why there is none."""

    FOUND = "found"
    EMPTY = "empty"
    """Nothing is said, or the response ends inside its thoughts."""
    REFUSED = "refused"
    AMBIGUOUS = "ambiguous"
    """More than one option is named."""
    DENIED = "denied"
    """Options are ruled out, and none is named."""
    NOT_FOUND = "not_found"
    """The text names none of the options."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """The answer of a response.

    Attributes:
        answer: as a question's: texts of options, ``yes`` or ``no``, labels, or the text of an open answer. None: no
            answer can be read. Empty: that no label applies (multi-label).
        reason: see :class:`Reason`.
    """

    answer: tuple[str, ...] | None
    reason: Reason


def extract(text: str, question: Question) -> Extracted:
    """The answer that a response gives to a question, whatever the response holds.

    It is looked for in the last ``<answer>`` tag, else in ``\\boxed{}``, else in what follows the thoughts: after "the
    answer is", then anywhere, then in the last and the first line. Never raises; linear in the text.
    """
    scope = scope_of(text)
    if scope is None:
        return Extracted(None, Reason.EMPTY)
    if question.kind is Kind.OPEN or not (question.options or question.kind is Kind.CLOSED):
        found = _free(scope, several=question.kind is Kind.MULTI_LABEL)
    elif question.kind is Kind.MULTI_LABEL:
        found = _several(scope, question.options)
    else:
        options = question.options or _YES_NO
        chosen = _single(scope, options, letters=bool(question.options))
        if chosen in (Reason.NOT_FOUND, Reason.DENIED) and question.kind is Kind.CLOSED and _says_no(scope, question):
            return Extracted(("no",), Reason.FOUND)
        found = chosen if isinstance(chosen, Reason) else (options[chosen],)
    if not isinstance(found, Reason):
        return Extracted(found, Reason.FOUND)
    if found in (Reason.NOT_FOUND, Reason.DENIED) and _REFUSAL.search(scope.text):
        found = Reason.REFUSED
    return Extracted(None, found)


def is_correct(text: str, question: Question) -> bool | None:
    """Whether a response answers a question rightly.

    Returns:
        None where no answer can be read, which is not right, and is to be counted apart. Else whether the option, or
        yes or no, is the question's; whether the labels are exactly its labels; whether an open answer has the words
        of one of its answers, in whatever order, and no others but fillers.
    """
    return is_right(extract(text, question), question)


def is_right(extracted: Extracted, question: Question) -> bool | None:
    """`is_correct` for an answer that was extracted already."""
    answer = extracted.answer
    if answer is None:
        return None
    if question.kind is Kind.MULTI_LABEL:
        return {words(label) for label in answer} == {words(label) for label in question.answer}
    if question.kind is Kind.OPEN:
        return contents(answer[0]) in {contents(right) for right in question.answer}
    return answer[0].lower() in {right.lower() for right in question.answer}


def _single(scope: Scope, options: tuple[str, ...], *, letters: bool) -> int | Reason:
    """Place of the one option that is named."""

    def read(text: str) -> Mentions:
        return mentions(text, options, letters=letters)

    denied = False
    for cue in scope.cues():
        found = read(cue)
        if found.named:
            return found.named[0] if len(found.named) == 1 else Reason.AMBIGUOUS
        denied = denied or bool(found.denied)
    whole = read(scope.text)
    if len(whole.named) == 1:
        return whole.named[0]
    if not whole.named:
        return Reason.DENIED if denied or whole.denied else Reason.NOT_FOUND
    return _by_line(scope, read)


def _by_line(scope: Scope, read: Callable[[str], Mentions]) -> int | Reason:
    """The option of a text that names several: that of its last line, or of its first, unless the two are a list."""
    *earlier, last_line = scope.text.split("\n")
    leading = {found.named for found in map(read, earlier) if found.leads and len(found.named) == 1}
    first, last = read(scope.first_line), read(last_line)
    candidates = [first, last]
    if len(leading) > 1:  # the options are written out once more
        candidates = [last] if not last.leads or last.named in leading else []
    chosen = [found for found in candidates if len(found.named) == 1]
    leaders = {found.named[0] for found in chosen if found.leads}
    if len(leaders) == 1:
        return leaders.pop()
    return Reason.AMBIGUOUS if leaders or not chosen else chosen[-1].named[0]


def _several(scope: Scope, options: tuple[str, ...]) -> tuple[str, ...] | Reason:
    """All options that are named where the answer stands."""
    for text in [*scope.cues(), *([scope.last_line] if scope.place is Place.TEXT else []), scope.text]:
        run = _LETTER_RUN.match(text)
        if run and len(set(run[1])) == len(run[1]) and ord(max(run[1])) - ord("A") < len(options):
            return tuple(option for place, option in enumerate(options) if letter(place) in run[1])
        found = mentions(text, options)
        if found.named:
            return tuple(options[place] for place in found.named)
        if _NONE.match(text):
            return ()
    return Reason.DENIED if found.denied else Reason.NOT_FOUND


def _free(scope: Scope, *, several: bool) -> tuple[str, ...] | Reason:
    """The text of an open answer, or its parts."""
    cues = [cue for cue in scope.cues() if cue]
    text = cues[0] if cues else scope.text
    if not cues and scope.place is Place.TEXT and ("\n" in text or len(text) > _OPEN_LIMIT):
        text = scope.last_line
    if len(text) > _OPEN_LIMIT and not several:
        return Reason.NOT_FOUND
    if _REFUSAL.search(text):
        return Reason.REFUSED
    if several and _NONE.match(text):
        return ()
    parts = [part for part in _SEPARATOR.split(text) if words(part)] if several else [text] if words(text) else []
    return tuple(part.strip() for part in parts[:_LABELS]) or Reason.NOT_FOUND


def _says_no(scope: Scope, question: Question) -> bool:
    """ "No pneumothorax." answers "Is there a pneumothorax?", but "No effusion." not "Is the film normal?"."""
    said = words(scope.cues()[0] if scope.cues() else scope.first_line)
    asked = set(words(question.question))
    return said[:1] == ("no",) and bool(asked.intersection(said[1:])) and not asked & _NEGATIVE_QUESTION
