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
"""Sections of a MIMIC-CXR report, by the rules published with the data set (github.com/MIT-LCP/mimic-cxr, `txt/`).

A header is a line of capitals with a colon, behind one space::

     FINAL REPORT
     EXAMINATION:  CHEST (PA AND LAT)

     FINDINGS:

     The lungs are clear.

     IMPRESSION:  No pneumonia.

Names are brought into few (`section_names.yaml`); what stands under the name of a view ("CHEST, PA AND LATERAL:") is
findings; an empty Findings or Impression does not count; of several sections of a name the last holds, so that a report
holds over an addendum before it. With neither findings nor impression, what follows the first paragraph of the last
section is the last paragraph. One rule is our own: a line of underscores, which sets an addendum off, ends a section.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import yaml

__all__ = ["Sections", "split_report"]

_HEADER = re.compile(r"\n ([A-Z ()/,-]+):\s")
_RULE = re.compile(r"\n[ \t]*_{10,}[ \t]*(?=\n|\Z)")
_PARAGRAPH = "\n \n"


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections of one report; None for one that it does not have, never empty text.

    Attributes:
        named: every section by its name, the two below included; of several with one name the last.
    """

    named: dict[str, str]

    @property
    def findings(self) -> str | None:
        return self.named.get("findings")

    @property
    def impression(self) -> str | None:
        return self.named.get("impression")

    @property
    def last_paragraph(self) -> str | None:
        """What a report without findings and impression ends with; the whole of one without headers and paragraphs."""
        return self.named.get("last_paragraph") or self.named.get("full report")


def split_report(text: str, override: str | tuple[int, int] | None = None) -> Sections:
    """Take a report apart.

    Args:
        text: the file as it is, with the space before each line.
        override: for a report that the rules misread: the name of the section that is its impression, or the first
            and the last character of the impression in the text.
    """
    if isinstance(override, tuple):
        return _named([("impression", text[override[0] : override[1]])])
    sections = _split(text)
    if override is not None:
        chosen = [section for name, section in sections if name == override]
        return _named([("impression", section) for section in chosen])
    sections = [(n, s) for n, s in sections if n not in ("findings", "impression") or s.strip()]
    if sections and not any(name in ("findings", "impression") for name, _ in sections):
        name, last = sections[-1]
        first, separator, rest = last.partition(_PARAGRAPH)
        if separator:
            sections[-1:] = [(name, first), ("last_paragraph", rest)]
    return _named(sections)


def _named(sections: list[tuple[str, str]]) -> Sections:
    return Sections({name: section.strip() for name, section in sections if section.strip()})


def _split(text: str) -> list[tuple[str, str]]:
    """Names and texts of the sections, in their order."""
    header = _HEADER.search(text)
    if header is None:
        return [("full report", _cut(text))]
    sections = [("preamble", text[: header.start(1)])]
    while header is not None:
        # A header cannot stand in the line of another.
        line_end = text.find("\n", header.end())
        following = _HEADER.search(text, header.end() if line_end < 0 else line_end)
        sections.append((_name(header[1]), _cut(text[header.end() : following.start() if following else len(text)])))
        header = following
    return sections


def _cut(section: str) -> str:
    rule = _RULE.search(section)
    return section[: rule.start()] if rule and section[: rule.start()].strip() else section


@cache
def _names() -> dict[str, Any]:
    names: dict[str, Any] = yaml.safe_load((resources.files("verl_cxr") / "reports" / "section_names.yaml").read_text())
    return names


@lru_cache(maxsize=4096)
def _name(header: str) -> str:
    """The one name of a section that many headers stand for."""
    names, header = _names(), header.lower().strip()
    exact = names["exact"].get(header)
    if exact is not None:
        return str(exact)
    for kind in ("containing", "views"):
        for part, name in names[kind].items():
            if part in header:
                return str(name)
    return header
