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
"""Options of the cascaded reward, the Hydra group ``cxr.reward``: what the paper varies, and what it leaves open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from reward_plugins.checks import check_booleans, check_choices, check_numbers, options_from_text

__all__ = ["CascadeOptions"]

Parts = Literal["joint", "spatial", "factual", "none"]
Verify = Literal["reasoning", "answer", "both"]
Duplicates = Literal["worst", "best", "first", "union"]
Unannotated = Literal["ignore", "penalise"]
EmptyFinding = Literal["compare", "skip"]
NoEntity = Literal["one", "zero", "skip"]
Overrun = Literal["clip", "zero"]
Degenerate = Literal["zero", "reject"]

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "parts": get_args(Parts),
    "verify": get_args(Verify),
    "duplicates": get_args(Duplicates),
    "unannotated": get_args(Unannotated),
    "empty_finding": get_args(EmptyFinding),
    "no_entity": get_args(NoEntity),
    "overrun": get_args(Overrun),
    "degenerate": get_args(Degenerate),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeOptions:
    """How a response is scored. Table numbers are those of the region-grounded GRPO paper.

    Attributes:
        tau: a region's finding counts only where IoU > tau (strictly); in [0, 1]. Table 5.
        parts: Table 6. ``joint``: mean IoU + mean gated F1. ``spatial``, ``factual``: one of the two. ``none``: 1 for a
            well-formed response, that is, the format alone.
        gate: False lets the findings of every predicted region count, wherever its box lies. The paper does not say
            whether its factual-only row kept the gate; it does here unless this is False, so that ``factual`` is
            ``joint`` less its spatial part.
        verify: Table 4. ``reasoning``: the regions, in [0, 2]. ``answer``: fact F1 of the whole report, in [0, 1].
            ``both``: their weighted sum.
        reasoning_weight, answer_weight: the weights of ``both``; not negative.
        duplicates: a region that is predicted more than once. ``worst``: its lowest IoU and its lowest F1, so that
            trying several boxes or findings never pays. ``best``: its highest. ``first``: the first one written.
            ``union``: the box around all of them, their distinct findings joined in alphabetical order.
        unannotated: a predicted region that the study does not name. ``ignore``: nothing, as in the paper.
            ``penalise``: each counts as ``unannotated_weight`` further regions that earn 0. A region that the study
            describes without a box is never held against a response.
        unannotated_weight: see ``unannotated``; not negative.
        empty_finding: an annotated region without finding text. ``compare``: as any text (F1 0 for a prediction with
            facts, ``no_entity`` for one without). ``skip``: out of the factual mean, since silence is not evidence.
        no_entity: F1 where neither text carries a fact. ``one``: agreement. ``zero``. ``skip``: out of the mean.
        overrun: a predicted box beyond the image. ``clip``: its part inside counts. ``zero``: IoU 0.
        degenerate: a predicted box without area. ``zero``: IoU 0. ``reject``: the response fails the format gate.
        measure_all: also score the facts that the reward does not need (those behind a closed gate, the report under
            ``reasoning``), so that they can be logged; costs annotator time.
        vocabulary: name or ``.yaml`` path of the region vocabulary.

    Raises:
        ValueError: a value outside its range.
    """

    tau: float = 0.25
    parts: Parts = "joint"
    gate: bool = True
    verify: Verify = "reasoning"
    reasoning_weight: float = 1.0
    answer_weight: float = 1.0
    duplicates: Duplicates = "worst"
    unannotated: Unannotated = "ignore"
    unannotated_weight: float = 1.0
    empty_finding: EmptyFinding = "compare"
    no_entity: NoEntity = "one"
    overrun: Overrun = "clip"
    degenerate: Degenerate = "zero"
    measure_all: bool = False
    vocabulary: str = "chest_imagenome"

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        check_booleans(self, ("gate", "measure_all"))
        unlimited = ("reasoning_weight", "answer_weight", "unannotated_weight")
        check_numbers(self, {"tau": 1.0} | dict.fromkeys(unlimited, math.inf))

    @property
    def needs_findings(self) -> bool:
        """The reward cannot do without the F1 of findings whose gate is open."""
        return self.verify != "answer" and self.parts in ("joint", "factual")

    @property
    def scores_findings(self) -> bool:
        """The F1 of findings is needed, or wanted for the log."""
        return self.needs_findings or self.measure_all

    @property
    def scores_report(self) -> bool:
        """The F1 of the whole report is needed, or wanted for the log."""
        return self.verify != "reasoning" or self.measure_all

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> CascadeOptions:
        """Options from ``key=value`` texts of a command line.

        Raises:
            ValueError: an unknown option, or a value outside its range.
        """
        return options_from_text(cls, texts)
