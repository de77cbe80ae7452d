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
"""Findings such as a policy writes in one step of GRPO: many are stock phrases, the rest combine a few words."""

from __future__ import annotations

import random

__all__ = ["REGIONS", "finding", "step"]

REGIONS = 38
"""Annotated regions of a study (Chest ImaGenome)."""

_NORMAL = (
    "no pleural effusion",
    "no pneumothorax",
    "no focal consolidation",
    "the lungs are clear",
    "no acute osseous abnormality",
    "no focal consolidation, pneumothorax, or pleural effusion",
    "the heart is normal in size",
    "no pulmonary edema",
    "the cardiac silhouette is unremarkable",
    "the mediastinal contours are normal",
    "normal hilar contours",
    "the trachea is midline",
    "no acute fracture",
)
_DEGREE = ("", "small", "mild", "moderate", "severe", "trace", "large", "minimal")
_SIDE = ("left", "right", "bilateral", "bibasilar")
_WHAT = (
    "pleural effusion",
    "atelectasis",
    "consolidation",
    "pulmonary edema",
    "opacity",
    "pneumothorax",
    "interstitial prominence",
    "vascular congestion",
    "scarring",
    "nodule",
    "hilar enlargement",
    "rib fracture",
)
_MORE = (
    "",
    "with adjacent atelectasis",
    "is unchanged",
    "has slightly increased since the prior exam",
    "at the lung base",
    "likely representing infection",
    "which may reflect aspiration or pneumonia",
    "in the upper lobe",
)


def finding(draw: random.Random, *, normal: float = 0.55) -> str:
    """One finding; a share of them are stock phrases, the first ones most often."""
    if draw.random() < normal:
        return _NORMAL[min(int(draw.paretovariate(1.1)) - 1, len(_NORMAL) - 1)]
    return " ".join(filter(None, map(draw.choice, (_DEGREE, _SIDE, _WHAT, _MORE))))


def step(
    *, prompts: int = 32, rollouts: int = 8, regions: int = REGIONS, copied: float = 0.3, seed: int = 0
) -> list[tuple[str, str]]:
    """The (predicted, reference) pairs of one step: each rollout of a prompt is compared with the same references.

    Args:
        copied: share of predictions that repeat the reference.
    """
    draw = random.Random(seed)
    pairs = []
    for _ in range(prompts):
        references = [finding(draw) for _ in range(regions)]
        for _ in range(rollouts):
            pairs += [(text if draw.random() < copied else finding(draw), text) for text in references]
    return pairs
