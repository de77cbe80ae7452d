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
"""Means with bootstrap confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["Estimate", "mean_difference", "mean_interval"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, the bounds of its confidence interval, and the number of independent units behind it."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_interval(units: Sequence[float], *, level: float = 0.95, resamples: int = 9999, seed: int = 0) -> Estimate:
    """Percentile bootstrap of the mean over independent units (films, not the rollouts of one film).

    Raises:
        ValueError: no unit.
    """
    values = np.asarray(units, dtype=float)
    if values.size == 0:
        raise ValueError("a mean needs at least one unit")
    mean = float(values.mean())
    if values.size == 1 or np.ptp(values) == 0:
        return Estimate(mean, mean, mean, int(values.size))
    found = stats.bootstrap(
        (values,),
        np.mean,
        confidence_level=level,
        n_resamples=resamples,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    bounds = found.confidence_interval
    return Estimate(mean, float(bounds.low), float(bounds.high), int(values.size))


def mean_difference(after: Sequence[float], before: Sequence[float], *, seed: int = 0) -> Estimate:
    """Paired bootstrap of the mean of ``after - before``; both in the same order of units.

    Raises:
        ValueError: the two differ in length, or are empty.
    """
    if len(after) != len(before):
        raise ValueError(f"paired values need equal numbers of units, not {len(after)} and {len(before)}")
    return mean_interval([x - y for x, y in zip(after, before, strict=True)], seed=seed)
