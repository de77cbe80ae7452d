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
"""Attempts at something that may fail for a while: few, further and further apart, and heeding who asks to wait."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeVar

__all__ = ["Retrying", "TransientError", "seconds_to_wait"]

T = TypeVar("T")


class TransientError(Exception):
    """An attempt failed, and another may succeed. ``after`` is the value of a ``Retry-After`` header, if any."""

    def __init__(self, problem: str, *, after: str | None = None) -> None:
        self.after = after
        super().__init__(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """How often and how soon to try again.

    Attributes:
        retries: attempts after the first.
        backoff: seconds before the second attempt; doubles with each.
        max_wait: the longest wait in seconds. Who asks for more has failed.

    Raises:
        ValueError: a negative number.
    """

    retries: int
    backoff: float
    max_wait: float

    def __post_init__(self) -> None:
        for option in ("retries", "backoff", "max_wait"):
            if not 0 <= getattr(self, option) < math.inf:
                raise ValueError(f"{option}={getattr(self, option)!r}: use a number from 0 up")

    def run(self, attempt: Callable[[], T]) -> T:
        """The result of the first attempt that succeeds.

        Raises:
            TransientError: of the last attempt.
        """
        for number in range(self.retries + 1):
            try:
                return attempt()
            except TransientError as error:
                wait = seconds_to_wait(error.after)
                if number == self.retries or (wait or 0.0) > self.max_wait:
                    raise
                time.sleep(wait if wait is not None else min(self.backoff * 2**number, self.max_wait))
        raise AssertionError("unreachable")


def seconds_to_wait(after: str | None) -> float | None:
    """What a ``Retry-After`` header asks for: seconds, or a date. None where it says neither."""
    if after is None:
        return None
    after = after.strip()
    if after.isascii() and after.isdigit():
        return float(after[:9])
    try:
        date = email.utils.parsedate_to_datetime(after)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return max(0.0, (date - datetime.now(timezone.utc)).total_seconds())
