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
"""The exact masks of phantom films: each is drawn anew from the seed in its name, and compared with the film."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from verl_cxr.data.phantom import PhantomOptions, make_phantom
from verl_cxr.data.phantom.body import body_frame
from verl_cxr.film import Film
from verl_cxr.measure.masks.outlines import MaskError, Outlines
from verl_cxr.study import View

__all__ = ["PhantomMasks"]

_NAME = re.compile(r"phantom-(?P<seed>\d+)-(?P<split>.+)-(?P<index>\d{6,})")
_SPINE = 0.13  # half of its width as the film shows it, in half thorax widths


class PhantomMasks:
    """The masks of phantom films, with their spine.

    Args:
        views, pixel_aspect: as the films were drawn with, see `verl_cxr.data.phantom.PhantomOptions`.
    """

    name = "phantom"

    def __init__(self, *, views: Sequence[View] = ("PA", "AP"), pixel_aspect: float = 1.0) -> None:
        self.views, self.pixel_aspect = tuple(views), pixel_aspect
        PhantomOptions(views=self.views, pixel_aspect=pixel_aspect)  # checks them

    def outline(self, film: Film) -> Outlines:
        """The masks of a phantom.

        Raises:
            MaskError: the file is not named as a phantom, or holds another film than its name says.
        """
        name = _NAME.fullmatch(film.path.stem)
        if name is None:
            raise MaskError(f"{film.path}: no phantom, whose file is named phantom-SEED-SPLIT-INDEX")
        height, width = film.pixels.shape
        options = PhantomOptions(width=width, height=height, pixel_aspect=self.pixel_aspect, views=self.views)
        phantom = make_phantom(int(name["seed"]), int(name["index"]), split=name["split"], options=options)
        if not np.array_equal(phantom.image, film.pixels):
            raise MaskError(
                f"{film.path}: not the phantom of that name drawn from the views {', '.join(self.views)}: "
                "give the views of the build, and films that were neither resized nor compressed"
            )
        masks = dict(phantom.masks)
        if phantom.truth.anatomy.view != "LATERAL":
            frame = body_frame(phantom.truth.anatomy, width=width, height=height, pixel_aspect=self.pixel_aspect)
            masks["spine"] = np.abs(frame.x) < _SPINE
        return Outlines(masks, width, height, self.name)
