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
"""``roi_crop``: a part of the film, I[y1:y2, x1:x2], enlarged from the film's own pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from PIL import Image

from tool_plugins.arguments import read_box, read_region
from tool_plugins.case import Case
from tool_plugins.refusal import Refusal, RefusedError
from tool_plugins.tool import Result, function_schema
from verl_cxr.geometry import Box
from verl_cxr.measure import MaskBackend

__all__ = ["RoiCrop"]

_THINNEST = 8.0  # longer over shorter side


class RoiCrop:
    """Answers with a picture of a box, or of a region's bounds.

    Args:
        masks: who outlines films, for crops of regions.
        side: longer side of the crop's picture, in pixels.
        max_zoom: how many times a crop may be larger than the whole film would be in a picture of that size.
        least_pixels: shorter side of a crop in pixels of the film. Below, a picture shows the enlargement.
    """

    name = "roi_crop"
    schema = function_schema(
        name,
        "Enlarge a part of the image: a box or a region.",
        box=("array", "x1, y1, x2, y2."),
        region=("string", "Its name, such as left lung."),
        image=("integer", "Which image, from 1."),
    )

    def __init__(self, masks: MaskBackend, *, side: int = 448, max_zoom: float = 12.0, least_pixels: int = 16) -> None:
        self.masks, self.side, self.max_zoom, self.least_pixels = masks, side, max_zoom, least_pixels

    def __call__(self, arguments: Mapping[str, Any], case: Case) -> Result:
        """See :class:`tool_plugins.tool.Tool`; raises :class:`verl_cxr.measure.MaskError` where the backend failed."""
        film = case.chosen(arguments)
        if ("box" in arguments) == ("region" in arguments):
            raise RefusedError(Refusal.BAD_ARGUMENTS, 'Give either "box" or "region".')
        if "region" in arguments:
            what, box = read_region(arguments, film, self.masks)
        else:
            what, box = "the box", read_box(arguments, film)
        pixels = film.film().pixels
        x1, y1, x2, y2 = _edges(box)
        zoom = max(pixels.shape) / max(x2 - x1, y2 - y1)
        self._check(x2 - x1, y2 - y1, zoom)
        crop = Image.fromarray(pixels[y1:y2, x1:x2])
        return Result(f"Crop of {what}, zoom {zoom:.1f}.", (_fitted(crop, self.side),))

    def _check(self, width: int, height: int, zoom: float) -> None:
        shorter = min(width, height)
        if max(width, height) > _THINNEST * shorter:
            raise RefusedError(
                Refusal.TOO_THIN, f"The crop is too thin: its sides may differ by a factor of {_THINNEST:g} at most."
            )
        if shorter < self.least_pixels or zoom > self.max_zoom:
            raise RefusedError(
                Refusal.TOO_SMALL,
                f"The crop has {width} x {height} pixels of the film and would be enlarged {zoom:.0f} times. "
                f"Take at least {self.least_pixels} pixels a side, and a zoom of at most {self.max_zoom:g}.",
            )


def _edges(box: Box) -> tuple[int, int, int, int]:
    """Whole pixels that hold the box, in the film."""
    return math.floor(box.x1), math.floor(box.y1), math.ceil(box.x2), math.ceil(box.y2)


def _fitted(crop: Image.Image, side: int) -> Image.Image:
    scale = side / max(crop.size)
    size = max(32, round(crop.width * scale)), max(32, round(crop.height * scale))  # a token is 32 pixels wide
    return crop.convert("RGB").resize(size, Image.Resampling.BICUBIC)
