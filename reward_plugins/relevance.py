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
"""The table that ties measurements to questions and to words, kept as data: ``reward_plugins/measurements.yaml``.

A lab's own table is a file of the same form, named by its path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from verl_cxr.answers import plain
from verl_cxr.question import Question

__all__ = ["Band", "Claim", "Measure", "MeasurementTable", "TableError", "load_table"]

Band = tuple[float | None, float | None]
"""Lowest and highest value of a state; None: no limit."""


class TableError(ValueError):
    """A table of measurements that is not one; names the file and the place."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A fact of the lexicon annotator, and what it says about a measurement."""

    states: frozenset[str]
    findings: frozenset[str]
    places: tuple[re.Pattern[str], ...]
    """Each must match one place of the fact in full."""

    def holds(self, finding: str, places: Sequence[str]) -> bool:
        """The fact is this one."""
        return finding in self.findings and all(any(at.fullmatch(place) for place in places) for at in self.places)


@dataclass(frozen=True, slots=True)
class Measure:
    """All that the table says about one measurement."""

    name: str
    named: re.Pattern[str]
    questions: re.Pattern[str]
    tolerance: float
    signed: bool
    limits: tuple[float, ...]
    bands: Mapping[str, Mapping[str, Band]]
    claims: tuple[Claim, ...]

    def states(self, value: float, backend: str | None = None) -> frozenset[str]:
        """The states that a value is in; several near a limit.

        Args:
            value: of the measurement, in its unit.
            backend: name of the mask backend that it comes from.
        """
        bands = self.bands.get(backend or "default") or self.bands["default"]
        return frozenset(
            state
            for state, (low, high) in bands.items()
            if (low is None or value >= low) and (high is None or value <= high)
        )

    @property
    def all_states(self) -> frozenset[str]:
        """Every state that it can be in."""
        return frozenset(self.bands["default"])


@dataclass(frozen=True, slots=True)
class MeasurementTable:
    """The whole table."""

    measures: Mapping[str, Measure]
    rewrites: tuple[tuple[re.Pattern[str], str], ...]

    def __hash__(self) -> int:
        return id(self)

    def relevant(self, question: Question) -> frozenset[str]:
        """r_k: the measurements that bear on a question.

        A question that says so itself, by ``extra["measurement"]`` (a name, a list of names, or null for none), is
        believed; of any other the words of the question and its options decide.
        """
        if "measurement" in question.extra:
            said = question.extra["measurement"]
            return frozenset([said] if isinstance(said, str) else said or ())
        return self._by_words(" \n ".join([question.question, *question.options]))

    def _by_words(self, text: str) -> frozenset[str]:
        text = plain(text).lower()
        return frozenset(name for name, measure in self.measures.items() if measure.questions.search(text))


@lru_cache(maxsize=16)
def load_table(name_or_path: str = "default") -> MeasurementTable:
    """The table of this package (``default``), or of a file.

    Raises:
        TableError: the file is no table.
        FileNotFoundError: no such file.
    """
    if name_or_path == "default":
        text = resources.files("reward_plugins").joinpath("measurements.yaml").read_text(encoding="utf-8")
    else:
        text = Path(name_or_path).read_text(encoding="utf-8")
    try:
        return _table(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise TableError(f"{name_or_path}: not YAML: {error}") from None
    except re.error as error:
        raise TableError(f"{name_or_path}: {error.pattern!r} is not a pattern: {error}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TableError(f"{name_or_path}: not a table of measurements: {type(error).__name__}: {error}") from None


def _table(record: Any) -> MeasurementTable:
    rewrites = [(re.compile(pattern, re.IGNORECASE), words) for pattern, words in record.get("rewrites", ())]
    measures = {name: _measure(name, rows) for name, rows in record["measurements"].items()}
    return MeasurementTable(measures, tuple(rewrites))


def _measure(name: str, rows: Mapping[str, Any]) -> Measure:
    bands = {backend: {state: _band(band) for state, band in of.items()} for backend, of in rows["bands"].items()}
    for backend, states in bands.items():
        if states.keys() != bands["default"].keys():
            raise ValueError(f"{name}: the bands of {backend!r} name other states than those of 'default'")
    claims = tuple(_claim(claim) for claim in rows["claims"])
    for state in frozenset().union(*(claim.states for claim in claims)) - bands["default"].keys():
        raise ValueError(f"{name}: a claim names the state {state!r}, which has no band")
    return Measure(
        name=name,
        named=_any_of(rows["named"]),
        questions=_any_of(rows["questions"]),
        tolerance=float(rows["tolerance"]),
        signed=bool(rows["signed"]),
        limits=tuple(float(limit) for limit in rows["limits"]),
        bands=bands,
        claims=claims,
    )


def _claim(row: Mapping[str, Any]) -> Claim:
    return Claim(frozenset(row["states"]), frozenset(row["finding"]), tuple(re.compile(place) for place in row["at"]))


def _band(numbers: Sequence[float | None]) -> Band:
    low, high = numbers
    return None if low is None else float(low), None if high is None else float(high)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
