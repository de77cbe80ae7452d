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
"""``region_parse``: where an anatomical region lies, from the outlines of the film."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from tool_plugins.arguments import read_region
from tool_plugins.case import Case
from tool_plugins.tool import Result, function_schema
from verl_cxr.geometry import Box
from verl_cxr.measure import MaskBackend

__all__ = ["RegionParse"]

_TINT = np.array([255, 160, 0], dtype=np.float32)
_SHARE = 0.35  # of the tint inside the mask


class RegionParse:
    """Answers with the region's bounding box and its share of the film.

    Args:
        masks: who outlines films.
        picture_side: longer side, in pixels, of a picture of the film with the region tinted; 0: no picture.
    """

    name = "region_parse"
    schema = function_schema(
        name,
        "Outline an anatomical region.",
        region=("string", "Its name, such as left lung."),
        image=("integer", "Which image, from 1."),
    )

    def __init__(self, masks: MaskBackend, *, picture_side: int = 448) -> None:
        self.masks, self.picture_side = masks, picture_side

    def __call__(self, arguments: Mapping[str, Any], case: Case) -> Result:
        """See :class:`tool_plugins.tool.Tool`; raises :class:`verl_cxr.measure.MaskError` where the backend failed."""
        chosen = case.chosen(arguments)
        name, box = read_region(arguments, chosen, self.masks)
        outlines = self.masks.outline(chosen.film())
        mask = outlines.get(name)
        assert mask is not None  # it has a box
        written = box.to(chosen.frame()).rounded()
        numbers = ", ".join(f"{value:.0f}" for value in (written.x1, written.y1, written.x2, written.y2))
        text = f"{name}: box [{numbers}], {100 * mask.mean():.0f}% of the image."
        if not self.picture_side:
            return Result(text)
        return Result(text, (_tinted(chosen.film().pixels, mask, box, self.picture_side),))


def _tinted(pixels: np.ndarray, mask: np.ndarray, box: Box, side: int) -> Image.Image:
    height, width = pixels.shape
    scale = side / max(width, height)
    size = max(32, round(width * scale)), max(32, round(height * scale))
    film = Image.fromarray(pixels).convert("RGB").resize(size, Image.Resampling.BICUBIC)
    held = np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST), dtype=bool)[..., None]
    shown = np.asarray(film, dtype=np.float32)
    return Image.fromarray(np.where(held, (1 - _SHARE) * shown + _SHARE * _TINT, shown).astype(np.uint8))
