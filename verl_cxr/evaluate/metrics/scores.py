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
"""What a report metric gives: a value a report, and what to add up for the value of any set of reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Metric", "Numbers", "Pair", "Scores", "UnavailableError", "mean_of"]

Pair = tuple[str, str]
"""(predicted, reference)"""
Numbers = NDArray[np.float64]


class UnavailableError(RuntimeError):
    """A metric that cannot be computed here; the message says why, and what would help."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One metric on some reports.

    Attributes:
        name: its key in results, such as ``"bleu4"``.
        label: its name in a table, such as ``"BLEU-4"``.
        made_by: the implementation and its version.
        samples: a value a report; None where the metric is undefined.
        counts: (reports, k): what to add up over reports.
        pool: (..., k) sums of `counts` to (...) values of the metric; NaN where it is undefined.
    """

    name: str
    label: str
    made_by: str
    samples: tuple[float | None, ...]
    counts: Numbers
    pool: Callable[[Numbers], Numbers]

    @property
    def value(self) -> float:
        """The metric on all reports; NaN where it is undefined."""
        return float(self.pool(self.counts.sum(axis=0)))

    def part(self, start: int, stop: int) -> Scores:
        """The metric on the reports from `start` to before `stop`."""
        return replace(self, samples=self.samples[start:stop], counts=self.counts[start:stop])


class Metric(Protocol):
    """Scores pairs of texts; one call may give several related numbers, such as the levels of one F1."""

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores]:
        """See `Scores`.

        Args:
            pairs: at least one; no reference is blank.

        Raises:
            UnavailableError: what the metric needs failed.
        """
        ...


def mean_of(name: str, label: str, made_by: str, samples: Sequence[float | None]) -> Scores:
    """A metric whose value is the mean of its samples; undefined samples do not count."""
    counts = np.array([(0.0, 0.0) if value is None else (value, 1.0) for value in samples]).reshape(-1, 2)
    return Scores(name, label, made_by, tuple(samples), counts, _mean)


def _mean(sums: Numbers) -> Numbers:
    with np.errstate(invalid="ignore"):
        return np.asarray(sums[..., 0] / sums[..., 1], dtype=float)
