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
"""What a look-up answers, and what every backend of it offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["LookupAnswer", "LookupBackend", "LookupServiceError"]


class LookupServiceError(RuntimeError):
    """The service behind a look-up failed: that is its state, and nothing about a finding."""


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """What is known about a finding.

    Attributes:
        finding: the name under which it is known; the name that was asked for where nothing is.
        text: for the policy, with where it is from.
        known: something is known.
        sources: the references in full.
    """

    finding: str
    text: str
    known: bool
    sources: tuple[str, ...] = ()


class LookupBackend(Protocol):
    """Tells how a finding looks on a film. Threads may share one."""

    name: str
    """The stamp of its answers."""

    def look_up(self, finding: str) -> LookupAnswer:
        """What is known about a finding.

        Args:
            finding: its name, as anyone may write it.

        Raises:
            LookupServiceError: the service behind it failed.
        """
