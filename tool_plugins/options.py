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
"""Options of the evidence agent, the Hydra group ``cxr.agent``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from tool_plugins.plan import Planned

__all__ = ["TOOLS", "AgentOptions"]

TOOLS = ("region_parse", "roi_crop", "evidence_lookup")
"""The optional tools of this package."""

Routing = Literal["policy", "all", "none"]
Measuring = Literal["gate", "policy", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """How a question is worked on; the defaults are those of the X-Ragent paper.

    Attributes:
        routing: who chooses tool calls: ``policy``, the plan of the turn; ``all``, the environment, which makes
            ``static_calls`` whatever the plan; ``none``, nobody. The latter two are ablations.
        measurements: ``gate``: the environment takes them, and the gate decides whether they are shown. Ablations:
            ``policy``, a tool ``measure`` that counts as a call, behind the same gate; ``none``.
            ``cxr.gate.enabled=false`` is the ablation without the gate.
        max_calls: K_max, calls that a question may have over all rounds; further ones are refused, and counted.
        rounds: how often the policy may call before it must answer; 1 is the paper's, which makes two turns.
        plan_tokens: longest turn before the last, in tokens.
        answer_tokens: room that observations leave for the last turn.
        tools: names of :data:`TOOLS` that the policy is offered.
        crop_side: longer side of a crop's picture, pixels.
        max_zoom, least_pixels: limits of a crop, see :class:`tool_plugins.roi_crop.RoiCrop`.
        region_picture_side: of the picture that ``region_parse`` returns; 0: it returns none.
        static_calls: of routing ``all``: objects with ``name`` and ``arguments``.
        log: folder for the trajectories as JSON lines; None: they are in verl's extra fields alone.

    Raises:
        ValueError: a value outside its range.
    """

    routing: Routing = "policy"
    measurements: Measuring = "gate"
    max_calls: int = 5
    rounds: int = 1
    plan_tokens: int = 1024
    answer_tokens: int = 512
    tools: Sequence[str] = TOOLS
    crop_side: int = 448
    max_zoom: float = 12.0
    least_pixels: int = 16
    region_picture_side: int = 448
    static_calls: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    log: str | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("routing", get_args(Routing)), ("measurements", get_args(Measuring))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"agent option {name}={getattr(self, name)!r}: use one of {', '.join(allowed)}")
        lowest = {"max_calls": 0, "rounds": 1, "plan_tokens": 1, "answer_tokens": 1}
        lowest |= {"crop_side": 32, "least_pixels": 1, "region_picture_side": 0}
        for name, least in lowest.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"agent option {name}={value!r}: use a whole number, {least} or more")
        if not self.max_zoom >= 1:
            raise ValueError(f"agent option max_zoom={self.max_zoom!r}: use a number, 1 or more")
        if unknown := sorted(set(self.tools) - set(TOOLS)):
            raise ValueError(f"there is no tool {unknown[0]!r}: use some of {', '.join(TOOLS)}")
        if self.routing == "all" and not self.static_calls:
            raise ValueError("agent option routing=all needs static_calls")
        if self.routing == "all" and len(self.static_calls) > self.max_calls:
            raise ValueError(f"{len(self.static_calls)} static_calls are more than max_calls={self.max_calls}")
        self.static_plan()

    @classmethod
    def from_mapping(cls, section: Mapping[str, Any]) -> AgentOptions:
        """Options of a configuration.

        Raises:
            ValueError: an unknown name, or a value outside its range.
        """
        known = [each.name for each in fields(cls)]
        if unknown := sorted(set(section) - set(known)):
            raise ValueError(f"the agent has no option {unknown[0]!r}: use some of {', '.join(known)}")
        return cls(**section)

    def static_plan(self) -> list[Planned]:
        """The calls of routing ``all``.

        Raises:
            ValueError: one of them is no call.
        """
        plan = []
        for call in self.static_calls:
            name, arguments = call.get("name"), call.get("arguments") or {}
            if name not in self.tools or not isinstance(arguments, Mapping):
                raise ValueError(
                    f"static call {dict(call)!r}: give name (one of {', '.join(self.tools)}) and arguments"
                )
            plan.append(Planned(str(name), dict(arguments)))
        return plan
