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
"""The numbers of the validity gate. They belong to a mask backend: what a lung mask includes differs between them.

``hydra_configs/gate`` holds one file a backend. The defaults suit masks of the visible lung fields drawn by people;
they lie outside the ranges of 427 such masks (p1 to p99: both lungs 0.20 to 0.57 of the film, solidity of the right
lung 0.79 to 0.97, minor parts up to 0.004). None of them compares one lung with the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml

from verl_cxr.geometry import is_number

__all__ = ["DEFAULT", "Thresholds", "load_thresholds"]

Range = tuple[float, float]
_SCOPES = ("measurement", "film")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When the gate is open. A pair is the lowest and the highest value that pass.

    Attributes:
        enabled: False forces the gate open, an ablation of the paper; the reasons are still recorded.
        scope: what a bad heart mask closes: "measurement", the ratio alone, or "film", everything, as the paper's
            product of indicators does.
        pa_accept, pa_reject: from this probability of PA on the film is PA, and up to that one it is not; in between
            the view is uncertain.
        other_reject: from this probability of "no chest film" on it is none.
        orientation_reject: from this probability on a film is rotated, inverted or flipped.
        lung_area: the larger lung, fraction of the film's area. The other may have collapsed.
        least_lung_area: any lung, fraction of the film's area.
        heart_area: fraction of the film's area.
        fragment: largest share of a structure outside its largest part.
        lung_solidity, heart_solidity: least area over that of the convex hull.
        lung_overlap: largest share of the smaller lung that lies in the other.
        heart_overlap: largest share of the heart that lies in the lungs; None where lung masks include the lung behind
            the heart.
        tilt_degrees: largest angle between the horizontal and the line that joins the lungs; a collapsed lung tilts it
            too, by less.
        heart_level: centre of the heart, 0 at the top of the lungs and 1 at their bottom.
        flip_margin: how far the heart's centre may lie on the right of the thorax's middle and of the mediastinum,
            fraction of the thorax width.
        ctr: plausible ratios; beyond, the masks are wrong.
        confidence: least mean probability inside a mask, where the backend knows it.
        assume_sides: accept lungs that were told apart by their place in the image alone.
        cardiomediastinum: take the ratio from a mask of heart and mediastinum where there is none of the heart; such a
            ratio is too large, and stamped approximate.
    """

    enabled: bool = True
    scope: Literal["measurement", "film"] = "measurement"
    pa_accept: float = 0.9
    pa_reject: float = 0.1
    other_reject: float = 0.5
    orientation_reject: float = 0.5
    lung_area: Range = (0.07, 0.40)
    least_lung_area: float = 0.005
    heart_area: Range = (0.02, 0.30)
    fragment: float = 0.05
    lung_solidity: float = 0.65
    heart_solidity: float = 0.80
    lung_overlap: float = 0.02
    heart_overlap: float | None = 0.10
    tilt_degrees: float = 40.0
    heart_level: Range = (0.35, 1.10)
    flip_margin: float = 0.01
    ctr: Range = (0.25, 0.90)
    confidence: float = 0.70
    assume_sides: bool = False
    cardiomediastinum: bool = False

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if isinstance(Thresholds.__dataclass_fields__[name].default, bool):
                _require(isinstance(value, bool), name, value, "true or false")
            elif name in _RANGES:
                pair = isinstance(value, Sequence) and len(value) == 2 and all(map(is_number, value))
                _require(pair and value[0] < value[1], name, value, "a lower and a higher number")
                object.__setattr__(self, name, (float(value[0]), float(value[1])))
            elif name != "scope":
                optional = name == "heart_overlap" and value is None
                _require(optional or (is_number(value) and value >= 0), name, value, "a number, 0 or more")
        _require(self.scope in _SCOPES, "scope", self.scope, " or ".join(_SCOPES))
        _require(
            0 <= self.pa_reject < self.pa_accept <= 1, "pa_reject", self.pa_reject, "below pa_accept, both in [0, 1]"
        )

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> Thresholds:
        """Thresholds of a configuration; what it leaves out keeps its default.

        Raises:
            ValueError: an unknown name, or an impossible value.
        """
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(options) - set(known)):
            raise ValueError(f"the gate has no threshold {unknown[0]!r}: use some of {', '.join(known)}")
        return cls(**options)


_RANGES = frozenset({"lung_area", "heart_area", "heart_level", "ctr"})


def _require(holds: bool, name: str, value: object, right: str) -> None:
    if not holds:
        raise ValueError(f"gate threshold {name}={value!r}: must be {right}")


DEFAULT = Thresholds()
"""For masks of the visible lung fields, drawn by people."""


def load_thresholds(name_or_path: str, overrides: Mapping[str, Any] = {}) -> Thresholds:
    """The thresholds of ``hydra_configs/gate``, or of a file of one's own (``.yaml``), with some of them replaced.

    Raises:
        FileNotFoundError: no such thresholds.
        ValueError: the file, or a replacement, is not what it should be.
    """
    if name_or_path.endswith((".yaml", ".yml")):
        text = Path(name_or_path).expanduser().read_text(encoding="utf-8")
    else:
        folder = resources.files("hydra_configs") / "gate"
        file = folder / f"{name_or_path}.yaml"
        if not file.is_file():
            known = ", ".join(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir()))
            raise FileNotFoundError(f"no gate {name_or_path!r}: use one of {known}, or a .yaml file of your own")
        text = file.read_text(encoding="utf-8")
    try:
        options = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"gate {name_or_path}: no YAML: {error}") from None
    if not isinstance(options, dict):
        raise ValueError(f"gate {name_or_path}: must hold thresholds by name")
    return Thresholds.from_mapping(options | dict(overrides))
