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
"""The words of a phantom: one short finding a region, and a report that says bilateral things once."""

from __future__ import annotations

from collections.abc import Sequence

from verl_cxr.data.phantom.body import Anatomy
from verl_cxr.data.phantom.lesions import Lesion

__all__ = ["impression_text", "region_findings", "report_findings"]

_GRADES = {"opacity": ("Mild", "Moderate"), "pleural effusion": ("Small", "Large")}
_BILATERAL = {
    "opacity": "Bilateral opacities.",
    "consolidation": "Bilateral consolidation.",
    "pleural effusion": "Bilateral pleural effusions.",
    "pneumothorax": "Bilateral pneumothoraces.",
}
_NORMAL_IMPRESSION = "No acute cardiopulmonary abnormality."


def region_findings(anatomy: Anatomy, lesions: Sequence[Lesion]) -> dict[str, str]:
    """The finding of every region that a phantom of this view has, by canonical region name."""
    if anatomy.view == "LATERAL":
        return {
            "cardiac silhouette": _heart(anatomy),
            "trachea": "The trachea is patent.",
            "spine": "The spine is intact.",
        }
    by_side = {lesion.side: lesion for lesion in lesions}
    toward = anatomy.shifted_to
    return {
        "right lung": _lung("right", by_side.get("right")),
        "left lung": _lung("left", by_side.get("left")),
        "cardiac silhouette": _heart(anatomy),
        "mediastinum": f"The mediastinum is shifted to the {toward}." if toward else "The mediastinum is midline.",
        "trachea": f"The trachea is deviated to the {toward}." if toward else "The trachea is midline.",
        "right clavicle": "The right clavicle is intact.",
        "left clavicle": "The left clavicle is intact.",
    }


def report_findings(anatomy: Anatomy, lesions: Sequence[Lesion]) -> str:
    """The findings section: lungs, heart, and the mediastinum where it is displaced."""
    if anatomy.view == "LATERAL":
        return _heart(anatomy)
    sentences = [_both_lungs(lesions), _heart(anatomy)]
    if anatomy.shifted_to:
        sentences.append(f"The mediastinum is shifted to the {anatomy.shifted_to}.")
    return " ".join(sentences)


def impression_text(anatomy: Anatomy, lesions: Sequence[Lesion]) -> str:
    """The impression section: a summary line, or the diagnoses alone."""
    kinds = {lesion.kind for lesion in lesions}
    found = ["Cardiomegaly."] if anatomy.heart_enlarged else []
    found += ["Airspace disease."] if kinds & {"opacity", "consolidation"} else []
    found += [f"{kind.capitalize()}." for kind in ("pleural effusion", "pneumothorax") if kind in kinds]
    return " ".join(found) or _NORMAL_IMPRESSION


def _both_lungs(lesions: Sequence[Lesion]) -> str:
    by_side = {lesion.side: lesion for lesion in lesions}
    right, left = by_side.get("right"), by_side.get("left")
    if right is None and left is None:
        return "The lungs are clear."
    if right and left and right.kind == left.kind:
        return _BILATERAL[right.kind]
    return f"{_lung('right', right)} {_lung('left', left)}"


def _lung(side: str, lesion: Lesion | None) -> str:
    if lesion is None:
        return f"The {side} lung is clear."
    if lesion.kind == "pneumothorax":
        return f"Pneumothorax in the {side} lung."
    if lesion.kind == "pleural effusion":
        return f"{_GRADES[lesion.kind][lesion.grade]} {side} pleural effusion."
    if lesion.kind == "consolidation":
        return f"Consolidation in the {side} {lesion.zone} lung."
    return f"{_GRADES[lesion.kind][lesion.grade]} opacity in the {side} {lesion.zone} lung."


def _heart(anatomy: Anatomy) -> str:
    return "The heart is enlarged." if anatomy.heart_enlarged else "The heart is normal in size."
