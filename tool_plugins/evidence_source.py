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
"""The measurement package of a question's films: taken by the environment, behind the validity gate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tool_plugins.case import Case, CaseFilm
from tool_plugins.tool import Result, function_schema
from verl_cxr.measure import Evidence, MaskBackend, Thresholds, ViewBackend, gather
from verl_cxr.once import Once

__all__ = ["EvidenceSource", "MeasureTool"]


class EvidenceSource:
    """Gathers evidence about a case; a film is measured once in a process.

    Args:
        masks, view: who outlines films, and who tells their projection.
        thresholds: of the gate.
    """

    def __init__(self, masks: MaskBackend, view: ViewBackend, thresholds: Thresholds) -> None:
        self.masks, self.view, self.thresholds = masks, view, thresholds
        self._known: Once[Path, Evidence] = Once()  # the rollouts of a prompt ask at once

    def gather(self, case: Case) -> tuple[Evidence, str]:
        """Evidence, and its text for the policy.

        Of several films the first is measured whose gate is open, else the first; the text tells which.

        Raises:
            MaskError, ViewError: a backend failed.
        """
        found = [self._of(film) for film in case.films]
        chosen = next((at for at, evidence in enumerate(found) if evidence.decision.open), 0)
        text = found[chosen].observation()
        return found[chosen], text if len(found) == 1 else f"Image {chosen + 1}.\n{text}"

    def _of(self, film: CaseFilm) -> Evidence:
        return self._known.get(
            film.path, lambda: gather(film.film(), masks=self.masks, view=self.view, thresholds=self.thresholds)
        )


class MeasureTool:
    """``measure``: the package as a tool, where the policy routes measurements (an ablation of the paper)."""

    name = "measure"
    schema = function_schema(name, "Measure heart, lungs and mediastinum, where that is valid.")

    def __init__(self, source: EvidenceSource) -> None:
        self.source = source

    def __call__(self, arguments: Mapping[str, Any], case: Case) -> Result:
        """See :class:`tool_plugins.tool.Tool`."""
        return Result(self.source.gather(case)[1])
