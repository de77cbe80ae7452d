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
"""The picture of a phantom: attenuation of the body, summed up and developed into an 8-bit film."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter, zoom

from verl_cxr.data.phantom.body import Anatomy, BodyFrame, Field, Mask

__all__ = ["render_film"]

_LUNG = 0.5  # attenuation that air takes away from soft tissue, and that a lesion of strength 1 gives back


def render_film(
    rng: np.random.Generator, anatomy: Anatomy, frame: BodyFrame, masks: Mapping[str, Mask], lesions: Field
) -> npt.NDArray[np.uint8]:
    """Develop a film, uint8 [height, width], bright where the body is dense.

    Args:
        masks: organ masks of `anatomy` over `frame`.
        lesions: summed attenuation change of the lesions, float32 [height, width], zero without any.
    """
    dense = _lateral_body(frame, masks) if anatomy.view == "LATERAL" else _frontal_body(frame, masks)
    dense += _LUNG * lesions
    # Organ borders are soft on a film; one blur of the sum costs far less than one blur an organ.
    dense = gaussian_filter(dense, [0.02 / side for side in frame.pixel])
    dense += _ribs(frame, masks)
    dense += _texture(rng, dense.shape)
    exposure = rng.uniform(1.5, 1.9)
    film = 1 - np.exp(-exposure * np.clip(dense, 0.01, None))
    film += rng.normal(0, 0.012, dense.shape)
    return np.asarray(np.clip(film * 255, 0, 255), dtype=np.uint8)


def _frontal_body(frame: BodyFrame, masks: Mapping[str, Mask]) -> Field:
    x, t = frame.x, frame.t
    lungs = masks["right lung"] | masks["left lung"]
    dense = 0.74 * _trunk(x, t)
    dense -= _LUNG * lungs
    # Vessels fan out from the hila and fade towards the chest wall.
    distance = np.hypot(np.abs(x) - 0.22, (t - 0.5) * frame.aspect)
    dense += 0.14 * lungs * np.exp(-((distance / 0.28) ** 2))
    dense += 0.12 * masks["cardiac silhouette"] + 0.16 * (masks["mediastinum"] & (t < 0.9))
    dense += 0.10 * (np.abs(x) < 0.13)  # spine
    dense -= 0.22 * masks["trachea"]
    dense += 0.16 * (masks["right clavicle"] | masks["left clavicle"])
    return np.asarray(dense, dtype=np.float32)


def _trunk(x: Field, t: Field) -> Mask:
    """Neck, shoulders and trunk."""
    shoulder = np.clip((t + 0.32) / 0.34, 0, 1)
    return np.asarray(np.abs(x) < 0.36 + 0.90 * shoulder**1.5)


def _ribs(frame: BodyFrame, masks: Mapping[str, Mask]) -> Field:
    """Ribs run downwards to the side over the lung fields only; elsewhere denser tissue hides them."""
    outward = np.abs(frame.x)
    lungs = (masks["right lung"] | masks["left lung"]) if "right lung" in masks else _lateral_lungs(frame)
    phase = frame.t * 8 - 2.6 * (outward - 0.25) ** 2 - 0.8 * outward  # a whole number on each rib
    return np.asarray(0.055 * np.clip(np.cos(phase * (2 * math.pi)), 0, 1) * lungs, dtype=np.float32)


def _texture(rng: np.random.Generator, shape: tuple[int, ...]) -> Field:
    """Low-frequency unevenness of tissue and exposure."""
    coarse = rng.normal(0, 1, (6, 6)).astype(np.float32)
    smooth = zoom(coarse, (shape[0] / 6, shape[1] / 6), order=1, grid_mode=True, mode="nearest")
    return np.asarray(0.018 * smooth, dtype=np.float32)


def _lateral_body(frame: BodyFrame, masks: Mapping[str, Mask]) -> Field:
    x, t = frame.x, frame.t
    shoulder = np.clip((t + 0.25) / 0.35, 0, 1)
    dense = 0.78 * (np.abs(x) < 0.45 + 0.5 * shoulder) - _LUNG * _lateral_lungs(frame)
    dense += 0.20 * masks["cardiac silhouette"] + 0.18 * masks["spine"] - 0.12 * masks["trachea"]
    return np.asarray(dense, dtype=np.float32)


def _lateral_lungs(frame: BodyFrame) -> Mask:
    """Both lungs, projected onto each other; the diaphragm falls towards the spine."""
    x, t = frame.x, frame.t
    breadth = 0.62 + 0.20 * np.sin(np.clip(t, 0, 1) * math.pi)
    return np.asarray((np.abs(x - 0.05) < breadth) & (t > 0.16 * ((x - 0.05) / 0.62) ** 2) & (t < 0.87 + 0.13 * x))
