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
"""Synthetic chest films with exact ground truth: masks, boxes, findings and the parameters behind them.

A phantom is a stand-in for real films in tests and in the local demo: it has an answer that nobody needs to annotate.
It is stamped as such (`source="phantom"`) in every record that leaves here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from verl_cxr.data.phantom.body import ORGANS, Anatomy, Mask, body_frame, organ_masks, sample_anatomy
from verl_cxr.data.phantom.film import render_film
from verl_cxr.data.phantom.lesions import Lesion, lesion_field, sample_lesions
from verl_cxr.data.phantom.wording import impression_text, region_findings, report_findings
from verl_cxr.geometry import Box, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study, View

__all__ = ["DEFAULT_REGIONS", "Phantom", "PhantomOptions", "PhantomTruth", "iter_phantoms", "make_phantom", "mask_box"]

DEFAULT_REGIONS = ("right lung", "left lung", "cardiac silhouette", "mediastinum")
"""Regions that a phantom study annotates unless told otherwise; masks exist for more of them."""


@dataclass(frozen=True, slots=True)
class PhantomOptions:
    """What to draw.

    Attributes:
        width, height: of the film in pixels, at least 32 each.
        pixel_aspect: height of a pixel over its width; 1 unless the film is anisotropic.
        views: drawn from with equal chance, each "PA", "AP" or "LATERAL".
        regions: canonical names of the regions to annotate; those that a view does not show are left out.
    """

    width: int = 128
    height: int = 128
    pixel_aspect: float = 1.0
    views: Sequence[View] = ("PA", "AP")
    regions: Sequence[str] = DEFAULT_REGIONS

    def __post_init__(self) -> None:
        if min(self.width, self.height) < 32:
            raise ValueError(f"a phantom needs at least 32 x 32 pixels, got {self.width} x {self.height}")
        if not (math.isfinite(self.pixel_aspect) and self.pixel_aspect > 0):
            raise ValueError(f"pixel_aspect must be a positive number, got {self.pixel_aspect!r}")
        if not self.views or set(self.views) - {"PA", "AP", "LATERAL"}:
            raise ValueError(f"views must be some of PA, AP, LATERAL, got {tuple(self.views)!r}")
        if unknown := set(self.regions) - set(ORGANS):
            raise ValueError(f"a phantom has no {', '.join(sorted(unknown))}: regions are some of {', '.join(ORGANS)}")
        if not self.regions:
            raise ValueError(f"name at least one of the regions {', '.join(ORGANS)}")


@dataclass(frozen=True, slots=True)
class PhantomTruth:
    """What was drawn: the parameters asked for, and what the masks then measure, widths in pixels.

    Attributes:
        anatomy: the parameters asked for, the displacement of the mediastinum among them.
        lesions: at most one a lung.
        heart_width: horizontal extent of the cardiac silhouette.
        thorax_width: horizontal extent of both lungs together; None on a lateral film, as all that follows.
        cardiothoracic_ratio: heart_width / thorax_width.
        lung_asymmetry: log of right over left visible lung area; positive when the right lung is larger.
    """

    anatomy: Anatomy
    lesions: tuple[Lesion, ...]
    heart_width: int
    thorax_width: int | None
    cardiothoracic_ratio: float | None
    lung_asymmetry: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Phantom:
    """A film and everything that is known about it.

    Attributes:
        image: uint8 [height, width].
        masks: organ masks, bool [height, width], by canonical region name.
        lesion_masks: bool [height, width] by lung ("right lung", "left lung"); only lungs that carry a lesion.
        study: the grounded study record; its boxes are the bounds of `masks`.
        truth: parameters and measurements.
    """

    image: npt.NDArray[np.uint8]
    masks: dict[str, Mask] = field(repr=False)
    lesion_masks: dict[str, Mask] = field(repr=False)
    study: Study
    truth: PhantomTruth


def make_phantom(
    seed: int,
    index: int = 0,
    *,
    split: str = "train",
    options: PhantomOptions = PhantomOptions(),
    anatomy: Anatomy | None = None,
    lesions: Sequence[Lesion] | None = None,
    image_path: Path | None = None,
) -> Phantom:
    """Draw film number `index` of `split`.

    Every film has a random stream of its own, so that it does not depend on how many others are drawn.

    Args:
        anatomy, lesions: drawn from the seed unless given; give them to ask for a known body.
        image_path: absolute path under which the caller stores the film, recorded in the study.
    """
    rng = np.random.default_rng([seed, index, *split.encode()])
    view = options.views[int(rng.integers(len(options.views)))]
    anatomy = anatomy or sample_anatomy(rng, view)
    if lesions is None:
        lesions = () if anatomy.view == "LATERAL" else sample_lesions(rng)
    lesions = tuple(lesions)

    frame = body_frame(anatomy, width=options.width, height=options.height, pixel_aspect=options.pixel_aspect)
    masks = organ_masks(anatomy, frame)
    attenuation = np.zeros((options.height, options.width), dtype=np.float32)
    lesion_masks: dict[str, Mask] = {}
    for lesion in lesions:
        lung = f"{lesion.side} lung"
        dome = anatomy.dome_left if lesion.side == "left" else anatomy.dome_right
        lesion_masks[lung], change = lesion_field(lesion, frame, masks[lung], dome)
        attenuation += change
    image = render_film(rng, anatomy, frame, masks, attenuation)

    findings = region_findings(anatomy, lesions)
    study = Study(
        id=f"phantom-{seed}-{split}-{index:06d}",
        image=image_path,
        width=options.width,
        height=options.height,
        view=anatomy.view,
        split=split,
        report=Report(
            findings=report_findings(anatomy, lesions), impression=impression_text(anatomy, lesions), notes=None
        ),
        regions=tuple(
            RegionFinding(name=name, box=mask_box(masks[name]), finding=findings[name])
            for name in options.regions
            if name in masks and masks[name].any()
        ),
        source="phantom",
        licence="Apache-2.0",
    )
    return Phantom(image, masks, lesion_masks, study, _measure(anatomy, lesions, masks))


def iter_phantoms(
    seed: int, count: int, *, split: str = "train", options: PhantomOptions = PhantomOptions()
) -> Iterator[Phantom]:
    """Draw films 0 to `count` - 1 of `split`, lazily."""
    for index in range(count):
        yield make_phantom(seed, index, split=split, options=options)


def mask_box(mask: Mask) -> Box:
    """Bounds of a non-empty mask, bool [height, width], in its pixel frame."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not rows.size:
        raise ValueError("an empty mask has no box")
    height, width = mask.shape
    return Box(
        x1=float(columns[0]),
        y1=float(rows[0]),
        x2=float(columns[-1] + 1),
        y2=float(rows[-1] + 1),
        frame=pixel_frame(width, height),
    )


def _measure(anatomy: Anatomy, lesions: tuple[Lesion, ...], masks: dict[str, Mask]) -> PhantomTruth:
    heart = int(mask_box(masks["cardiac silhouette"]).width)
    if anatomy.view == "LATERAL":
        return PhantomTruth(anatomy, lesions, heart, None, None, None)
    right, left = masks["right lung"], masks["left lung"]
    thorax = int(mask_box(right | left).width)
    return PhantomTruth(
        anatomy=anatomy,
        lesions=lesions,
        heart_width=heart,
        thorax_width=thorax,
        cardiothoracic_ratio=heart / thorax,
        lung_asymmetry=math.log(right.sum() / left.sum()),
    )
