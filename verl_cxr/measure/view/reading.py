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
"""What a view backend says of a film, and the protocol of those who say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from verl_cxr.film import Film
from verl_cxr.geometry import is_number

__all__ = ["VIEWS", "ViewBackend", "ViewError", "ViewReading", "certain", "view_name"]

VIEWS = ("PA", "AP", "LATERAL", "OTHER")
"""The projections that are told apart; OTHER is no chest film."""

_NAMES = {
    "PA": "PA", "POSTEROANTERIOR": "PA", "AP": "AP", "APSUPINE": "AP", "APERECT": "AP", "ANTEROPOSTERIOR": "AP",
    "L": "LATERAL", "LL": "LATERAL", "LL.": "LATERAL", "RL": "LATERAL", "LATERAL": "LATERAL", "LLATERAL": "LATERAL",
    "NOTCXR": "OTHER", "OTHER": "OTHER",
}  # fmt: skip
_SLACK = 0.01  # by which probabilities may miss a sum of 1


class ViewError(RuntimeError):
    """A view that cannot be had: a damaged file, a process that died. Never that a film is unclear."""


@dataclass(frozen=True, slots=True)
class ViewReading:
    """What is known of a film's projection and orientation; None for what is not known.

    Attributes:
        probabilities: of each of :data:`VIEWS`, with a sum of 1.
        rotated, inverted, flipped: probability that the film is turned, that its grey scale is inverted, that it is
            mirrored.
    """

    probabilities: Mapping[str, float] | None = None
    rotated: float | None = None
    inverted: float | None = None
    flipped: float | None = None

    @property
    def view(self) -> str | None:
        """The most likely projection."""
        return max(VIEWS, key=self.probabilities.__getitem__) if self.probabilities else None

    def to_dict(self) -> dict[str, Any]:
        """The record, which JSON can hold."""
        return {
            "probabilities": dict(self.probabilities) if self.probabilities else None,
            "rotated": self.rotated,
            "inverted": self.inverted,
            "flipped": self.flipped,
        }

    @classmethod
    def from_dict(cls, record: object) -> ViewReading:
        """Validate a record.

        Raises:
            ValueError: it is none; probabilities are missing, out of range, or do not sum to 1.
        """
        if not isinstance(record, dict):
            raise ValueError("a view is an object with probabilities, rotated, inverted and flipped")
        probabilities = record.get("probabilities")
        if probabilities is not None:
            if not isinstance(probabilities, dict) or set(probabilities) != set(VIEWS):
                raise ValueError(f"probabilities must be an object with {', '.join(VIEWS)}")
            if not all(map(_is_probability, probabilities.values())):
                raise ValueError("probabilities must be numbers from 0 to 1")
            if abs(sum(probabilities.values()) - 1) > _SLACK:
                raise ValueError(f"probabilities sum to {sum(probabilities.values()):.3f}, not to 1")
        for key in ("rotated", "inverted", "flipped"):
            if record.get(key) is not None and not _is_probability(record[key]):
                raise ValueError(f"{key} must be a number from 0 to 1, or null")
        return cls(probabilities, record.get("rotated"), record.get("inverted"), record.get("flipped"))


class ViewBackend(Protocol):
    """Something that tells the projection of a film."""

    name: str
    """The stamp on every result."""

    def read(self, film: Film) -> ViewReading:
        """Read a film.

        Raises:
            ViewError: the backend failed; the film is not to blame.
        """
        ...


def certain(view: str) -> ViewReading:
    """The reading of a film whose view is stated."""
    return ViewReading({name: float(name == view) for name in VIEWS})


def view_name(text: str) -> str | None:
    """One of :data:`VIEWS` for a label as data sets write it ("AP Supine", "L", "lateral"); None for any other."""
    return _NAMES.get("".join(text.upper().replace("_", " ").replace("-", " ").split()))


def _is_probability(value: object) -> bool:
    return is_number(value) and -1e-6 <= value <= 1 + 1e-6  # type: ignore[operator]
