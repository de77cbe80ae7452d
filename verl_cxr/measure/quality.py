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
"""g_quality: whether the outlines are those of two lungs and a heart, each where it belongs.

A finding about the lungs closes everything, for every measurement needs them; one about the heart closes the ratio
alone, or everything under ``scope: film``. How much the lungs differ in size is never looked at: that is the signal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from verl_cxr.measure.chest import Chest, Part
from verl_cxr.measure.gate import GateReason
from verl_cxr.measure.masks.outlines import HEART, LEFT_LUNG, RIGHT_LUNG, Outlines
from verl_cxr.measure.measurement import MEASUREMENTS, MeasurementName
from verl_cxr.measure.shape import centroid, extent, solidity
from verl_cxr.measure.thresholds import Thresholds

__all__ = ["Quality", "check_quality"]


@dataclass(slots=True)
class Quality:
    """What is wrong with the outlines: of the film, and of single measurements; and what was looked at."""

    film: list[GateReason] = field(default_factory=list)
    single: dict[MeasurementName, list[GateReason]] = field(default_factory=dict)
    details: dict[str, float | str | None] = field(default_factory=dict)


def check_quality(
    chest: Chest, outlines: Outlines, thresholds: Thresholds, *, ratio: float | None, pixel_aspect: float = 1.0
) -> Quality:
    """Check the outlines of a film.

    Args:
        chest: what was read from the outlines.
        ratio: the cardiothoracic ratio that they give.
        pixel_aspect: height over width of a pixel of the outlines' grid.
    """
    quality = Quality()
    if outlines.degraded:
        quality.film.append(GateReason.DEGRADED)
    _lungs(quality, chest, thresholds, pixel_aspect)
    _sides(quality, chest, outlines, thresholds)
    heart = _heart(quality, chest, thresholds, ratio)
    _confidence(quality, heart, outlines, thresholds)
    if heart:
        quality.single["ctr"] = heart
    if chest.axis is None:
        quality.single["shift"] = [GateReason.MASK_MISSING]
    if thresholds.scope == "film":
        quality.film += heart
    quality.film = list(dict.fromkeys(quality.film))
    quality.single = {
        name: list(dict.fromkeys(quality.single[name])) for name in MEASUREMENTS if name in quality.single
    }
    return quality


def _lungs(quality: Quality, chest: Chest, thresholds: Thresholds, pixel_aspect: float) -> None:
    film, details = quality.film, quality.details
    film_area = chest.grid[0] * chest.grid[1]
    areas = []
    # Masks of the visible lung leave a large heart out; the notch is no fault of theirs.
    others = [part.mask for part in (chest.heart, chest.axis) if part is not None]
    beside = np.logical_or.reduce(others) if others else None
    for name, part in ((RIGHT_LUNG, chest.right), (LEFT_LUNG, chest.left)):
        if part is None:
            film.append(GateReason.MASK_MISSING)
            continue
        area, solid = part.area / film_area, solidity(part.mask, beside=beside)
        areas.append(area)
        details |= {f"{name} area": area, f"{name} minor parts": part.minor, f"{name} solidity": solid}
        if part.minor > thresholds.fragment:
            film.append(GateReason.MASK_FRAGMENTED)
        if area < thresholds.least_lung_area:
            film.append(GateReason.AREA_IMPLAUSIBLE)
        if solid < thresholds.lung_solidity:
            film.append(GateReason.SHAPE_IMPLAUSIBLE)
    if chest.right is None or chest.left is None:
        return
    low, high = thresholds.lung_area
    if not low <= max(areas) <= high:
        film.append(GateReason.AREA_IMPLAUSIBLE)
    overlap = _shared(chest.right, chest.left) / (min(areas) * film_area)
    (right_x, right_y), (left_x, left_y) = centroid(chest.right.mask), centroid(chest.left.mask)
    tilt = math.degrees(math.atan2(abs(left_y - right_y) * pixel_aspect, abs(left_x - right_x)))
    details |= {"lungs overlap": overlap, "tilt degrees": tilt}
    if overlap > thresholds.lung_overlap:
        film.append(GateReason.OVERLAP)
    if tilt > thresholds.tilt_degrees:
        film.append(GateReason.ROTATED)
    if chest.thorax is None and tilt <= thresholds.tilt_degrees:
        film.append(GateReason.ORDER)


def _sides(quality: Quality, chest: Chest, outlines: Outlines, thresholds: Thresholds) -> None:
    """A mirrored film, by the place of the lungs and by that of the heart beside the mediastinum."""
    if outlines.sides_assumed and not thresholds.assume_sides:
        quality.film.append(GateReason.SIDE_UNKNOWN)
    if chest.right is None or chest.left is None:
        return
    swapped = centroid(chest.right.mask)[0] > centroid(chest.left.mask)[0]
    heart, axis = chest.heart_middle(), chest.axis_middle()
    if heart is None or chest.thorax is None:
        if swapped:
            quality.film.append(GateReason.FLIPPED)
        return
    margin = thresholds.flip_margin
    in_thorax = (heart - chest.thorax.middle) / chest.thorax.width
    # A mediastinum that is pushed to the right takes the heart along: then the heart still lies left of it. A mask of
    # both tells no more than the thorax does, for the aorta draws its upper part to the left.
    alone = chest.silhouette is not None and chest.silhouette.name == HEART
    beside = (heart - axis) / chest.thorax.width if alone and axis is not None else in_thorax
    quality.details |= {"heart from midline": in_thorax, "heart from mediastinum": beside}
    if beside < -margin or (in_thorax < -margin and beside < margin):
        quality.film.append(GateReason.FLIPPED)
    elif swapped:  # where the heart lies on the left of the image's middle, the lungs and it contradict each other
        quality.film.append(GateReason.ORDER if in_thorax > margin else GateReason.FLIPPED)


def _heart(quality: Quality, chest: Chest, thresholds: Thresholds, ratio: float | None) -> list[GateReason]:
    heart, right, left = chest.heart, chest.right, chest.left
    if heart is None:
        return [GateReason.MASK_MISSING]
    reasons, details = [], quality.details
    area, solid = heart.area / (chest.grid[0] * chest.grid[1]), solidity(heart.mask)
    details |= {"heart area": area, "heart minor parts": heart.minor, "heart solidity": solid}
    if heart.minor > thresholds.fragment:
        reasons.append(GateReason.MASK_FRAGMENTED)
    if heart.name == HEART:  # heart and mediastinum together have another shape, and another place
        low, high = thresholds.heart_area
        if not low <= area <= high:
            reasons.append(GateReason.AREA_IMPLAUSIBLE)
        if solid < thresholds.heart_solidity:
            reasons.append(GateReason.SHAPE_IMPLAUSIBLE)
    if right is None or left is None:
        return reasons
    overlap = (_shared(heart, right) + _shared(heart, left)) / heart.area
    x, y = centroid(heart.mask)
    lungs_x = sorted((centroid(right.mask)[0], centroid(left.mask)[0]))
    (_, top_r, _, bottom_r), (_, top_l, _, bottom_l) = extent(right.mask), extent(left.mask)
    top, bottom = min(top_r, top_l), max(bottom_r, bottom_l)
    level = (y - top) / (bottom - top)
    details |= {"heart overlaps lungs": overlap, "heart level": level, "ctr": ratio}
    if thresholds.heart_overlap is not None and overlap > thresholds.heart_overlap:
        reasons.append(GateReason.OVERLAP)
    low, high = thresholds.heart_level
    if not lungs_x[0] < x < lungs_x[1] or (heart.name == HEART and not low <= level <= high):
        reasons.append(GateReason.HEART_POSITION)
    if ratio is not None and not thresholds.ctr[0] <= ratio <= thresholds.ctr[1]:
        reasons.append(GateReason.WIDTH_IMPLAUSIBLE)
    return reasons


def _confidence(quality: Quality, heart: list[GateReason], outlines: Outlines, thresholds: Thresholds) -> None:
    for name, reasons in ((RIGHT_LUNG, quality.film), (LEFT_LUNG, quality.film), (HEART, heart)):
        confidence = outlines.confidence.get(name)
        if confidence is not None:
            quality.details[f"{name} confidence"] = confidence
            if confidence < thresholds.confidence:
                reasons.append(GateReason.LOW_CONFIDENCE)


def _shared(one: Part, other: Part) -> int:
    return int(np.count_nonzero(one.mask & other.mask))
