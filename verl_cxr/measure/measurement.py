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
"""The record of one measurement, and the lines that draw it.

Conventions of the whole package. A film is read in the usual way: the patient's right is on the image's left, x grows
to the image's right, which is the patient's left. Signs follow the patient: a positive shift is towards the patient's
left, a positive lung-field asymmetry means a larger right lung.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from verl_cxr.files import RecordError, kind_of
from verl_cxr.geometry import is_number

__all__ = ["MEASUREMENTS", "TITLES", "UNITS", "Line", "Measurement", "MeasurementError", "MeasurementName"]

MeasurementName = Literal["ctr", "lfa", "shift"]
MEASUREMENTS: tuple[MeasurementName, ...] = get_args(MeasurementName)
"""Every measurement there is, in the order in which it is reported."""

TITLES: Mapping[MeasurementName, str] = {
    "ctr": "cardiothoracic ratio",
    "lfa": "lung-field asymmetry",
    "shift": "thoracic shift",
}
UNITS: Mapping[MeasurementName, str] = {
    "ctr": "heart width over thorax width",
    "lfa": "natural logarithm of right over left lung area",
    "shift": "fraction of the thorax width, positive towards the patient's left",
}


class MeasurementError(RecordError):
    """A record that is not a measurement."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a drawing from (x1, y1) to (x2, y2), as fractions of the film's width and height, y down."""

    label: str
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number, and what it was measured on.

    Attributes:
        name: a key of :data:`TITLES`.
        value: in ``unit``.
        unit: as :data:`UNITS` has it.
        structures: canonical names of the masks that were used.
        approximate: a substitute stands for a structure; the names tell which.
        lines: its drawing.
    """

    name: MeasurementName
    value: float
    unit: str
    structures: tuple[str, ...]
    approximate: bool = False
    lines: tuple[Line, ...] = ()

    def text(self) -> str:
        """The measurement as a prompt says it: title, value to two places, unit."""
        about = ", approximate" if self.approximate else ""
        rounded = round(self.value, 2) + 0.0  # no negative zero
        value = f"{rounded:.2f}" if self.name == "ctr" else f"{rounded:+.2f}"
        return f"{TITLES[self.name]} {value} ({self.unit}; from {', '.join(self.structures)}{about})"

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Measurement:
        """Validate a record.

        Raises:
            MeasurementError: a field is missing, has the wrong type, or holds an impossible value.
        """
        name, value, unit = record.get("name"), record.get("value"), record.get("unit")
        structures, approximate = record.get("structures"), record.get("approximate", False)
        lines = record.get("lines", [])
        if name not in MEASUREMENTS:
            raise MeasurementError("name", f"{name!r} is not a measurement: use one of {', '.join(MEASUREMENTS)}")
        if not is_number(value):
            raise MeasurementError("value", f"must be a finite number, not {kind_of(value)}")
        if not isinstance(unit, str):
            raise MeasurementError("unit", f"must be text, not {kind_of(unit)}")
        if not isinstance(structures, list) or not all(isinstance(item, str) for item in structures):
            raise MeasurementError("structures", "must be a list of structure names")
        if not isinstance(approximate, bool):
            raise MeasurementError("approximate", f"must be true or false, not {kind_of(approximate)}")
        if not isinstance(lines, list):
            raise MeasurementError("lines", f"must be a list of lines, not {kind_of(lines)}")
        return cls(
            name=cast("MeasurementName", name),
            value=float(cast("float", value)),
            unit=unit,
            structures=tuple(structures),
            approximate=approximate,
            lines=tuple(_line(line, f"lines[{at}]") for at, line in enumerate(lines)),
        )

    def to_dict(self) -> dict[str, Any]:
        """The record, which JSON can hold."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "structures": list(self.structures),
            "approximate": self.approximate,
            "lines": [{"label": line.label, "unit_xyxy": [line.x1, line.y1, line.x2, line.y2]} for line in self.lines],
        }


def _line(record: object, place: str) -> Line:
    if not isinstance(record, dict):
        raise MeasurementError(place, f"a line is an object, not {kind_of(record)}")
    label, ends = record.get("label"), record.get("unit_xyxy")
    if not isinstance(label, str):
        raise MeasurementError(f"{place}.label", f"must be text, not {kind_of(label)}")
    if not isinstance(ends, list) or len(ends) != 4 or not all(map(is_number, ends)):
        raise MeasurementError(f"{place}.unit_xyxy", "must be four finite numbers")
    x1, y1, x2, y2 = map(float, ends)
    return Line(label, x1, y1, x2, y2)
