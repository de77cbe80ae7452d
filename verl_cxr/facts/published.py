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
"""What the authors of RadGraph publish about their weights: the only check of weights that needs nobody's data.

Sentences and scores are those of the examples of the `radgraph` package (0.1.18, MIT): its README's for
``model_type="radgraph-xl"``, and the self-test at the end of ``radgraph/radgraph.py`` for ``"radgraph"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from verl_cxr.facts.f1 import Level, graph_f1
from verl_cxr.facts.scorer import Annotate

__all__ = ["PUBLISHED", "Published"]


@dataclass(frozen=True, slots=True)
class Published:
    """Pairs of (hypothesis, reference), and the mean F1 of all pairs at each level."""

    what: str
    pairs: tuple[tuple[str, str], ...]
    f1: Mapping[Level, float]

    def problems(self, annotate: Annotate) -> list[str]:
        """Each level whose F1 is another than the published one, and what it is; none for the authors' weights."""
        graphs = annotate([text for pair in self.pairs for text in pair])
        problems = []
        for level, expected in self.f1.items():
            scores = [graph_f1(graphs[i], graphs[i + 1], level=level) or 0.0 for i in range(0, len(graphs), 2)]
            if abs(fmean(scores) - expected) > 5e-5:
                problems.append(f"F1 {level}: {fmean(scores):.4f}, published: {expected:.4f}")
        return problems


PUBLISHED: Mapping[str, Published] = MappingProxyType(
    {
        "radgraph-xl": Published(
            "the F1 of the package's README",
            (
                ("no acute cardiopulmonary abnormality", "no acute cardiopulmonary abnormality"),
                (
                    "et tube terminates 2 cm above the carina and bibasilar opacities",
                    "endotracheal tube is present and bibasilar opacities likely represent mild atelectasis",
                ),
            ),
            MappingProxyType({"simple": 0.75, "partial": 0.6666666666666666, "complete": 0.6538461538461539}),
        ),
        "radgraph": Published(
            "the F1 of the package's self-test",
            (
                ("no acute cardiopulmonary abnormality", "no acute cardiopulmonary abnormality"),
                (
                    "endotracheal tube terminates 2 5 cm above the carina bibasilar opacities likely represent "
                    "atelectasis or aspiration",
                    "et tube terminates 2 cm above the carina retraction by several centimeters is recommended for "
                    "more optimal placement bibasilar consolidations better assessed on concurrent chest ct",
                ),
                (
                    "there is no significant change since the previous exam",
                    "there is no significant change since the previous exam the feeding tube and nasogastric tube have "
                    "been removed",
                ),
                (
                    "unchanged mild pulmonary edema and moderate cardiomegaly",
                    "unchanged mild pulmonary edema no radiographic evidence pneumonia",
                ),
                (
                    "no evidence of acute cardiopulmonary process moderate hiatal hernia",
                    "no evidence of acute pulmonary process moderately large size hiatal hernia",
                ),
                ("no acute cardiopulmonary process", "no acute intrathoracic process"),
            ),
            MappingProxyType(
                {"simple": 0.6238095238095238, "partial": 0.5111111111111111, "complete": 0.5011204481792717}
            ),
        ),
    }
)
