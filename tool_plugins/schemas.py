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
"""The schemas of the agent's tools by name, without their backends: what a chat template tells the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tool_plugins.evidence_lookup import EvidenceLookup
from tool_plugins.evidence_source import MeasureTool
from tool_plugins.region_parse import RegionParse
from tool_plugins.roi_crop import RoiCrop

__all__ = ["tool_schemas"]

_SCHEMAS: dict[str, dict[str, Any]] = {
    tool.name: tool.schema for tool in (RegionParse, RoiCrop, EvidenceLookup, MeasureTool)
}


def tool_schemas(names: Sequence[str]) -> list[dict[str, Any]]:
    """Schemas in OpenAI's form, in the order of the names.

    Raises:
        ValueError: there is no tool of a name.
    """
    if unknown := sorted(set(names) - set(_SCHEMAS)):
        raise ValueError(f"there is no tool {unknown[0]!r}: use some of {', '.join(_SCHEMAS)}")
    return [_SCHEMAS[name] for name in names]
