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
"""What the options of every reward share: checks that say what would be right, and reading from a command line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["check_booleans", "check_choices", "check_numbers", "numbers_of", "options_from_text", "row_of"]

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_Options = TypeVar("_Options")


def check_choices(options: object, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ValueError for an option that is none of its choices."""
    for option, allowed in choices.items():
        if getattr(options, option) not in allowed:
            raise ValueError(f"{option}={getattr(options, option)!r}: use one of {', '.join(allowed)}")


def check_booleans(options: object, names: Iterable[str]) -> None:
    """Raise ValueError for an option that is neither true nor false."""
    for option in names:
        if not isinstance(getattr(options, option), bool):
            raise ValueError(f"{option}={getattr(options, option)!r}: use true or false")


def check_numbers(options: object, limits: Mapping[str, float]) -> None:
    """Raise ValueError for an option that is not a finite number from 0 to its limit, which may be infinite."""
    for option, limit in limits.items():
        value = getattr(options, option)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{option}={value!r}: use a number")
        if not (math.isfinite(value) and 0 <= value <= limit):
            raise ValueError(
                f"{option}={value!r}: use a number from 0{f' to {limit:g}' if limit < math.inf else ' up'}"
            )


def options_from_text(kind: type[_Options], texts: Mapping[str, str]) -> _Options:
    """Options from ``key=value`` texts of a command line.

    Args:
        kind: a dataclass whose fields are annotated as ``bool``, ``int``, ``float`` or any kind of text.

    Raises:
        ValueError: an unknown option, or a value outside its range.
    """
    kinds = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for option, text in texts.items():
        if option not in kinds:
            raise ValueError(f"unknown option {option!r}: use one of {', '.join(kinds)}")
        values[option] = _value(text, str(kinds[option]))
    return kind(**values)


def numbers_of(record: object, keys: Iterable[str]) -> dict[str, float]:
    """Numeric fields of a record for a log: True is 1, and what was not scored is 0, since every key needs a number."""
    return {key: float(getattr(record, key) or 0.0) for key in keys}


def row_of(record: object, keys: Iterable[str]) -> dict[str, Any]:
    """The same fields for a row of JSON: null for what was not scored."""
    values = {key: getattr(record, key) for key in keys}
    return {key: int(value) if isinstance(value, bool) else value for key, value in values.items()}


def _value(text: str, kind: str) -> object:
    if kind == "bool":
        return _BOOLEANS.get(text.lower(), text)
    if kind in ("float", "int"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            return text
    return text
