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
"""What is wrong with a phantom's lungs: lesions, drawn from a seed, with their exact masks and their attenuation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from verl_cxr.data.phantom.body import BodyFrame, Field, Mask, diaphragm

__all__ = ["KINDS", "Lesion", "lesion_field", "sample_lesions"]

KINDS = ("opacity", "consolidation", "pleural effusion", "pneumothorax")
_HEALTHY = 0.4  # probability that one lung is clear
_BILATERAL = 0.35  # probability that a diseased pair of lungs shares one kind of lesion


@dataclass(frozen=True, slots=True)
class Lesion:
    """One lesion of one lung.

    Attributes:
        side: "right" or "left", the patient's.
        kind: one of `KINDS`.
        grade: 0 (mild, small) or 1 (moderate, large); a consolidation and a pneumothorax have one grade, 1.
        zone: "upper" or "lower" for an opacity or a consolidation, else None.
        jitter: three numbers in [-1, 1] that move and stretch the lesion.
    """

    side: str
    kind: str
    grade: int
    zone: str | None
    jitter: tuple[float, float, float]


def sample_lesions(rng: np.random.Generator) -> tuple[Lesion, ...]:
    """Draw at most one lesion a lung, right lung first."""
    shared = str(rng.choice(KINDS[:3])) if rng.random() < _BILATERAL else None  # a bilateral pneumothorax is a rarity
    drawn = (_sample_lesion(rng, side, shared) for side in ("right", "left"))
    return tuple(lesion for lesion in drawn if lesion is not None)


def _sample_lesion(rng: np.random.Generator, side: str, shared: str | None) -> Lesion | None:
    healthy, kind = rng.random() < _HEALTHY, str(rng.choice(KINDS, p=(0.35, 0.2, 0.3, 0.15)))
    grade, zone = int(rng.integers(2)), ("upper", "lower")[int(rng.integers(2))]
    jitter = tuple(float(j) for j in rng.uniform(-1, 1, 3))
    if healthy:
        return None
    kind = shared or kind
    graded, zoned = kind in ("opacity", "pleural effusion"), kind in ("opacity", "consolidation")
    return Lesion(side, kind, grade if graded else 1, zone if zoned else None, (jitter[0], jitter[1], jitter[2]))


def lesion_field(lesion: Lesion, frame: BodyFrame, lung: Mask, dome: float) -> tuple[Mask, Field]:
    """Exact extent and attenuation of a lesion.

    Args:
        lung: mask of the lung that carries it, bool [height, width].
        dome: height of that side's diaphragm, as in `Anatomy`.

    Returns:
        The mask, bool [height, width], a subset of `lung`; and the change of attenuation, float32 [height, width],
        where +1 turns lung into soft tissue and a pneumothorax is negative.
    """
    d = frame.x / frame.left if lesion.side == "left" else -frame.x / frame.right
    if lesion.kind == "pleural effusion":
        return _effusion(lesion, d, frame.t, lung, dome)
    if lesion.kind == "pneumothorax":
        return _pneumothorax(lesion, d, frame.t, lung)
    return _density(lesion, d, frame, lung)


def _effusion(lesion: Lesion, d: Field, t: Field, lung: Mask, dome: float) -> tuple[Mask, Field]:
    """Fluid fills the base; its surface, the meniscus, climbs the lateral wall and hides the costophrenic angle."""
    depth = (0.14, 0.34)[lesion.grade] * (1 + 0.15 * lesion.jitter[0])
    mask = lung & (t > diaphragm(d, dome) - depth * (0.55 + 0.75 * np.clip(d, 0, 1) ** 2))
    return mask, 0.92 * mask.astype(np.float32)


def _pneumothorax(lesion: Lesion, d: Field, t: Field, lung: Mask) -> tuple[Mask, Field]:
    """Air between the chest wall and a lung that has shrunk towards its hilum; the visible pleura bounds it."""
    size = 0.34 * (1 + 0.2 * lesion.jitter[0])
    reach = np.hypot((d - 0.25) / 0.70, (t - 0.62) / 0.66)
    mask = lung & (reach > 1.12 - size) & (t < 0.8)
    pleura = lung & (np.abs(reach - (1.12 - size)) < 0.035) & (t < 0.8)
    return mask, -0.30 * mask.astype(np.float32) + 0.55 * pleura


def _density(lesion: Lesion, d: Field, frame: BodyFrame, lung: Mask) -> tuple[Mask, Field]:
    """An opacity is a faint cloud that leaves the vessels visible; a consolidation is dense and sharply bounded."""
    along, across, stretch = lesion.jitter
    center_t = (0.32 if lesion.zone == "upper" else 0.70) + 0.06 * along
    # Amid the lung that is still visible at that level: a large or displaced heart may hide most of it.
    level = lung & (np.abs(frame.t - center_t) < 0.1)
    center_d = float(np.mean(d, where=level)) + 0.06 * across if level.any() else 0.52
    consolidation = lesion.kind == "consolidation"
    radius = 0.34 if consolidation else (0.28, 0.44)[lesion.grade]
    distance = np.hypot((d - center_d) / (radius * (1 + 0.2 * stretch)), (frame.t - center_t) * frame.aspect / radius)
    cloud = np.clip(2.5 * (1.1 - distance), 0, 1) if consolidation else np.exp(-(distance**2) * math.log(2))
    mask = lung & (cloud > 0.5)
    strength = 0.95 if consolidation else (0.5, 0.6)[lesion.grade]
    return mask, np.where(lung, strength * cloud, 0).astype(np.float32)
