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
"""The body of a phantom: anatomical parameters, drawn from a seed, and the exact organ masks they imply.

Coordinates. A canvas of `height x width` pixels carries a body frame: `x` grows towards the patient's left (image
right) and is zero on the thoracic midline, `t` grows downwards from the apex of the lungs (0) to the costophrenic angle
(1). The right lung therefore lies at negative `x`, on the left of the image, as on a film read in the usual way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from verl_cxr.study import View

__all__ = [
    "ORGANS",
    "Anatomy",
    "BodyFrame",
    "Field",
    "Mask",
    "body_frame",
    "diaphragm",
    "organ_masks",
    "sample_anatomy",
]

Mask: TypeAlias = npt.NDArray[np.bool_]
Field: TypeAlias = npt.NDArray[np.float32]

ORGANS = (
    "right lung",
    "left lung",
    "cardiac silhouette",
    "mediastinum",
    "trachea",
    "right clavicle",
    "left clavicle",
    "spine",
)
"""Canonical names of all regions that some view shows."""

# A normal heart spans less than half of the thorax on a PA film; the gap keeps every phantom unambiguous.
_NORMAL_RATIO = (0.38, 0.47)
_ENLARGED_RATIO = (0.54, 0.64)
_NORMAL_SHIFT = (-0.015, 0.015)
_ABNORMAL_SHIFT = (0.07, 0.12)


@dataclass(frozen=True, slots=True)
class Anatomy:
    """Parameters of one body. Lengths are fractions of the canvas's shorter side unless said otherwise.

    Attributes:
        view: "PA", "AP" or "LATERAL".
        center_x, center_y: centre of the thorax, fractions of the canvas's width and height.
        half_width: half of the thorax's inner width.
        lung_height: apex of the lungs to the costophrenic angle.
        cardiothoracic_ratio: heart width over inner thorax width, as requested; `PhantomTruth` holds the drawn one.
        asymmetry: log of right over left hemithorax width; positive makes the right lung wider.
        shift: displacement of heart, mediastinum and trachea towards the patient's left, fraction of the thorax width.
        tilt: lean of the body, horizontal over vertical displacement.
        dome_right, dome_left: height of the diaphragm's domes over the costophrenic angle, fractions of `lung_height`.
        heart_aspect: short over long axis of the heart.
        heart_base: lowest point of the heart, fraction of the way from the lungs' apex to the costophrenic angle.
    """

    view: View
    center_x: float
    center_y: float
    half_width: float
    lung_height: float
    cardiothoracic_ratio: float
    asymmetry: float
    shift: float
    tilt: float
    dome_right: float
    dome_left: float
    heart_aspect: float
    heart_base: float

    @property
    def heart_enlarged(self) -> bool:
        return self.cardiothoracic_ratio > 0.5

    @property
    def shifted_to(self) -> str | None:
        """Patient's side towards which the mediastinum is displaced, or None when it is midline."""
        if abs(self.shift) < 0.04:
            return None
        return "left" if self.shift > 0 else "right"


def sample_anatomy(rng: np.random.Generator, view: View) -> Anatomy:
    """Draw a body. Position, size, proportions and heart vary so much that no fixed box fits most films.

    An AP film is taken nearer to the tube and in a shallower breath: the thorax is shorter. The heart's ratio is not
    inflated, so that the ratio alone decides whether the heart is called enlarged.
    """
    half_width = rng.uniform(0.28, 0.43)
    lung_height = min(0.74, half_width * rng.uniform(1.4, 2.0) * (0.92 if view == "AP" else 1.0))
    slack_x = 0.48 - half_width
    slack_y = (0.86 - lung_height) / 2
    enlarged, displaced = rng.random() < 0.35, rng.random() < 0.2
    shift = rng.choice((-1.0, 1.0)) * rng.uniform(*_ABNORMAL_SHIFT) if displaced else rng.uniform(*_NORMAL_SHIFT)
    return Anatomy(
        view=view,
        center_x=0.5 + rng.uniform(-slack_x, slack_x),
        center_y=0.53 + rng.uniform(-slack_y, slack_y),
        half_width=half_width,
        lung_height=lung_height,
        cardiothoracic_ratio=rng.uniform(*(_ENLARGED_RATIO if enlarged else _NORMAL_RATIO)),
        asymmetry=rng.uniform(-0.25, 0.25),
        shift=float(shift),
        tilt=rng.uniform(-0.06, 0.06),
        dome_right=rng.uniform(0.13, 0.22),
        dome_left=rng.uniform(0.08, 0.17),
        heart_aspect=rng.uniform(0.72, 0.9),
        heart_base=rng.uniform(0.88, 0.95),
    )


@dataclass(frozen=True, slots=True)
class BodyFrame:
    """A canvas in body coordinates.

    Attributes:
        x: float32 [height, width], distance from the midline; 1 is half of the thorax's inner width.
        t: float32 [height, 1], 0 at the lungs' apex and 1 at the costophrenic angle.
        right, left: widths of the two hemithoraces in units of `x`; they sum to 2.
        aspect: length of one unit of `t` over one unit of `x`.
        pixel: (height, width) of a pixel in units of `x`.
    """

    x: Field
    t: Field
    right: float
    left: float
    aspect: float
    pixel: tuple[float, float]


def body_frame(anatomy: Anatomy, *, width: int, height: int, pixel_aspect: float = 1.0) -> BodyFrame:
    """Lay `anatomy` over a canvas of `height x width` pixels, each `pixel_aspect` times as high as wide."""
    physical_height = height * pixel_aspect
    side = min(width, physical_height)
    half, length = anatomy.half_width * side, anatomy.lung_height * side
    rows = ((np.arange(height, dtype=np.float32) + 0.5) * pixel_aspect - anatomy.center_y * physical_height)[:, None]
    columns = (np.arange(width, dtype=np.float32) + 0.5 - anatomy.center_x * width)[None, :]
    balance = math.tanh(anatomy.asymmetry / 2)
    return BodyFrame(
        # The midline moves with the asymmetry so that the thorax as a whole stays centred.
        x=((columns - anatomy.tilt * rows) / half - balance).astype(np.float32),
        t=(rows / length + 0.5).astype(np.float32),
        right=1 + balance,
        left=1 - balance,
        aspect=length / half,
        pixel=(pixel_aspect / half, 1 / half),
    )


def organ_masks(anatomy: Anatomy, frame: BodyFrame) -> dict[str, Mask]:
    """Exact masks, bool [height, width], by canonical region name; a lateral film has no right and left lung.

    A lung is the visible lung field: heart and mediastinum are cut out of it, the diaphragm bounds it below.
    The mediastinum contains the heart, as the cardiomediastinal silhouette does.
    """
    return _lateral_masks(anatomy, frame) if anatomy.view == "LATERAL" else _frontal_masks(anatomy, frame)


def _frontal_masks(anatomy: Anatomy, frame: BodyFrame) -> dict[str, Mask]:
    x, t = frame.x, frame.t
    offset = 2 * anatomy.shift  # a fraction of the thorax width, in units of its half
    heart_width = 2 * anatomy.cardiothoracic_ratio
    heart = _heart(anatomy, frame, x0=offset + 0.16 * heart_width, width=heart_width, angle=0.5)
    band = (np.abs(x - offset * np.clip(t * 2, 0, 1)) < 0.15 + 0.06 * np.clip(t, 0, 1)) & (t > -0.04) & (t < 0.86)
    mediastinum = band | heart
    trachea = (np.abs(x - offset * np.clip(t * 2, 0, 1)) < 0.075) & (t > -0.24) & (t < 0.27)
    return {
        "right lung": _lung(-x / frame.right, t, anatomy.dome_right) & ~mediastinum,
        "left lung": _lung(x / frame.left, t, anatomy.dome_left) & ~mediastinum,
        "cardiac silhouette": heart,
        "mediastinum": mediastinum,
        "trachea": trachea,
        "right clavicle": _clavicle(-x, t),
        "left clavicle": _clavicle(x, t),
    }


def _lung(d: Field, t: Field, dome: float) -> Mask:
    """Where `d`, the distance from the midline over the hemithorax's width, and `t` lie inside the rib cage."""
    lateral = 0.80 + 0.20 * np.sin(np.clip(t / 0.75, 0, 1) * (math.pi / 2))
    apex = 0.28 * np.clip((d - 0.45) / 0.52, -1, 1) ** 2
    return np.asarray((d > 0.08) & (d < lateral) & (t > apex) & (t < diaphragm(d, dome)))


def diaphragm(d: Field, dome: float) -> Field:
    """Level `t` of the diaphragm at the distance `d` from the midline (1: chest wall), under a dome `dome` high."""
    return np.asarray(1 - dome * np.clip(1 - ((d - 0.42) / 0.58) ** 2, 0, None))


def _clavicle(d: Field, t: Field) -> Mask:
    axis = 0.11 - 0.15 * d + 0.03 * np.sin(np.clip(d, 0, 1) * 2 * math.pi)
    return np.asarray((np.abs(t - axis) < 0.028) & (d > 0.14) & (d < 0.98))


def _heart(anatomy: Anatomy, frame: BodyFrame, *, x0: float, width: float, angle: float) -> Mask:
    """A tilted ellipse whose horizontal extent is exactly `width` (units of `x`), resting on the diaphragm."""
    cos, sin = math.cos(angle), math.sin(angle)
    long = width / 2 / math.hypot(cos, anatomy.heart_aspect * sin)
    short = anatomy.heart_aspect * long
    t0 = anatomy.heart_base - math.hypot(long * sin, short * cos) / frame.aspect
    u, v = frame.x - x0, (frame.t - t0) * frame.aspect
    return np.asarray(((u * cos + v * sin) / long) ** 2 + ((v * cos - u * sin) / short) ** 2 <= 1)


def _lateral_masks(anatomy: Anatomy, frame: BodyFrame) -> dict[str, Mask]:
    """A left lateral film: the sternum on the left of the image, the spine on the right."""
    x, t = frame.x, frame.t
    return {
        "cardiac silhouette": _heart(anatomy, frame, x0=-0.26, width=1.5 * anatomy.cardiothoracic_ratio, angle=-0.6),
        "trachea": (np.abs(x - 0.12 - 0.12 * t) < 0.075) & (t > -0.2) & (t < 0.33),
        "spine": (np.abs(x - 0.66 - 0.14 * np.sin(np.clip(t, 0, 1) * math.pi)) < 0.13) & (t > -0.1),
    }
