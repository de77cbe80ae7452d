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
"""``evidence_lookup``: how a candidate finding looks on a film, from a knowledge base or a language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tool_plugins.arguments import read_text
from tool_plugins.case import Case
from tool_plugins.refusal import Refusal, RefusedError
from tool_plugins.tool import Result, function_schema
from verl_cxr.lookup import LookupBackend, LookupServiceError

__all__ = ["EvidenceLookup"]


class EvidenceLookup:
    """Answers with what is known about a finding; it does not look at the film."""

    name = "evidence_lookup"
    schema = function_schema(
        name,
        "Say how a finding looks on a chest film.",
        finding=("string", "Its name, such as pneumothorax."),
    )

    def __init__(self, lookup: LookupBackend) -> None:
        self.lookup = lookup

    def __call__(self, arguments: Mapping[str, Any], case: Case) -> Result:
        """See :class:`tool_plugins.tool.Tool`."""
        finding = read_text(arguments, "finding")
        try:
            return Result(self.lookup.look_up(finding).text)
        except LookupServiceError:
            raise RefusedError(
                Refusal.UNAVAILABLE, "The look-up service did not answer. Nothing follows from that."
            ) from None
