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
"""The trajectory: what a policy wrote about one question, turn by turn, and what it was given in between.

The evidence agent loop writes it, ``verl-cxr score --reward accuracy-gated``, ``evaluate`` and ``view`` read it, one
JSON object a line (``.jsonl``, ``.jsonl.gz``)::

    {"id": "slake-1034", "turns": ["The left base is dense. ...", "<think>...</think><answer>B</answer>"],
     "calls": [{"tool": "roi_crop", "arguments": {"box": [553, 2, 963, 946]}, "refused": null,
                "observation": "A crop of the left lung, enlarged 2.1 times.", "images": ["film-0.png"],
                "seconds": 0.03, "turn": 0}],
     "observations": ["A crop of the left lung ... Measurements are unavailable: ..."],
     "evidence": {...}, "cut": false, "timings": {"turn_0": 0.8, "tools": 0.05, "turn_1": 1.1}}

``id`` is the question's, so that several rollouts of one question share it; only ``id`` and ``turns`` are required.
``evidence`` is the record of :class:`verl_cxr.measure.Evidence`, null where the gate was never asked. All checks happen
here, once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from verl_cxr.files import RecordError, kind_of, read_records, write_lines
from verl_cxr.measure import Evidence

__all__ = ["MALFORMED", "Call", "Trajectory", "TrajectoryError", "read_trajectories", "write_trajectories"]


MALFORMED = "malformed"
"""How :attr:`Call.refused` starts where the text of a call could not be read."""


class TrajectoryError(RecordError):
    """A record that is not a trajectory."""


@dataclass(frozen=True, slots=True)
class Call:
    """One optional tool call of the policy.

    Attributes:
        tool: name as the policy wrote it; empty where the text was no readable call.
        arguments: as the policy wrote them.
        refused: why the call was not executed, starting with a code such as ``over_budget``; None: it was.
            :data:`MALFORMED` means that its text could not be read as a call at all.
        observation: the text that the policy got for it.
        images: names of the images that it got, in order.
        seconds: wall time of the call.
        turn: index of the turn that asked for it.
    """

    tool: str
    arguments: Mapping[str, Any]
    refused: str | None = None
    observation: str = ""
    images: tuple[str, ...] = ()
    seconds: float = 0.0
    turn: int = 0

    def __hash__(self) -> int:
        return hash((self.tool, self.observation, self.turn))

    @property
    def malformed(self) -> bool:
        """The text of the call could not be read as one."""
        return self.refused is not None and self.refused.startswith(MALFORMED)

    def to_dict(self) -> dict[str, Any]:
        """The JSON record."""
        return {
            "tool": self.tool,
            "arguments": dict(self.arguments),
            "refused": self.refused,
            "observation": self.observation,
            "images": list(self.images),
            "seconds": self.seconds,
            "turn": self.turn,
        }


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All of one rollout.

    Attributes:
        id: the question's.
        turns: what the policy wrote, in order, without special tokens; one at least.
        calls: its tool calls, in the order in which it asked, refused ones included.
        observations: what the policy was given after each turn but the last, as it read it.
        evidence: gate decision and measurements; None: the gate was never asked.
        cut: the response ended at the length limit.
        timings: seconds by name of the stage.
    """

    id: str
    turns: tuple[str, ...]
    calls: tuple[Call, ...] = ()
    observations: tuple[str, ...] = ()
    evidence: Evidence | None = None
    cut: bool = False
    timings: Mapping[str, float] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.id, self.turns))

    @property
    def answer_text(self) -> str:
        """The last turn, which holds rationale and answer."""
        return self.turns[-1]

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Trajectory:
        """Validate a record.

        Raises:
            TrajectoryError: a field is missing, has the wrong type, or holds an impossible value.
        """
        turns = _texts(record, "turns")
        if not turns:
            raise TrajectoryError("turns", "missing: give the texts of the policy, one a turn")
        calls = _list(record, "calls", "tool calls")
        evidence = _object(record, "evidence")
        timings = _object(record, "timings") or {}
        cut = record.get("cut") or False
        if not isinstance(cut, bool):
            raise TrajectoryError("cut", f"must be true or false, not {kind_of(cut)}")
        if not isinstance(identity := record.get("id"), str) or not identity:
            raise TrajectoryError("id", "must be the text id of a question")
        return cls(
            id=identity,
            turns=turns,
            calls=tuple(_call(call, f"calls[{at}]", len(turns)) for at, call in enumerate(calls)),
            observations=_texts(record, "observations"),
            evidence=None if evidence is None else _evidence(evidence),
            cut=cut,
            timings={str(name): _seconds(value, f"timings.{name}") for name, value in timings.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON record, which :meth:`from_dict` reads back."""
        return {
            "id": self.id,
            "turns": list(self.turns),
            "calls": [call.to_dict() for call in self.calls],
            "observations": list(self.observations),
            "evidence": None if self.evidence is None else self.evidence.to_dict(),
            "cut": self.cut,
            "timings": dict(self.timings),
        }


def read_trajectories(path: str | os.PathLike[str]) -> Iterator[Trajectory]:
    """Read trajectories one by one, in the file's order (gzipped if its name ends in ``.gz``).

    Raises:
        TrajectoryError: the first row that is no trajectory.
        FileNotFoundError: no such file.
    """
    for row, record in read_records(path, error=TrajectoryError):
        try:
            yield Trajectory.from_dict(record)
        except TrajectoryError as error:
            raise error.at(path, row) from None


def write_trajectories(path: str | os.PathLike[str], trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories as JSONL (gzipped if the name ends in ``.gz``), whole or not at all; returns how many."""
    return write_lines(path, (orjson.dumps(each.to_dict(), option=orjson.OPT_APPEND_NEWLINE) for each in trajectories))


def _evidence(record: Mapping[str, Any]) -> Evidence:
    try:
        return Evidence.from_dict(record)
    except RecordError as error:
        raise TrajectoryError(f"evidence.{error.field}".rstrip("."), error.problem) from None


def _call(record: object, place: str, turns: int) -> Call:
    if not isinstance(record, dict):
        raise TrajectoryError(place, f"a call is an object, not {kind_of(record)}")
    tool, refused, turn = record.get("tool"), record.get("refused"), record.get("turn", 0)
    observation = record.get("observation", "")
    for name, value in (("tool", tool), ("observation", observation)):
        if not isinstance(value, str):
            raise TrajectoryError(f"{place}.{name}", f"must be text, not {kind_of(value)}")
    if refused is not None and not isinstance(refused, str):
        raise TrajectoryError(f"{place}.refused", f"must be the reason or null, not {kind_of(refused)}")
    if type(turn) is not int or not 0 <= turn < turns:
        raise TrajectoryError(f"{place}.turn", f"must be the index of one of the {turns} turns, not {turn!r}")
    return Call(
        tool=str(tool),
        arguments=_object(record, "arguments", f"{place}.") or {},
        refused=refused,
        observation=observation,
        images=_texts(record, "images", f"{place}."),
        seconds=_seconds(record.get("seconds", 0.0), f"{place}.seconds"),
        turn=turn,
    )


def _list(record: Mapping[str, Any], key: str, what: str, place: str = "") -> list[Any]:
    values = record.get(key)
    if values is None:
        return []
    if not isinstance(values, list):
        raise TrajectoryError(place + key, f"must be a list of {what}, not {kind_of(values)}")
    return values


def _texts(record: Mapping[str, Any], key: str, place: str = "") -> tuple[str, ...]:
    values = _list(record, key, "texts", place)
    for at, value in enumerate(values):
        if not isinstance(value, str):
            raise TrajectoryError(f"{place}{key}[{at}]", f"must be text, not {kind_of(value)}")
    return tuple(values)


def _object(record: Mapping[str, Any], key: str, place: str = "") -> dict[str, Any] | None:
    value = record.get(key)
    if value is not None and not isinstance(value, dict):
        raise TrajectoryError(place + key, f"must be an object or null, not {kind_of(value)}")
    return value


def _seconds(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
        raise TrajectoryError(place, f"must be a number of seconds, not {value!r}")
    return float(value)
