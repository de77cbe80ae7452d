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
"""Report metrics of one system or two: mean and deviation over seeds, intervals over reports, paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from verl_cxr.evaluate.interval import Difference, Estimate, pooled_difference, pooled_interval
from verl_cxr.evaluate.metrics import MetricOptions, Scores, Skipped, compute
from verl_cxr.evaluate.predictions import Predictions, References

__all__ = ["MetricResult", "evaluate"]


@dataclass(frozen=True, slots=True)
class MetricResult:
    """One metric of a system.

    Attributes:
        seeds: its value on each file.
        spread: their sample standard deviation; None for a single file.
        estimate: their mean, with the 95 % interval of a bootstrap over reports.
        defined: reports on which the metric is defined, of each file.
        samples: a value a report, of each file; None where it is undefined.
        difference: to the other system, if there is one; by a paired bootstrap over reports.
    """

    name: str
    label: str
    made_by: str
    seeds: tuple[float, ...]
    spread: float | None
    estimate: Estimate
    defined: tuple[int, ...]
    samples: tuple[tuple[float | None, ...], ...]
    against: tuple[float, ...] = ()
    difference: Difference | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but the samples, as JSON values in [0, 1]."""
        found: dict[str, Any] = {
            "label": self.label,
            "made_by": self.made_by,
            "value": fmean(self.seeds),
            "interval": [self.estimate.low, self.estimate.high],
            "n": self.estimate.n,
            "defined": list(self.defined),
            "seeds": list(self.seeds),
            "standard_deviation": self.spread,
        }
        if self.difference is not None:
            found["against"] = {"value": fmean(self.against), "seeds": list(self.against)}
            found["difference"] = asdict(self.difference)
        return found


def evaluate(
    references: References,
    systems: Sequence[Predictions],
    metrics: Sequence[str],
    *,
    against: Sequence[Predictions] = (),
    options: MetricOptions | None = None,
) -> list[MetricResult | Skipped]:
    """Compute metrics.

    Args:
        references: the reports to compare with.
        systems: the predictions of one system, one file a seed.
        metrics: names, see `verl_cxr.evaluate.metrics.METRICS`.
        against: the predictions of another system on the same studies.
        options: see there.

    Raises:
        ValueError: see `verl_cxr.evaluate.metrics.compute`.
    """
    files = [*systems, *against]
    # all files in one call: METEOR and RadGraph take seconds to load, and files share most of their references
    pairs = [pair for file in files for pair in file.pairs(references)]
    reports = len(references.texts)
    return [
        found if isinstance(found, Skipped) else _result(found, reports, len(systems))
        for found in compute(metrics, pairs, options)
    ]


def _result(scores: Scores, reports: int, seeds: int) -> MetricResult:
    parts = [scores.part(start, start + reports) for start in range(0, len(scores.samples), reports)]
    ours, theirs = parts[:seeds], parts[seeds:]
    values, counts = tuple(part.value for part in ours), [part.counts for part in ours]
    difference = None
    if theirs:
        difference = pooled_difference(counts, [part.counts for part in theirs], scores.pool)
    return MetricResult(
        name=scores.name,
        label=scores.label,
        made_by=scores.made_by,
        seeds=values,
        spread=stdev(values) if len(values) > 1 else None,
        estimate=pooled_interval(counts, scores.pool),
        defined=tuple(sum(value is not None for value in part.samples) for part in ours),
        samples=tuple(part.samples for part in ours),
        against=tuple(part.value for part in theirs),
        difference=difference,
    )
