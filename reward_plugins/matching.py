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
"""Predicted regions against annotated ones, by canonical name: how boxes agree, and which findings to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from reward_plugins.options import CascadeOptions
from verl_cxr.anatomy import Vocabulary
from verl_cxr.geometry import Box, Frame
from verl_cxr.study import RegionFinding, Study
from verl_cxr.trace import reference_trace

__all__ = ["Match", "Pairs", "Reading", "Target", "match", "shortcuts", "target_of"]

Pairs = dict[tuple[str, str], int]
"""Each distinct (predicted, reference) pair of texts to be compared, and its place among them."""


@dataclass(frozen=True, slots=True)
class Target:
    """What responses about one study are compared with."""

    boxes: Mapping[str, Box]
    """Located regions by canonical name, in the frame of the responses."""
    findings: Mapping[str, str]
    """Their findings; same keys, same order."""
    named: frozenset[str]
    """Canonical names of all regions of the study, located or not."""
    homes: Mapping[str, frozenset[str]]
    """Located regions by the plain form of their finding."""
    report: str


@lru_cache(maxsize=4096)
def target_of(study: Study, vocabulary: Vocabulary, frame: Frame) -> Target:
    """The target of a study; kept, since every rollout of a group asks for it. IoU is the same in either frame."""
    canonical = vocabulary.canonical
    reference = reference_trace(study, vocabulary)
    regions = {canonical(region.name): region for region in reference.regions}
    homes: dict[str, set[str]] = {}
    for name, region in regions.items():
        homes.setdefault(_plain(region.finding), set()).add(name)
    return Target(
        boxes={name: region.box.to(frame) for name, region in regions.items() if region.box is not None},
        findings={name: region.finding for name, region in regions.items()},
        named=frozenset(canonical(region.name) for region in study.regions),
        homes={finding: frozenset(names) for finding, names in homes.items()},
        report=reference.report,
    )


class Reading(NamedTuple):
    """One way to read a predicted region; a region that is predicted several times may have several."""

    iou: float
    gated: bool
    """The gate is open."""
    pair: int | None
    """Place of its finding among the pairs; None where its F1 is not needed."""


class Match(NamedTuple):
    """One annotated region and what the response says of it. No reading: the region is missing."""

    name: str
    """Its canonical name."""
    predicted: int
    """How many times the response names the region."""
    silent: bool
    """The annotated finding is empty and ``empty_finding`` keeps such regions out of the factual mean."""
    readings: tuple[Reading, ...]


def match(
    name: str, predicted: Sequence[RegionFinding], target: Target, options: CascadeOptions, pairs: Pairs
) -> Match:
    """Compare the predictions of one region with its annotation; add the pairs of texts that it needs to ``pairs``."""
    box, finding = target.boxes[name], target.findings[name]
    silent = options.empty_finding == "skip" and not finding.strip()
    if not predicted:
        return Match(name, 0, silent, ())
    seen = [(_placed(region.box, options), region.finding) for region in predicted]
    if len(seen) > 1:
        if options.duplicates == "first":
            seen = seen[:1]
        elif options.duplicates == "union":
            seen = [_united(seen)]
    readings = []
    for placed, said in seen:
        iou = 0.0 if placed is None else placed.iou(box)
        gated = iou > options.tau or not options.gate
        pair = None
        if not silent and (options.measure_all or (gated and options.needs_findings)):
            pair = pairs.setdefault((said, finding), len(pairs))
        readings.append(Reading(iou, gated, pair))
    return Match(name, len(predicted), silent, tuple(readings))


def shortcuts(predicted: Mapping[str, Sequence[RegionFinding]], target: Target) -> tuple[int, int]:
    """Count the predicted regions whose finding, word for word, is that of another place.

    Returns:
        (those with the finding of an earlier region of another name,
        those with the finding of another annotated region and not of their own).
    """
    first: dict[str, str] = {}
    nowhere: frozenset[str] = frozenset()
    duplicated = misplaced = 0
    for name, regions in predicted.items():
        for region in regions:
            finding = _plain(region.finding)
            if finding:
                duplicated += first.setdefault(finding, name) != name
                homes = target.homes.get(finding, nowhere)
                misplaced += bool(homes) and name not in homes
    return duplicated, misplaced


def _placed(box: Box | None, options: CascadeOptions) -> Box | None:
    """The predicted box as it counts; None for one that earns no IoU."""
    if box is None or (options.overrun == "zero" and not box.is_inside):
        return None
    box = box.clip()
    return None if box.is_degenerate else box


def _united(seen: Sequence[tuple[Box | None, str]]) -> tuple[Box | None, str]:
    united: Box | None = None
    for box, _ in seen:
        if box is not None:
            united = box if united is None else united.union(box)
    return united, " ".join(sorted({finding for _, finding in seen}))


def _plain(finding: str) -> str:
    return finding.strip(" .\n").casefold()
