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
"""The picture of a film's measurements: outlines, lines, numbers and verdict. For people; it is never in a prompt."""

from __future__ import annotations

import math
import textwrap

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from verl_cxr.measure.evidence import Evidence
from verl_cxr.measure.masks.outlines import CARDIOMEDIASTINUM, HEART, LEFT_LUNG, RIGHT_LUNG, Outlines
from verl_cxr.measure.measurement import TITLES, Measurement

__all__ = ["draw_evidence"]

_Colour = tuple[int, int, int]
_BACKGROUND, _INK, _GREY = (24, 24, 27), (235, 235, 235), (150, 150, 155)
_STRUCTURES: dict[str, _Colour] = {
    RIGHT_LUNG: (99, 190, 255),
    LEFT_LUNG: (120, 222, 120),
    HEART: (255, 99, 99),
    CARDIOMEDIASTINUM: (255, 145, 200),
    "upper mediastinum": (214, 140, 255),
    "mediastinum": (214, 140, 255),
    "trachea": (110, 231, 220),
}
_LINES: dict[str, _Colour] = {"ctr": (255, 214, 79), "shift": (255, 160, 90)}
_SIZE, _LINE, _DASH = 14, 18, 6  # pixels


def draw_evidence(
    pixels: npt.NDArray[np.uint8], outlines: Outlines, evidence: Evidence, *, title: str = "", side: int = 900
) -> Image.Image:
    """Draw a film.

    Args:
        pixels: grey, [height, width].
        side: pixels of the film's longer side in the picture.

    Returns:
        An RGB image. Withheld measurements are grey and dashed, and their numbers stand beside the reason.
    """
    height, width = pixels.shape
    scale = side / max(width, height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    film = Image.fromarray(pixels).convert("RGB").resize(size, Image.Resampling.LANCZOS)
    for name, colour in _STRUCTURES.items():
        mask = outlines.get(name)
        if mask is not None:
            film.paste(colour, mask=_border(mask, size))
    draw = ImageDraw.Draw(film)
    for measurement in evidence.withheld:
        _draw_lines(draw, measurement, size, _GREY, dashed=True)
    for measurement in evidence.exposed:
        _draw_lines(draw, measurement, size, _LINES.get(measurement.name, _INK), dashed=False)
    return _with_caption(film, _caption(evidence, title))


def _border(mask: npt.NDArray[np.bool_], size: tuple[int, int]) -> Image.Image:
    scaled = np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST), dtype=bool)
    return Image.fromarray((scaled & ~ndimage.binary_erosion(scaled, iterations=2)).astype(np.uint8) * 255)


def _draw_lines(
    draw: ImageDraw.ImageDraw, measurement: Measurement, size: tuple[int, int], colour: _Colour, *, dashed: bool
) -> None:
    if measurement.name not in _LINES:
        return  # the asymmetry is that of the outlined lungs; the bounds of both would hide the rest
    for line in measurement.lines:
        x1, y1, x2, y2 = line.x1 * size[0], line.y1 * size[1], line.x2 * size[0], line.y2 * size[1]
        pieces = max(1, round(math.hypot(x2 - x1, y2 - y1) / _DASH)) if dashed else 1
        for piece in range(0, pieces, 2):
            at, to = piece / pieces, (piece + 1) / pieces
            ends = (x1 + at * (x2 - x1), y1 + at * (y2 - y1), x1 + to * (x2 - x1), y1 + to * (y2 - y1))
            draw.line(ends, fill=colour, width=2)


def _caption(evidence: Evidence, title: str) -> list[tuple[str, _Colour]]:
    decision = evidence.decision
    verdict = "gate forced open" if decision.forced else "gate open" if decision.open else "gate closed"
    reasons = f": {', '.join(reason.value for reason in decision.reasons)}" if decision.reasons else ""
    stamp = ", ".join(f"{key} {value}" for key, value in evidence.backends.items())
    lines = [(f"{title}   view {decision.view or 'not known'}   {verdict}{reasons}   ({stamp})".strip(), _INK)]
    lines += [(measurement.text(), _LINES.get(measurement.name, _INK)) for measurement in evidence.exposed]
    for measurement in evidence.withheld:
        why = ", ".join(reason.value for reason in decision.reasons_for(measurement.name))
        lines.append((f"withheld ({why}): {measurement.text()}", _GREY))
    present = {measurement.name for measurement in (*evidence.exposed, *evidence.withheld)}
    for name, single in evidence.unavailable.items():
        if name not in present:
            why = ", ".join(reason.value for reason in single) or "not derived"
            lines.append((f"no {TITLES[name]} ({why})", _GREY))
    return lines


def _with_caption(film: Image.Image, lines: list[tuple[str, _Colour]]) -> Image.Image:
    font = ImageFont.load_default(_SIZE)
    wide = max(film.width, 640)
    folded = [(piece, colour) for text, colour in lines for piece in textwrap.wrap(text, width=wide // 8) or [""]]
    picture = Image.new("RGB", (wide, film.height + _LINE * len(folded) + 12), _BACKGROUND)
    picture.paste(film, ((wide - film.width) // 2, 0))
    draw = ImageDraw.Draw(picture)
    for number, (text, colour) in enumerate(folded):
        draw.text((8, film.height + 6 + number * _LINE), text, fill=colour, font=font)
    return picture
