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

__all__ = [
    "Match",
    "Pairs",
    "Predictions",
    "Reading",
    "Said",
    "Target",
    "match",
    "read_regions",
    "shortcuts",
    "target_of",
]

Said = tuple[Box | None, str]
"""One prediction of a region: the box that counts (None: it earns no IoU) and the finding."""

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


class Predictions(NamedTuple):
    """What a response says, by canonical name of the region, in the order of the text."""

    by_name: dict[str, list[Said]]
    degenerate: int
    """Boxes without area."""
    overrun: int
    """Boxes with area that reach beyond the image."""


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
    readings: list[Reading]


def read_regions(regions: Sequence[RegionFinding], vocabulary: Vocabulary, options: CascadeOptions) -> Predictions:
    """Sort predicted regions by canonical name, in one pass; their boxes become those that count."""
    by_name: dict[str, list[Said]] = {}
    degenerate = overrun = 0
    for region in regions:
        box = region.box
        if box is None or box.is_degenerate:
            degenerate += 1
            box = None
        elif not box.is_inside:
            overrun += 1
            box = box.clip() if options.overrun == "clip" else None
            if box is not None and box.is_degenerate:
                box = None
        by_name.setdefault(vocabulary.canonical(region.name), []).append((box, region.finding))
    return Predictions(by_name, degenerate, overrun)


def match(predicted: Mapping[str, list[Said]], target: Target, options: CascadeOptions, pairs: Pairs) -> list[Match]:
    """Compare each annotated region with what is said of it; add the pairs of texts that this needs to ``pairs``."""
    tau, every = options.tau, options.measure_all
    whenever_open = options.needs_findings
    matches = []
    for name, target_box in target.boxes.items():
        finding = target.findings[name]
        silent = options.empty_finding == "skip" and not finding.strip()
        said = predicted.get(name, [])
        readings = []
        for box, text in said if len(said) <= 1 else _one_or_all(said, options):
            iou = 0.0 if box is None else box.iou(target_box)
            gated = iou > tau or not options.gate
            pair = None
            if (every or (gated and whenever_open)) and not silent:
                pair = pairs.setdefault((text, finding), len(pairs))
            readings.append(Reading(iou, gated, pair))
        matches.append(Match(name, len(said), silent, readings))
    return matches


def shortcuts(by_name: Mapping[str, Sequence[Said]], target: Target) -> tuple[int, int]:
    """Count the predicted regions whose finding, word for word, is that of another place.

    Returns:
        (those with the finding of an earlier region of another name,
        those with the finding of another annotated region and not of their own).
    """
    first: dict[str, str] = {}
    duplicated = misplaced = 0
    for name, said in by_name.items():
        for _, finding in said:
            plain = _plain(finding)
            if plain:
                duplicated += first.setdefault(plain, name) != name
                homes = target.homes.get(plain)
                misplaced += homes is not None and name not in homes
    return duplicated, misplaced


def _one_or_all(said: list[Said], options: CascadeOptions) -> list[Said]:
    """What counts of several predictions of one region."""
    if options.duplicates == "first":
        return said[:1]
    return [_united(said)] if options.duplicates == "union" else said


def _united(said: Sequence[Said]) -> Said:
    united: Box | None = None
    for box, _ in said:
        if box is not None:
            united = box if united is None else united.union(box)
    return united, " ".join(sorted({finding for _, finding in said}))


def _plain(finding: str) -> str:
    return finding.strip(" .\n").casefold()
