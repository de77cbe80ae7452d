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
"""What happened to everything that a build read: counts, each drop with its reason, each problem with its place.

An adapter states the lines of its funnel in their order (`plan`), with the numbers of a paper where it has them, so
that the two can be read side by side. Reasons that nobody planned come after the planned ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from verl_cxr.files import RecordError

__all__ = ["Funnel", "Line"]

_EVERY_STAGE = "all"
_EXAMPLES = 5
_KINDS = 100
_OTHER = "other problems"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the funnel.

    Attributes:
        label: what is counted, or the reason of a drop.
        paper: the same number in the paper; None where the paper gives none.
        dropped: whether it counts studies that were dropped; else what is there at this point.
    """

    label: str
    paper: int | None = None
    dropped: bool = False


class Funnel:
    """Counts of one build. Nothing is dropped without a reason that is counted here.

    A study is one film with its report, so a report with two frontal films counts twice, except where a line says so.
    """

    def __init__(self) -> None:
        self.read = 0
        self._plan: dict[str, Line] = {}
        self._counts: Counter[str] = Counter()
        self._drops: Counter[tuple[str, str]] = Counter()
        self._discards: Counter[tuple[str, str]] = Counter()
        self._problems: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._rows: Counter[tuple[str, str]] = Counter()

    def plan(self, *lines: Line) -> None:
        """State the lines that are to come, in the order in which they are shown. A line stated twice keeps its place.

        Planned lines are shown even when nothing was counted on them.
        """
        for line in lines:
            self._plan.setdefault(line.label, line)

    def count(self, label: str, number: int = 1) -> None:
        """Add to a line."""
        if label not in self._plan:
            self.plan(Line(label))
        self._counts[label] += number

    def total(self, label: str, number: int) -> None:
        """Set a line to what is known in advance. A build that goes on after an interruption may repeat it."""
        self.plan(Line(label))
        self._counts[label] = number

    def drop(self, reason: str, *, stage: str = _EVERY_STAGE) -> None:
        """Count one study that `stage`, or every stage, cannot use."""
        self._drops[stage, reason] += 1

    def discard(self, reason: str, *, unit: str, number: int = 1) -> None:
        """Count parts that a study lost while it was itself kept, for instance boxes."""
        self._discards[unit, reason] += number

    def problem(self, error: RecordError) -> None:
        """Count a broken record under what its message says before the first colon; the first few keep their place."""
        kind = error.problem.partition(":")[0]
        if kind not in self._problems and len(self._problems) >= _KINDS:
            kind = _OTHER
        self._problems[kind] += 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(str(error))

    def keep(self, stage: str, split: str) -> None:
        """Count one row written."""
        self._rows[stage, split] += 1

    @property
    def rows(self) -> int:
        return self._rows.total()

    @property
    def problems(self) -> int:
        """How many records were broken."""
        return self._problems.total()

    def merge(self, other: Funnel) -> None:
        """Add the counts of another part of the same build. Lines set by `total` must be set in one part only."""
        self.plan(*other._plan.values())
        self.read += other.read
        for name in ("_counts", "_drops", "_discards", "_problems", "_rows"):
            getattr(self, name).update(getattr(other, name))
        for kind, examples in other._examples.items():
            mine = self._examples.setdefault(kind, [])
            mine.extend(examples[: _EXAMPLES - len(mine)])

    def to_dict(self) -> dict[str, Any]:
        """The counts, for the data set card and for `from_dict`. Equal counts give equal dictionaries."""
        return {
            "studies_read": self.read,
            "lines": [
                {"line": line.label, "count": self._counts[line.label], "paper": line.paper}
                for line in self._plan.values()
                if not line.dropped
            ],
            "dropped": [{"stage": s, "reason": r, "studies": n} for (s, r), n in self._ordered_drops()],
            "discarded": [{"unit": u, "reason": r, "count": n} for (u, r), n in sorted(self._discards.items())],
            "problems": [
                {"problem": kind, "count": n, "examples": self._examples[kind]}
                for kind, n in sorted(self._problems.items())
            ],
            "rows": [{"stage": s, "split": p, "rows": n} for (s, p), n in sorted(self._rows.items())],
        }

    @classmethod
    def from_dict(cls, counts: Mapping[str, Any]) -> Funnel:
        """The funnel of which `to_dict` gave this, to go on with an interrupted build."""
        funnel = cls()
        funnel.read = counts["studies_read"]
        for line in counts["lines"]:
            funnel.plan(Line(line["line"], line["paper"]))
            funnel._counts[line["line"]] = line["count"]
        for drop in counts["dropped"]:
            funnel._drops[drop["stage"], drop["reason"]] = drop["studies"]
        for discard in counts["discarded"]:
            funnel._discards[discard["unit"], discard["reason"]] = discard["count"]
        for problem in counts["problems"]:
            funnel._problems[problem["problem"]] = problem["count"]
            funnel._examples[problem["problem"]] = list(problem["examples"])
        for rows in counts["rows"]:
            funnel._rows[rows["stage"], rows["split"]] = rows["rows"]
        return funnel

    def table(self) -> Table:
        """The same counts, for a terminal; the last column shows the paper's."""
        with_paper = any(line.paper is not None for line in self._plan.values())
        table = Table("stage", "", "count", *(["paper"] if with_paper else []), title="Funnel")
        for stage, label, count, paper in self._table_rows():
            cells = [f"{paper:,}" if paper is not None else ""] if with_paper else []
            table.add_row(stage, label, count, *cells)
        return table

    def _table_rows(self) -> Iterator[tuple[str, str, str, int | None]]:
        for line in self._plan.values():
            if line.dropped:
                yield _EVERY_STAGE, f"dropped: {line.label}", f"-{self._drops[_EVERY_STAGE, line.label]:,}", line.paper
            else:
                yield "", line.label, f"{self._counts[line.label]:,}", line.paper
        yield "", "studies read", f"{self.read:,}", None
        for (stage, reason), count in self._ordered_drops():
            if stage != _EVERY_STAGE or reason not in self._plan:
                yield stage, f"dropped: {reason}", f"-{count:,}", None
        for (unit, reason), count in sorted(self._discards.items()):
            yield "", f"{unit} discarded: {reason}", f"-{count:,}", None
        for kind, count in sorted(self._problems.items()):
            yield "", f"problem: {kind}", f"{count:,}", None
        for (stage, split), count in sorted(self._rows.items()):
            yield stage, f"rows, {split}", f"{count:,}", None

    def _ordered_drops(self) -> list[tuple[tuple[str, str], int]]:
        place = {line.label: number for number, line in enumerate(self._plan.values()) if line.dropped}
        last = len(place) + len(self._plan)
        return sorted(self._drops.items(), key=lambda item: (item[0][0], place.get(item[0][1], last), item[0][1]))
