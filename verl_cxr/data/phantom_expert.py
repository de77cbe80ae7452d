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
"""A scripted expert for questions about phantoms: the trajectories of the agent's cold start.

The expert answers rightly and calls tools too often, at random and beyond what a question needs. A policy that imitates
it knows how to call, plan and answer; which calls are worth their cost is left for reinforcement learning to find out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verl_cxr.data.phantom_questions import AskedPhantom
from verl_cxr.measure import TITLES, Evidence

__all__ = ["expert_answer", "expert_plan"]

_USEFUL = 0.75  # how often a question that needs a crop gets one
_EXTRA = (0.15, 0.3, 0.35, 0.2)  # chances of 0, 1, 2, 3 calls besides
_FRONTAL = ("right lung", "left lung", "cardiac silhouette", "mediastinum")
_LATERAL = ("cardiac silhouette", "trachea")
_FINDINGS = ("cardiomegaly", "pleural effusion", "pneumothorax", "consolidation")


def expert_plan(asked: AskedPhantom, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The calls of the first turn: objects with ``name`` and ``arguments``."""
    calls = []
    region = asked.question.extra.get("region")
    if region and rng.random() < _USEFUL:
        calls.append(_call("roi_crop", region=str(region)))
    regions = _LATERAL if asked.question.view == "LATERAL" else _FRONTAL
    for _ in range(int(rng.choice(len(_EXTRA), p=_EXTRA))):
        kind = ("region_parse", "roi_crop", "evidence_lookup")[int(rng.integers(3))]
        if kind == "evidence_lookup":
            calls.append(_call(kind, finding=str(rng.choice(_FINDINGS))))
        else:
            calls.append(_call(kind, region=str(rng.choice(regions))))
    return [calls[place] for place in rng.permutation(len(calls))]


def expert_answer(asked: AskedPhantom, evidence: Evidence) -> str:
    """The last turn: a rationale, which quotes the measurement that it rests on if there is one, and the answer."""
    question = asked.question
    (name,), (answer,) = question.category, question.answer
    if name == "heart":
        state = "enlarged" if answer == "yes" else "normal in size"
        reason = f"{_basis(evidence, 'ctr')} The heart is {state}."
    elif name == "mediastinum":
        reason = f"{_basis(evidence, 'shift')} The mediastinum is {answer}."
    elif name == "lung":
        reason = f"The {question.extra['region']} shows {answer}."
    else:
        reason = f"The film is {answer}."
    return f"{reason} <answer>{answer}</answer>"


def _basis(evidence: Evidence, name: str) -> str:
    for measurement in evidence.exposed:
        if measurement.name == name:
            value = measurement.text().removeprefix(TITLES[measurement.name]).split()[0]
            return f"The {TITLES[measurement.name]} is {value}."
    return "It is judged from the film alone."


def _call(name: str, **arguments: str) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}
