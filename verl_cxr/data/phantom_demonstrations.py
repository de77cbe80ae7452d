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
"""Demonstrations of the evidence agent on phantoms: each question worked on by the scripted expert with the real tools.

What the calls bring is what they would bring in training: the tools, the gate and the wording of the observations are
the agent's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from tool_plugins.case import Case, CaseFilm
from tool_plugins.evidence_lookup import EvidenceLookup
from tool_plugins.evidence_source import EvidenceSource
from tool_plugins.observation import observe
from tool_plugins.options import AgentOptions
from tool_plugins.plan import parse_plan
from tool_plugins.region_parse import RegionParse
from tool_plugins.roi_crop import RoiCrop
from tool_plugins.toolbox import Toolbox
from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.phantom_expert import expert_answer, expert_plan
from verl_cxr.data.phantom_questions import VIEWS, AskedPhantom, iter_phantom_questions
from verl_cxr.data.question_rows import Demonstration
from verl_cxr.film import Film
from verl_cxr.lookup import make_lookup
from verl_cxr.measure import ViewReading, certain, load_thresholds, make_masks
from verl_cxr.trajectory import Trajectory

__all__ = ["phantom_demonstrations", "tiny_options"]

_SEEN = "The film is seen."


def phantom_demonstrations(
    context: BuildContext, *, count: int = 4000, validate: int = 128, size: int = 128
) -> Iterator[Demonstration]:
    """Draw films, ask about them, and let the expert answer; films and pictures are written below ``context.out``.

    Args:
        count, validate: questions for training, and held out.
        size: width and height of a film in pixels.
    """
    images, pictures = context.out / "images", context.out / "pictures"
    images.mkdir(parents=True, exist_ok=True)
    pictures.mkdir(parents=True, exist_ok=True)
    context.total = count + validate
    options, views = tiny_options(), _StatedViews()
    masks = make_masks("phantom", views=list(VIEWS), remember=4)
    source = EvidenceSource(masks, views, load_thresholds("phantom"))
    tools = (
        RegionParse(masks, picture_side=options.region_picture_side),
        RoiCrop(masks, side=options.crop_side, max_zoom=options.max_zoom, least_pixels=options.least_pixels),
        EvidenceLookup(make_lookup("knowledge", statements=1)),
    )
    toolbox = Toolbox(tools, max_calls=options.max_calls)
    for split, questions in (("train", count), ("validate", validate)):
        rng = np.random.default_rng([context.seed, *split.encode(), 11])
        for asked in iter_phantom_questions(context.seed, questions, split=split, size=size, images=images):
            Image.fromarray(asked.phantom.image).save(asked.question.images[0])
            views.views[asked.question.images[0]] = asked.question.view or "OTHER"
            yield _demonstrate(asked, rng, toolbox, source, pictures)


def tiny_options() -> AgentOptions:
    """The agent's options at the local scale, from ``hydra_configs/agent/tiny.yaml``; without a log."""
    folder = resources.files("hydra_configs") / "agent"
    section: dict[str, Any] = {}
    for name in ("two_turn", "tiny"):
        section |= yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
    section.pop("defaults")
    return AgentOptions.from_mapping(section | {"log": None})


def _demonstrate(
    asked: AskedPhantom, rng: np.random.Generator, toolbox: Toolbox, source: EvidenceSource, pictures: Path
) -> Demonstration:
    question = asked.question
    case = Case((CaseFilm(question.images[0]),))
    plan = "\n".join([_SEEN, *(_written(call) for call in expert_plan(asked, rng))])
    evidence, package = source.gather(case)
    observation = observe(toolbox.answer(parse_plan(plan), case, turn=0), package)
    files: list[Path] = []
    calls = []
    for answered in observation.answered:
        names = []
        for image in answered.images:
            path = pictures / f"{question.id}-{len(files)}.png"
            image.save(path)
            files.append(path)
            names.append(path.name)
        calls.append(replace(answered.call, images=tuple(names), seconds=0.0))
    trajectory = Trajectory(
        id=question.id,
        turns=(plan, expert_answer(asked, evidence)),
        calls=tuple(calls),
        observations=(observation.text,),
        evidence=evidence,
    )
    return Demonstration(question, trajectory, tuple(files))


def _written(call: Mapping[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps(dict(call))}\n</tool_call>"


@dataclass(slots=True)
class _StatedViews:
    """The view of each film as its question states it, as ``view=metadata`` reads it from the file of questions."""

    views: dict[Path, str] = field(default_factory=dict)
    name: str = "metadata"

    def read(self, film: Film) -> ViewReading:
        return certain(self.views[film.path])
