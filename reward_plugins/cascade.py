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
"""The cascaded reward of region-grounded GRPO: format, then where the model looked, then what it said there.

1. Format gate (:func:`verl_cxr.trace.parse`): a response that fails it earns 0.
2. Spatial: predicted and annotated regions are matched by name; IoU_k of each annotated region, 0 where it is missing.
3. Factual: F1_k between predicted and annotated finding, counted only where IoU_k > tau.

R = mean over annotated regions of (IoU_k + 1[IoU_k > tau] F1_k), in [0, 2]. What the paper leaves open is an option of
:class:`~reward_plugins.options.CascadeOptions`. A study without a located region has nothing to compare with: its
reasoning earns 0 and is counted as unverifiable.

Pure, and in two phases, so that the texts of many responses can reach one annotator together::

    prepared = prepare(response, study, options, frame)
    record = prepared.finish(facts.score(prepared.pairs))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward_plugins.matching import Match, Pairs, match, read_regions, shortcuts, target_of
from reward_plugins.options import CascadeOptions
from reward_plugins.record import RegionScore, RewardRecord
from verl_cxr.anatomy import load_vocabulary
from verl_cxr.facts import FactScorer
from verl_cxr.geometry import Frame
from verl_cxr.study import Study
from verl_cxr.trace import FormatReason, Rejection, parse

__all__ = ["CascadeOptions", "Prepared", "RegionScore", "RewardRecord", "prepare", "score"]

_UNDEFINED: Mapping[str, float | None] = {"one": 1.0, "zero": 0.0, "skip": None}


def score(response: str, study: Study, *, options: CascadeOptions, frame: Frame, facts: FactScorer) -> RewardRecord:
    """Score one response about one study.

    Args:
        response: what the model wrote, whatever that is.
        study: the annotation.
        options: see :class:`CascadeOptions`.
        frame: the frame of the boxes in the response, see :class:`~verl_cxr.trace.TraceFormat`.
        facts: scores the findings.

    Raises:
        FactServiceError: the fact service failed. Nothing about the response itself raises.
    """
    prepared = prepare(response, study, options, frame)
    return prepared.finish(facts.score(prepared.pairs))


def prepare(response: str, study: Study, options: CascadeOptions, frame: Frame) -> Prepared:
    """All of the reward that needs no fact scorer; see :func:`score` for the arguments."""
    vocabulary = load_vocabulary(options.vocabulary)
    target = target_of(study, vocabulary, frame)
    counts: dict[str, Any] = {"annotated_regions": len(target.boxes), "response_chars": len(response)}
    trace = parse(response, frame)
    if isinstance(trace, Rejection):
        return Prepared(options, counts | {"missing_regions": len(target.boxes)}, rejection=trace)
    predicted, degenerate, overrun = read_regions(trace.regions, vocabulary, options)
    if degenerate and options.degenerate == "reject":
        rejection = Rejection(FormatReason.DEGENERATE_BOX, f"{degenerate} box(es) without area")
        return Prepared(options, counts | {"missing_regions": len(target.boxes)}, rejection=rejection)
    pairs: Pairs = {}
    matches = match(predicted, target, options, pairs)
    answer = None
    if options.scores_report and target.report.strip():
        answer = pairs.setdefault((trace.report, target.report), len(pairs))
    duplicated, misplaced = shortcuts(predicted, target)
    n = len(trace.regions)
    counts |= {
        "n_regions": n,
        "missing_regions": len(target.boxes.keys() - predicted.keys()),
        "extra_regions": len(predicted.keys() - target.named),
        "duplicate_regions": n - len(predicted),
        "degenerate_boxes": degenerate,
        "overrun_boxes": overrun,
        "duplicate_findings": duplicated / n if n else 0.0,
        "misplaced_findings": misplaced / n if n else 0.0,
        "report_chars": len(trace.report),
    }
    return Prepared(options, counts, tuple(pairs), matches, answer)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A response that waits for the F1 of its ``pairs`` of (predicted, reference) texts."""

    options: CascadeOptions
    counts: Mapping[str, Any]
    """Fields of the record that are known already."""
    pairs: tuple[tuple[str, str], ...] = ()
    matches: Sequence[Match] = ()
    answer: int | None = None
    """Place of the two reports among the pairs; None where they are not to be compared."""
    rejection: Rejection | None = None

    def finish(self, f1s: Sequence[float | None]) -> RewardRecord:
        """The reward.

        Args:
            f1s: F1 in [0, 1] of each of ``pairs``, in order; None where neither text carries a fact.

        Raises:
            ValueError: not one F1 a pair, or one outside [0, 1]: the scorer is broken, and so would the reward be.
        """
        if len(f1s) != len(self.pairs):
            raise ValueError(f"{len(f1s)} F1 values for {len(self.pairs)} pairs")
        for f1 in f1s:
            if f1 is not None and not 0 <= f1 <= 1:
                raise ValueError(f"an F1 lies in [0, 1] or is None, not {f1}")
        options = self.options
        if self.rejection is not None:
            return RewardRecord(
                reward=0.0,
                format=False,
                reasoning=0.0,
                spatial=0.0,
                factual=0.0 if options.scores_findings else None,
                answer=0.0 if options.scores_report else None,
                reason=self.rejection.reason.value,
                detail=self.rejection.detail,
                **self.counts,
            )
        known = [_UNDEFINED[options.no_entity] if f1 is None else f1 for f1 in f1s]
        regions = tuple([self._region(match, known) for match in self.matches])
        spatial, factual = self._means(regions)
        reasoning = self._reasoning(spatial, factual)
        answer = None if self.answer is None else known[self.answer]
        return RewardRecord(
            reward=self._reward(reasoning, answer),
            format=True,
            reasoning=reasoning,
            spatial=spatial,
            factual=factual,
            answer=answer,
            unverifiable=(reasoning is None and options.verify != "answer")
            or (answer is None and options.verify != "reasoning"),
            iou_over_tau=sum([region.iou > options.tau for region in regions]) / len(regions) if regions else 0.0,
            regions=regions,
            **self.counts,
        )

    def _region(self, match: Match, f1s: Sequence[float | None]) -> RegionScore:
        """The annotated region as it counts; of several readings, the worst or the best in each respect.

        In each respect, because regions that leave the factual mean give IoU and F1 unequal weights: a sum of the two
        would not order the readings by what they earn.
        """
        readings = match.readings
        if not readings:
            return RegionScore(match.name, 0.0, None, False, 0)
        if len(readings) == 1:
            iou, gated, pair = readings[0]
            return RegionScore(match.name, iou, None if pair is None else f1s[pair], gated, match.predicted)
        choose, some = (max, any) if self.options.duplicates == "best" else (min, all)
        gated = some(reading.gated for reading in readings)
        known = [f1s[r.pair] for r in readings if r.pair is not None and (r.gated or not gated)]
        f1 = choose(known, key=lambda f1: 1.0 if f1 is None else f1, default=None)  # leaving the mean is no loss
        return RegionScore(match.name, choose(reading.iou for reading in readings), f1, gated, match.predicted)

    def _means(self, regions: Sequence[RegionScore]) -> tuple[float | None, float | None]:
        """Mean IoU and mean gated F1; None where there is nothing to average."""
        options = self.options
        extra = options.unannotated_weight * self.counts["extra_regions"] if options.unannotated == "penalise" else 0.0
        spatial = sum([region.iou for region in regions]) / (len(regions) + extra) if regions else None
        if not options.scores_findings:
            return spatial, None
        counted = [
            (region.f1 or 0.0) if region.gated else 0.0
            for match, region in zip(self.matches, regions, strict=True)
            if not match.silent and (region.f1 is not None or not region.gated)
        ]
        return spatial, sum(counted) / (len(counted) + extra) if counted else None

    def _reasoning(self, spatial: float | None, factual: float | None) -> float | None:
        parts = self.options.parts
        if parts == "none":
            return 1.0
        if parts == "spatial" or spatial is None:
            return spatial
        if not self.options.scores_findings:
            return None
        return factual if parts == "factual" else spatial + (factual or 0.0)

    def _reward(self, reasoning: float | None, answer: float | None) -> float:
        options = self.options
        if options.verify == "reasoning":
            return reasoning or 0.0
        if options.verify == "answer":
            return answer or 0.0
        return options.reasoning_weight * (reasoning or 0.0) + options.answer_weight * (answer or 0.0)
