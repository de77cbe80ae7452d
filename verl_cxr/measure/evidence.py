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
"""What was measured on one film, what of it may be shown, and the text that tells the policy so.

Missing is not normal: a measurement that is withheld is named, with the reason, and the text says that nothing follows
from its absence. No number of a withheld measurement, or of the gate's own checks, is in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_cxr.files import RecordError, kind_of
from verl_cxr.film import Film
from verl_cxr.measure.chest import read_chest
from verl_cxr.measure.ctr import cardiothoracic_ratio
from verl_cxr.measure.gate import GateDecision, GateReason
from verl_cxr.measure.lfa import lung_field_asymmetry
from verl_cxr.measure.masks.outlines import MaskBackend, Outlines
from verl_cxr.measure.measurement import MEASUREMENTS, TITLES, Measurement, MeasurementName
from verl_cxr.measure.projection import check_view
from verl_cxr.measure.quality import check_quality
from verl_cxr.measure.shift import thoracic_shift
from verl_cxr.measure.thresholds import DEFAULT, Thresholds
from verl_cxr.measure.view.reading import ViewBackend, ViewReading

__all__ = ["Evidence", "EvidenceError", "gather", "judge"]

_MISSING = "Unavailable does not mean normal: nothing follows from it, and no value may be assumed."
_NOT_DERIVED = "it could not be derived from the outlines"


class EvidenceError(RecordError):
    """A record that is not evidence."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The measurement package of one film.

    Attributes:
        decision: of the gate.
        exposed: measurements that the policy is shown.
        withheld: measurements that are known, but to the log and the reward only.
        backends: stamp of what made them: {"masks": name, "view": name}.
    """

    decision: GateDecision
    exposed: tuple[Measurement, ...] = ()
    withheld: tuple[Measurement, ...] = field(default=(), repr=False)  # out of every message that prints a record
    backends: Mapping[str, str] = field(default_factory=dict)

    @property
    def unavailable(self) -> dict[MeasurementName, tuple[GateReason, ...]]:
        """Every measurement that is not exposed, with the reasons; without any where it could not be derived."""
        exposed = {measurement.name for measurement in self.exposed}
        return {name: self.decision.reasons_for(name) for name in MEASUREMENTS if name not in exposed}

    def observation(self) -> str:
        """The text for the prompt. Its only digits are those of exposed values."""
        lines = []
        if self.exposed:
            lines.append("Measurements of this film:")
            lines += [f"- {measurement.text()}" for measurement in self.exposed]
        by_reason: dict[tuple[GateReason, ...], list[str]] = {}
        for name, reasons in self.unavailable.items():
            by_reason.setdefault(reasons, []).append(TITLES[name])
        for reasons, names in by_reason.items():
            why = "; ".join(reason.phrase for reason in reasons) or _NOT_DERIVED
            lines.append(f"Unavailable: {', '.join(names)}. Reason: {why}.")
        if by_reason:
            lines.append(_MISSING)
        return "\n".join(lines)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Evidence:
        """Validate a record.

        Raises:
            RecordError: `EvidenceError` and its likes; a field is missing, has the wrong type, or is impossible.
        """
        decision, backends = record.get("decision"), record.get("backends", {})
        if not isinstance(decision, dict):
            raise EvidenceError("decision", f"must be an object, not {kind_of(decision)}")
        if not isinstance(backends, dict) or not all(isinstance(value, str) for value in backends.values()):
            raise EvidenceError("backends", "must be an object of names")
        try:
            verdict = GateDecision.from_dict(decision)
        except RecordError as error:
            raise EvidenceError(f"decision.{error.field}", error.problem) from None
        exposed, withheld = _measurements(record, "exposed"), _measurements(record, "withheld")
        names = [measurement.name for measurement in (*exposed, *withheld)]
        if len(set(names)) < len(names):
            raise EvidenceError("exposed", "a measurement is there twice")
        for measurement in exposed:
            if not verdict.allows(measurement.name):
                raise EvidenceError("exposed", f"{measurement.name} is exposed, and the decision does not allow it")
        return cls(verdict, exposed, withheld, backends)

    def to_dict(self) -> dict[str, Any]:
        """The record, which JSON can hold. For the log: it holds what is withheld."""
        return {
            "decision": self.decision.to_dict(),
            "exposed": [measurement.to_dict() for measurement in self.exposed],
            "withheld": [measurement.to_dict() for measurement in self.withheld],
            "backends": dict(self.backends),
        }


def gather(film: Film, *, masks: MaskBackend, view: ViewBackend, thresholds: Thresholds = DEFAULT) -> Evidence:
    """Measure a film, and decide what of it may be shown.

    Raises:
        MaskError, ViewError: a backend failed. That a film cannot be measured is no error, but evidence.
    """
    return judge(film, masks.outline(film), view.read(film), thresholds, view_backend=view.name)


def judge(
    film: Film, outlines: Outlines, reading: ViewReading, thresholds: Thresholds = DEFAULT, *, view_backend: str
) -> Evidence:
    """`gather` on what the backends have said already.

    Measurements are taken on whatever the masks allow, the gate's own verdict apart: the log and the reward know them.
    """
    chest = read_chest(outlines, cardiomediastinum=thresholds.cardiomediastinum)
    taken = (cardiothoracic_ratio(chest), lung_field_asymmetry(chest), thoracic_shift(chest))
    found = tuple(measurement for measurement in taken if measurement is not None)
    quality = check_quality(
        chest,
        outlines,
        thresholds,
        ratio=taken[0].value if taken[0] else None,
        pixel_aspect=_grid_aspect(film, outlines),
    )
    reasons = (*check_view(reading, thresholds), *quality.film)
    decision = GateDecision(
        open=not reasons or not thresholds.enabled,
        reasons=tuple(dict.fromkeys(reasons)),
        view=reading.view,
        withheld={name: tuple(single) for name, single in quality.single.items()},
        forced=not thresholds.enabled,
        details=quality.details | {f"p({name})": p for name, p in (reading.probabilities or {}).items()},
    )
    return Evidence(
        decision=decision,
        exposed=tuple(measurement for measurement in found if decision.allows(measurement.name)),
        withheld=tuple(measurement for measurement in found if not decision.allows(measurement.name)),
        backends={"masks": outlines.backend, "view": view_backend},
    )


def _grid_aspect(film: Film, outlines: Outlines) -> float:
    """Height over width, on the patient, of a pixel of the outlines' grid."""
    rows, columns = outlines.grid
    row_mm, column_mm = film.spacing or (1.0, 1.0)
    return (row_mm * outlines.height / rows) / (column_mm * outlines.width / columns)


def _measurements(record: Mapping[str, Any], key: str) -> tuple[Measurement, ...]:
    values = record.get(key, [])
    if not isinstance(values, list):
        raise EvidenceError(key, f"must be a list of measurements, not {kind_of(values)}")
    found = []
    for at, value in enumerate(values):
        if not isinstance(value, dict):
            raise EvidenceError(f"{key}[{at}]", f"a measurement is an object, not {kind_of(value)}")
        try:
            found.append(Measurement.from_dict(value))
        except RecordError as error:
            raise EvidenceError(f"{key}[{at}].{error.field}", error.problem) from None
    return tuple(found)
