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
"""What becomes of a report's sections on their way into a study, the same for every data set."""

from __future__ import annotations

from dataclasses import dataclass

from verl_cxr.reports.prior import without_priors
from verl_cxr.reports.text import clean_text, has_blank, split_sentences
from verl_cxr.study import Report

__all__ = ["ALL_PRIOR", "NO_SECTION", "TextOptions", "why_empty"]

NO_SECTION = "neither findings nor impression"
ALL_PRIOR = "nothing left without mentions of earlier examinations"
"""Why a report without text is dropped, in the words that the funnel of MIMIC-CXR has for it."""


def why_empty(*sections: str | None) -> str:
    """The reason for which a report is empty, by its sections as they were written."""
    return ALL_PRIOR if any(section and section.strip() for section in sections) else NO_SECTION


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How report text is taken.

    Attributes:
        priors: keep mentions of earlier examinations.
        drop_blanks: leave out sentences that hold a blank of de-identification (`___`, `XXXX`).
    """

    priors: bool = False
    drop_blanks: bool = False

    def section(self, text: str | None) -> str | None:
        """A section in one line; None if nothing is left of it."""
        return (self.rewritten(text) or None) if text else None

    def rewritten(self, text: str) -> str:
        """A text in one line, without mentions of earlier examinations and without blanks, as chosen."""
        text = clean_text(text)
        if not self.priors:
            text = without_priors(text)
        if self.drop_blanks and has_blank(text):
            text = " ".join(sentence for sentence in split_sentences(text) if not has_blank(sentence))
        return text

    def report(self, findings: str | None, impression: str | None, notes: str | None = None) -> Report:
        """The report of two sections; notes are only brought into one line."""
        return Report(self.section(findings), self.section(impression), clean_text(notes) or None if notes else None)
