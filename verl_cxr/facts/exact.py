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
"""The strictest scorer: 1 when the two texts are the same sentence, else 0. Needs nothing, and hides nothing."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ExactScorer", "normalise"]


def normalise(text: str) -> str:
    """Lower case, single spaces, no closing full stop: ``" Clear   lungs."`` and ``"clear lungs"`` are equal."""
    return " ".join(text.casefold().split()).rstrip(" .")


class ExactScorer:
    """1.0 for equal normalised texts, 0.0 for different ones, None when both are blank."""

    name = "exact"

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float | None]:
        """See `verl_cxr.facts.FactScorer.score`."""
        return [_score(normalise(predicted), normalise(reference)) for predicted, reference in pairs]


def _score(predicted: str, reference: str) -> float | None:
    if not predicted and not reference:
        return None
    return float(predicted == reference)
