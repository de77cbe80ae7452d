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
"""Chests whose measurements are known without measuring: drawn from inequalities, or integrated from a phantom's."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from verl_cxr.data.phantom import Anatomy, Phantom
from verl_cxr.film import Film
from verl_cxr.measure import Outlines

__all__ = ["anatomy", "chest", "film", "film_of", "mirrored", "outlines", "phantom_lfa", "phantom_ratio"]

Masks = dict[str, npt.NDArray[np.bool_]]


def film(width: int, height: int, *, spacing: tuple[float, float] | None = None, view: str | None = None) -> Film:
    """A black film."""
    return Film(np.zeros((height, width), dtype=np.uint8), spacing, view, Path("/films/film.png"), "0" * 64)  # type: ignore[arg-type]


def film_of(phantom: Phantom) -> Film:
    """The film of a phantom, under its name."""
    return Film(phantom.image, None, None, Path(f"/films/{phantom.study.id}.png"), f"sha of {phantom.study.id}")


def chest(
    width: int = 400,
    height: int = 400,
    *,
    ratio: float = 0.45,
    right: tuple[float, float] = (0.10, 0.40),
    left: tuple[float, float] = (0.60, 0.90),
    top: float = 0.15,
    right_bottom: float = 0.80,
    left_bottom: float = 0.80,
    heart_x: float = 0.53,
    heart_y: float = 0.62,
    axis: tuple[float, float] | None = (0.45, 0.55),
) -> Masks:
    """Two rectangular lungs, an elliptic heart cut out of them, and a straight mediastinum, in fractions of the film.

    The thorax is as wide as from the right lung's outer to the left lung's outer border; the heart is `ratio` of that.
    """
    x = (np.arange(width)[None, :] + 0.5) / width
    y = (np.arange(height)[:, None] + 0.5) / height
    half = ratio * (left[1] - right[0]) / 2
    heart = ((x - heart_x) / half) ** 2 + ((y - heart_y) / 0.15) ** 2 <= 1
    masks = {
        "right lung": (x > right[0]) & (x < right[1]) & (y > top) & (y < right_bottom) & ~heart,
        "left lung": (x > left[0]) & (x < left[1]) & (y > top) & (y < left_bottom) & ~heart,
        "cardiac silhouette": heart,
    }
    if axis is not None:
        masks["mediastinum"] = ((x > axis[0]) & (x < axis[1]) & (y > 0.1) & (y < 0.7)) | heart
    return masks


def outlines(masks: Masks, **kept: object) -> Outlines:
    """Outlines of masks as large as their film."""
    height, width = next(iter(masks.values())).shape
    return Outlines(masks, width, height, "precomputed", **kept)  # type: ignore[arg-type]


def mirrored(masks: Masks, *, relabelled: bool) -> Masks:
    """The masks of the mirrored film: sides as they are in the patient, or as their place in the image suggests."""
    swap = {"right": "left", "left": "right"}

    def named(name: str) -> str:
        first, _, rest = name.partition(" ")
        return f"{swap[first]} {rest}" if relabelled and first in swap else name

    return {named(name): mask[:, ::-1] for name, mask in masks.items()}


def anatomy(**changes: object) -> Anatomy:
    """A body that fills its film, upright and symmetric unless told otherwise."""
    values: dict[str, object] = {
        "view": "PA", "center_x": 0.5, "center_y": 0.53, "half_width": 0.43, "lung_height": 0.72,
        "cardiothoracic_ratio": 0.45, "asymmetry": 0.0, "shift": 0.0, "tilt": 0.0, "dome_right": 0.17,
        "dome_left": 0.12, "heart_aspect": 0.8, "heart_base": 0.92,
    }  # fmt: skip
    return Anatomy(**(values | changes))  # type: ignore[arg-type]


def phantom_ratio(body: Anatomy) -> float:
    """The cardiothoracic ratio of a leaning phantom: the lean shears its heart, and leaves a row's length as it is.

    An ellipse with half extents (a, b) and mixed term c, sheared by x + k y, has the half extent
    sqrt(a^2 + 2 k c + k^2 b^2); 1 without a lean.
    """
    long = body.cardiothoracic_ratio / math.hypot(math.cos(0.5), body.heart_aspect * math.sin(0.5))
    short = body.heart_aspect * long
    xx = (long * math.cos(0.5)) ** 2 + (short * math.sin(0.5)) ** 2
    yy = (long * math.sin(0.5)) ** 2 + (short * math.cos(0.5)) ** 2
    xy = (long**2 - short**2) * math.sin(0.5) * math.cos(0.5)
    return math.sqrt(xx + 2 * body.tilt * xy + body.tilt**2 * yy)


def phantom_lfa(body: Anatomy, *, steps: int = 4000) -> float:
    """ln(A_R / A_L) of a phantom's visible lungs: the lengths of their rows, summed from the shapes' inequalities."""
    balance = math.tanh(body.asymmetry / 2)
    aspect = body.lung_height / body.half_width
    areas = {"right": 0.0, "left": 0.0}
    for t in (np.arange(steps) + 0.5) / steps:
        taken = _mediastinum(body, float(t), aspect)
        for side, breadth, dome in (("right", 1 + balance, body.dome_right), ("left", 1 - balance, body.dome_left)):
            outer = 0.80 + 0.20 * math.sin(min(t / 0.75, 1) * math.pi / 2)
            spans = [(0.08, outer)]
            if t < 0.28:  # the apex: 0.28 ((d - 0.45) / 0.52)^2 < t
                reach = 0.52 * math.sqrt(t / 0.28)
                spans = _cut(spans, [(-math.inf, 0.45 - reach), (0.45 + reach, math.inf)])
            if t > 1 - dome:  # under the dome: t < 1 - dome (1 - ((d - 0.42) / 0.58)^2)
                reach = 0.58 * math.sqrt(1 - (1 - t) / dome)
                spans = _cut(spans, [(0.42 - reach, 0.42 + reach)])
            sign = -1 if side == "right" else 1
            hidden = [tuple(sorted((sign * a / breadth, sign * b / breadth))) for a, b in taken]
            spans = _cut(spans, hidden)  # type: ignore[arg-type]
            areas[side] += breadth * sum(end - start for start, end in spans)
    return math.log(areas["right"] / areas["left"])


def _mediastinum(body: Anatomy, t: float, aspect: float) -> list[tuple[float, float]]:
    offset, taken = 2 * body.shift, []
    if t < 0.86:
        middle, half = offset * min(2 * t, 1), 0.15 + 0.06 * t
        taken.append((middle - half, middle + half))
    width = 2 * body.cardiothoracic_ratio
    cos, sin = math.cos(0.5), math.sin(0.5)
    long = width / 2 / math.hypot(cos, body.heart_aspect * sin)
    short = body.heart_aspect * long
    v = (t - body.heart_base + math.hypot(long * sin, short * cos) / aspect) * aspect
    # ((u cos + v sin) / long)^2 + ((v cos - u sin) / short)^2 = 1, a quadratic in u
    a = (cos / long) ** 2 + (sin / short) ** 2
    b = 2 * v * sin * cos * (1 / long**2 - 1 / short**2)
    c = (v * sin / long) ** 2 + (v * cos / short) ** 2 - 1
    if (root := b * b - 4 * a * c) > 0:
        center = offset + 0.16 * width - b / (2 * a)
        taken.append((center - math.sqrt(root) / (2 * a), center + math.sqrt(root) / (2 * a)))
    return taken


def _cut(spans: list[tuple[float, float]], taken: list[tuple[float, float]]) -> list[tuple[float, float]]:
    for low, high in taken:
        spans = [
            piece
            for start, end in spans
            for piece in ((start, min(end, low)), (max(start, high), end))
            if piece[1] > piece[0]
        ]
    return spans
