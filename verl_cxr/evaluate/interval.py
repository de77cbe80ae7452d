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
"""Means, and other numbers of a set of units, with bootstrap confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["Difference", "Estimate", "Runs", "mean_difference", "mean_interval", "pooled_difference", "pooled_interval"]

Numbers = NDArray[np.float64]
Pool = Callable[[Numbers], Numbers]
"""(..., k) sums over units to (...) values of a number; NaN where it is undefined."""
Runs = Sequence[Numbers]
"""One (units, k) array a run (a seed), all about the same units in the same order: what `Pool` wants the sums of."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, the bounds of its confidence interval, and the number of independent units behind it."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Difference(Estimate):
    """A paired difference; `wins`: the share of resamples in which it is above 0."""

    wins: float


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


def pooled_interval(runs: Runs, pool: Pool, *, level: float = 0.95, resamples: int = 9999, seed: int = 0) -> Estimate:
    """Percentile bootstrap over units of a number that is not a mean of them, such as a corpus BLEU.

    Args:
        runs: the number is the mean over these.
        pool: see `Pool`.

    Raises:
        ValueError: no run, no unit, or runs of different units.
    """
    value, spread, units = _resampled(_mean_over(runs, pool), runs, resamples, seed)
    low, high = _bounds(spread, level)
    return Estimate(value, low, high, units)


def pooled_difference(
    after: Runs, before: Runs, pool: Pool, *, level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> Difference:
    """Paired bootstrap of `after` minus `before`: each resample takes the same units of both (Koehn 2004).

    Raises:
        ValueError: as `pooled_interval`.
    """
    ours, theirs = _mean_over(after, pool), _mean_over(before, pool)
    value, spread, units = _resampled(lambda w: ours(w) - theirs(w), [*after, *before], resamples, seed)
    low, high = _bounds(spread, level)
    return Difference(value, low, high, units, float(np.mean(spread > 0)))


def _mean_over(runs: Runs, pool: Pool) -> Pool:
    if not runs:
        raise ValueError("there is no run")
    return lambda weights: np.mean([pool(weights @ counts) for counts in runs], axis=0)


def _resampled(number: Pool, runs: Runs, resamples: int, seed: int) -> tuple[float, Numbers, int]:
    """The number, its values over resamples, and how many units there are.

    Args:
        number: (..., units) weights of the units to (...) values.
    """
    units = len(runs[0])
    if units == 0 or any(len(counts) != units for counts in runs):
        raise ValueError(f"runs need the same units, and at least one: there are {[len(counts) for counts in runs]}")
    value = float(number(np.ones(units)))
    if units == 1:
        return value, np.array([value]), units

    def statistic(drawn: NDArray[np.int64], axis: int = -1) -> Any:
        rows = drawn.reshape(-1, units)
        places = rows + units * np.arange(len(rows))[:, None]
        weights = np.bincount(places.ravel(), minlength=rows.size).reshape(rows.shape).astype(float)
        return number(weights).reshape(drawn.shape[:-1])

    found = stats.bootstrap(
        (np.arange(units),),
        statistic,
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, 1_000_000 // units),
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return value, np.asarray(found.bootstrap_distribution), units


def _bounds(spread: Numbers, level: float) -> tuple[float, float]:
    """Percentiles of the values that are defined."""
    defined = spread[~np.isnan(spread)]
    if defined.size == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
