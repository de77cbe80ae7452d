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
"""The funnel: how many studies entered a build, how many each stage dropped and why, how many rows came out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.table import Table

__all__ = ["Funnel"]

_EVERY_STAGE = "all"


class Funnel:
    """Counts of one build. Nothing is dropped without a reason that is counted here."""

    def __init__(self) -> None:
        self.read = 0
        self._drops: Counter[tuple[str, str]] = Counter()
        self._rows: Counter[tuple[str, str]] = Counter()

    def drop(self, reason: str, *, stage: str = _EVERY_STAGE) -> None:
        """Count one study that `stage`, or every stage, cannot use."""
        self._drops[stage, reason] += 1

    def keep(self, stage: str, split: str) -> None:
        """Count one row written."""
        self._rows[stage, split] += 1

    @property
    def rows(self) -> int:
        return self._rows.total()

    def to_dict(self) -> dict[str, Any]:
        """The counts, for the data set card."""
        return {
            "studies_read": self.read,
            "dropped": [{"stage": s, "reason": r, "studies": n} for (s, r), n in sorted(self._drops.items())],
            "rows": [{"stage": s, "split": p, "rows": n} for (s, p), n in sorted(self._rows.items())],
        }

    def table(self) -> Table:
        """The same counts, for a terminal."""
        table = Table("stage", "", "count", title="Funnel")
        table.add_row("", "studies read", f"{self.read:,}")
        for (stage, reason), count in sorted(self._drops.items()):
            table.add_row(stage, f"dropped: {reason}", f"-{count:,}")
        for (stage, split), count in sorted(self._rows.items()):
            table.add_row(stage, f"rows, {split}", f"{count:,}")
        return table
