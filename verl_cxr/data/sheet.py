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
"""A contact sheet: films of a data set side by side, with their boxes and what is said of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

from PIL import Image, ImageDraw, ImageFont

from verl_cxr.data.describe import Shown
from verl_cxr.data.rows import split_name
from verl_cxr.geometry import pixel_frame

__all__ = ["contact_sheet"]

_Colour = tuple[int, int, int]
_Corners = tuple[float, float, float, float]
_GAP, _CAPTION_LINES, _LINE = 8, 4, 15  # pixels, lines, pixels
_BACKGROUND, _INK, _FAINT = (24, 24, 27), (235, 235, 235), (160, 160, 165)
_COLOURS = (
    (255, 99, 99), (99, 190, 255), (255, 214, 79), (120, 222, 120), (214, 140, 255), (255, 160, 90), (110, 231, 220),
    (255, 145, 200), (190, 200, 255), (200, 230, 110),
)  # fmt: skip


def contact_sheet(films: Sequence[Shown], *, columns: int = 4, side: int = 384) -> Image.Image:
    """Draw films in a grid.

    Args:
        films: in the order of the sheet, row by row.
        side: pixels of the square that each film is scaled into.

    Returns:
        An RGB image. A film that cannot be opened is a tile that says so.
    """
    columns = max(1, min(columns, len(films)))
    rows = math.ceil(len(films) / columns)
    tile = (side + _GAP, side + _CAPTION_LINES * _LINE + 2 * _GAP)
    sheet = Image.new("RGB", (columns * tile[0] + _GAP, rows * tile[1] + _GAP), _BACKGROUND)
    names = dict.fromkeys(region.name.lower() for shown in films for region in shown.study.regions)
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    for number, shown in enumerate(films):
        left, top = _GAP + number % columns * tile[0], _GAP + number // columns * tile[1]
        sheet.paste(_film(shown, side, colours), (left, top))
        _caption(ImageDraw.Draw(sheet), shown, left, top + side + 4, side)
    return sheet


def _film(shown: Shown, side: int, colours: Mapping[str, _Colour]) -> Image.Image:
    tile = Image.new("RGB", (side, side), (0, 0, 0))
    draw = ImageDraw.Draw(tile)
    try:
        film = shown.open()
    except OSError as error:
        draw.text((10, side // 2), textwrap.fill(str(error), 44), fill=_INK, font=_font(12))
        return tile
    scale = side / max(film.size)
    width, height = (max(1, round(length * scale)) for length in film.size)
    left, top = (side - width) // 2, (side - height) // 2
    tile.paste(film.resize((width, height), Image.Resampling.LANCZOS), (left, top))
    boxes = [(region.name, region.box.to(pixel_frame(width, height))) for region in shown.study.regions if region.box]
    boxes.sort(key=lambda named: -named[1].area)  # the small ones lie above the large ones
    placed = [(name, (left + box.x1, top + box.y1, left + box.x2, top + box.y2)) for name, box in boxes]
    for name, corners in placed:
        draw.rectangle(corners, outline=colours[name.lower()], width=2)
    taken: list[_Corners] = []
    for name, corners in placed:
        _label(draw, name, corners, colours[name.lower()], side, taken)
    return tile


def _label(
    draw: ImageDraw.ImageDraw,
    name: str,
    corners: _Corners,
    colour: _Colour,
    side: int,
    taken: list[_Corners],
) -> None:
    """The name in the box's upper left corner, or below another name that is there."""
    font = _font(11)
    x1, y1, x2, y2 = draw.textbbox((0, 0), name, font=font)
    width, height = x2 - x1 + 4, y2 - y1 + 4
    left = min(max(corners[0], 0), side - width)
    top = min(max(corners[1], 0), side - height)
    while top + height <= side and any(_overlap((left, top, left + width, top + height), other) for other in taken):
        top += height
    taken.append((left, top, left + width, top + height))
    draw.rectangle(taken[-1], fill=(0, 0, 0))
    draw.text((left + 2 - x1, top + 2 - y1), name, fill=colour, font=font)


def _overlap(a: _Corners, b: _Corners) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _caption(draw: ImageDraw.ImageDraw, shown: Shown, left: int, top: int, side: int) -> None:
    study = shown.study
    head = f"{study.id}   {study.view or 'view not stated'}   {split_name(study)}"
    draw.text((left, top), _shortened(draw, head, side, _font(12)), fill=_INK, font=_font(12))
    text = " ".join((study.report.text or "no report").split())
    lines = textwrap.wrap(text, width=max(10, side // 6), max_lines=_CAPTION_LINES - 1, placeholder=" ...")
    draw.multiline_text((left, top + _LINE), "\n".join(lines), fill=_FAINT, font=_font(11), spacing=3)


def _shortened(draw: ImageDraw.ImageDraw, text: str, width: int, font: ImageFont.FreeTypeFont) -> str:
    while len(text) > 4 and draw.textlength(text, font=font) > width:
        text = text[:-4] + "..."
    return text


def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)  # type: ignore[return-value]  # with a size it is a FreeType font
