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
"""The look-up ``knowledge``: short statements about findings, each with the work that it rests on.

The statements are data (``knowledge.yaml``); a group's own are a file of the same form. A name is found whatever its
case, plural and word order. Of a name that is not there nothing is said but that, and which names are close.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from verl_cxr.answers import words
from verl_cxr.lookup.answer import LookupAnswer

__all__ = ["Finding", "KnowledgeBase", "KnowledgeError", "Statement"]

_CLOSE, _CUTOFF = 3, 0.6  # how many close names are told, and how close they must be
_ASKED = 120  # characters of a name that are read


class KnowledgeError(ValueError):
    """A file that is no knowledge base; names the file and the place."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence or two, and the keys of the works that it rests on; one at least."""

    text: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """All that is known about one finding, the most telling statement first."""

    name: str
    synonyms: tuple[str, ...]
    statements: tuple[Statement, ...]


class KnowledgeBase:
    """The curated look-up.

    Args:
        path: a file in the form of ``knowledge.yaml``; None: this package's.
        statements: how many statements an answer holds at most; the most telling come first.

    Raises:
        KnowledgeError: the file is no knowledge base.
        ValueError: ``statements`` is not positive.
        FileNotFoundError: no such file.
    """

    name = "knowledge"

    def __init__(self, *, path: str | None = None, statements: int = 3) -> None:
        if statements < 1:
            raise ValueError(f"statements={statements}: an answer holds one at least")
        self.statements = statements
        place = path or "knowledge.yaml"
        packaged = resources.files("verl_cxr.lookup").joinpath("knowledge.yaml")
        text = (packaged if path is None else Path(path)).read_text(encoding="utf-8")
        try:
            self.sources, self.findings = _read(yaml.safe_load(text))
        except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise KnowledgeError(f"{place}: not a knowledge base: {type(error).__name__}: {error}") from None
        self._places: dict[tuple[str, ...], Finding] = {}
        for finding in self.findings:
            for name in (finding.name, *finding.synonyms):
                other = self._places.setdefault(_key(name), finding)
                if other is not finding:
                    raise KnowledgeError(f"{place}: {name!r} is a name of {other.name!r} and of {finding.name!r}")

    def look_up(self, finding: str) -> LookupAnswer:
        """See :class:`~verl_cxr.lookup.answer.LookupBackend`."""
        asked = finding[:_ASKED].strip()
        found = self._places.get(_key(asked))
        if found is None:
            return LookupAnswer(asked, self._unknown(asked), known=False)
        told = found.statements[: self.statements]
        cited = dict.fromkeys(source for statement in told for source in statement.sources)
        sentences = [f"{statement.text} ({self._short(statement.sources)})" for statement in told]
        text = f"{found.name[0].upper()}{found.name[1:]}: {' '.join(sentences)}"
        return LookupAnswer(found.name, text, known=True, sources=tuple(self.sources[key]["full"] for key in cited))

    def close_names(self, finding: str) -> tuple[str, ...]:
        """Names of findings that resemble one that is not there, the closest first."""
        names = {" ".join(key): found.name for key, found in self._places.items()}
        wanted = _key(finding[:_ASKED])
        close = difflib.get_close_matches(" ".join(wanted), names, n=3 * _CLOSE, cutoff=_CUTOFF)
        sharing = [name for name in names if name.split()[-1:] == list(wanted[-1:])]
        return tuple(dict.fromkeys(names[name] for name in [*close, *sharing]))[:_CLOSE]

    def _unknown(self, asked: str) -> str:
        close = self.close_names(asked)
        hint = f" Known names that are close: {', '.join(close)}." if close else ""
        return f"Nothing is recorded about {asked!r}; that says nothing about the film.{hint}"

    def _short(self, sources: Sequence[str]) -> str:
        return "; ".join(self.sources[source]["short"] for source in sources)


def _key(name: str) -> tuple[str, ...]:
    return tuple(sorted(words(name)))


def _read(record: Any) -> tuple[Mapping[str, Mapping[str, str]], tuple[Finding, ...]]:
    sources = record["sources"]
    for key, source in sources.items():
        if not (source["short"].strip() and source["full"].strip()):
            raise ValueError(f"source {key!r} needs a short and a full form")
    findings = tuple(_finding(name, rows, sources) for name, rows in record["findings"].items())
    return sources, findings


def _finding(name: str, rows: Mapping[str, Any], sources: Mapping[str, Any]) -> Finding:
    statements = []
    for text, *cited in rows["says"]:
        if not cited:
            raise ValueError(f"{name}: a statement names no source: {text[:60]!r}")
        for source in cited:
            if source not in sources:
                raise ValueError(f"{name}: no source {source!r}")
        statements.append(Statement(text.strip(), tuple(cited)))
    if not statements:
        raise ValueError(f"{name}: says nothing")
    return Finding(name, tuple(rows.get("also", ())), tuple(statements))
