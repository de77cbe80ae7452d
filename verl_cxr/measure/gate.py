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
"""The validity gate's verdict on one film: whether a measurement may be shown at all, and if not, why.

g(I) = g_view(I) * g_quality(I): the film is a PA projection of a chest, upright and not mirrored, and the masks are
those of two lungs and a heart. Neither factor looks at how asymmetric the lungs are: effusion and collapse are the
signal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from verl_cxr.files import RecordError, kind_of
from verl_cxr.measure.measurement import MEASUREMENTS, MeasurementName

__all__ = ["GateDecision", "GateError", "GateReason"]


class GateError(RecordError):
    """A record that is not a gate decision."""


class GateReason(str, Enum):
    """Why a measurement is withheld. The list is closed."""

    NOT_PA = "not_pa"
    VIEW_UNCERTAIN = "view_uncertain"
    VIEW_UNKNOWN = "view_unknown"
    NOT_CHEST = "not_chest"
    ROTATED = "rotated"
    INVERTED = "inverted"
    FLIPPED = "flipped"
    MASK_MISSING = "mask_missing"
    MASK_FRAGMENTED = "mask_fragmented"
    AREA_IMPLAUSIBLE = "area_implausible"
    SHAPE_IMPLAUSIBLE = "shape_implausible"
    OVERLAP = "overlap"
    ORDER = "order"
    SIDE_UNKNOWN = "side_unknown"
    HEART_POSITION = "heart_position"
    WIDTH_IMPLAUSIBLE = "width_implausible"
    LOW_CONFIDENCE = "low_confidence"
    DEGRADED = "degraded"

    @property
    def phrase(self) -> str:
        """The reason as a prompt says it. It holds no number."""
        return _PHRASES[self]


_PHRASES = {
    GateReason.NOT_PA: "the film is not a PA projection",
    GateReason.VIEW_UNCERTAIN: "it is uncertain whether the film is a PA projection",
    GateReason.VIEW_UNKNOWN: "the projection of the film is not known",
    GateReason.NOT_CHEST: "the image is not a chest film",
    GateReason.ROTATED: "the film is rotated",
    GateReason.INVERTED: "the grey scale of the film is inverted",
    GateReason.FLIPPED: "the film may be flipped left to right, which cannot be told from a heart on the right",
    GateReason.MASK_MISSING: "a structure could not be outlined",
    GateReason.MASK_FRAGMENTED: "the outline of a structure is in pieces",
    GateReason.AREA_IMPLAUSIBLE: "the outline of a structure has an implausible size",
    GateReason.SHAPE_IMPLAUSIBLE: "the outline of a structure has an implausible shape",
    GateReason.OVERLAP: "outlines that must not overlap do",
    GateReason.ORDER: "the outlined structures are not where they belong",
    GateReason.SIDE_UNKNOWN: "it is not known which lung is the right one",
    GateReason.HEART_POSITION: "the outlined heart is not between the lungs",
    GateReason.WIDTH_IMPLAUSIBLE: "the width of the outlined heart cannot be right",
    GateReason.LOW_CONFIDENCE: "the outlines are too uncertain",
    GateReason.DEGRADED: "the outlines are too coarse for a measurement",
}


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The verdict on one film.

    Attributes:
        open: a measurement may be shown. False: none may.
        reasons: why the whole film is refused. Kept, too, where the gate was forced open.
        view: the most likely projection ("PA", "AP", "LATERAL", "OTHER"); None: not known.
        withheld: why single measurements are withheld while the gate is open, such as the ratio without a heart mask.
        forced: the gate was switched off (an ablation of the paper): ``open`` whatever the reasons.
        details: what was looked at, as numbers and texts, for the log; never for the prompt.
    """

    open: bool
    reasons: tuple[GateReason, ...] = ()
    view: str | None = None
    withheld: Mapping[MeasurementName, tuple[GateReason, ...]] = field(default_factory=dict)
    forced: bool = False
    details: Mapping[str, float | str | None] = field(default_factory=dict, repr=False)

    def reasons_for(self, name: MeasurementName) -> tuple[GateReason, ...]:
        """Why this measurement is withheld; empty if nothing speaks against it."""
        return tuple(dict.fromkeys([*self.reasons, *self.withheld.get(name, ())]))

    def allows(self, name: MeasurementName) -> bool:
        """Whether this measurement may be shown."""
        return self.open and (self.forced or not self.reasons_for(name))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> GateDecision:
        """Validate a record.

        Raises:
            GateError: a field is missing, has the wrong type, or holds an unknown reason.
        """
        for key in ("open", "forced"):
            if not isinstance(record.get(key, False if key == "forced" else None), bool):
                raise GateError(key, f"must be true or false, not {kind_of(record.get(key))}")
        view, withheld, details = record.get("view"), record.get("withheld", {}), record.get("details", {})
        if view is not None and not isinstance(view, str):
            raise GateError("view", f"must be text or null, not {kind_of(view)}")
        for key, value in (("withheld", withheld), ("details", details)):
            if not isinstance(value, dict):
                raise GateError(key, f"must be an object, not {kind_of(value)}")
        if unknown := set(withheld) - set(MEASUREMENTS):
            raise GateError("withheld", f"{sorted(unknown)[0]!r} is not one of {', '.join(MEASUREMENTS)}")
        return cls(
            open=record["open"],
            reasons=_reasons(record.get("reasons", []), "reasons"),
            view=view,
            withheld={
                cast("MeasurementName", name): _reasons(reasons, f"withheld.{name}")
                for name, reasons in withheld.items()
            },
            forced=record.get("forced", False),
            details=details,
        )

    def to_dict(self) -> dict[str, Any]:
        """The record, which JSON can hold."""
        return {
            "open": self.open,
            "reasons": [reason.value for reason in self.reasons],
            "view": self.view,
            "withheld": {name: [reason.value for reason in reasons] for name, reasons in self.withheld.items()},
            "forced": self.forced,
            "details": dict(self.details),
        }


def _reasons(values: object, place: str) -> tuple[GateReason, ...]:
    if not isinstance(values, Iterable) or isinstance(values, (str, dict)):
        raise GateError(place, f"must be a list of reasons, not {kind_of(values)}")
    try:
        return tuple(GateReason(value) for value in values)
    except ValueError as error:
        raise GateError(place, f"{error}: use some of {', '.join(reason.value for reason in GateReason)}") from None
