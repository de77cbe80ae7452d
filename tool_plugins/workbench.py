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
"""Everything an agent works with, made from a configuration once in a process."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tool_plugins.evidence_lookup import EvidenceLookup
from tool_plugins.evidence_source import EvidenceSource, MeasureTool
from tool_plugins.options import AgentOptions
from tool_plugins.region_parse import RegionParse
from tool_plugins.roi_crop import RoiCrop
from tool_plugins.tool import Tool
from tool_plugins.toolbox import Toolbox
from verl_cxr.lookup import make_lookup
from verl_cxr.measure import MaskBackend, Thresholds, make_masks, make_view

__all__ = ["Workbench", "make_workbench", "workbench_of"]

_made: dict[str, Workbench] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Workbench:
    """Options, tools and measurements of an agent.

    Attributes:
        source: of measurements; None where none are taken.
    """

    options: AgentOptions
    toolbox: Toolbox
    source: EvidenceSource | None


def make_workbench(section: Mapping[str, Any]) -> Workbench:
    """The workbench of a configuration's ``cxr`` section.

    Args:
        section: ``agent``, ``masks``, ``view``, ``gate`` and ``lookup``, each as its Hydra group has it.

    Raises:
        ValueError: an option is wrong.
        RuntimeError, OSError: what a backend needs is missing or damaged.
    """
    options = AgentOptions.from_mapping(section["agent"])
    masks = _masks(section)
    source = None
    if options.measurements != "none":
        source = EvidenceSource(masks, make_view(**_named(section, "view")), Thresholds.from_mapping(section["gate"]))
    tools: list[Tool] = [_tool(name, options, masks, section) for name in options.tools]
    if options.measurements == "policy" and source is not None:
        tools.append(MeasureTool(source))
    return Workbench(options, Toolbox(tools, max_calls=options.max_calls), source)


def workbench_of(section: Mapping[str, Any]) -> Workbench:
    """`make_workbench`, once in a process for equal configurations: its rollouts share what films were found to be."""
    key = json.dumps({name: section.get(name) for name in ("agent", "masks", "view", "gate", "lookup")}, sort_keys=True)
    with _lock:
        if key not in _made:
            _made[key] = make_workbench(section)
        return _made[key]


def _masks(section: Mapping[str, Any]) -> MaskBackend:
    return make_masks(**_named(section, "masks"))


def _tool(name: str, options: AgentOptions, masks: MaskBackend, section: Mapping[str, Any]) -> Tool:
    if name == RegionParse.name:
        return RegionParse(masks, picture_side=options.region_picture_side)
    if name == RoiCrop.name:
        return RoiCrop(masks, side=options.crop_side, max_zoom=options.max_zoom, least_pixels=options.least_pixels)
    return EvidenceLookup(make_lookup(**_named(section, "lookup")))


def _named(section: Mapping[str, Any], group: str) -> dict[str, Any]:
    options = section.get(group)
    if not options:
        raise ValueError(f"the agent needs cxr.{group}: choose one by {group}@cxr.{group}=NAME")
    return dict(options)
