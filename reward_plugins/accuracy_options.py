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
"""Options of the accuracy-gated reward, the Hydra group ``cxr.reward``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from reward_plugins.checks import check_choices, check_numbers, options_from_text

__all__ = ["AccuracyGateOptions", "Mode", "margin"]

Mode = Literal["accuracy", "ungated_cxr", "ungated_tool", "ungated", "gated"]


def margin(lambda_t: float, max_calls: int, format_weight: float) -> float:
    """The worst reward of a right answer less the best reward of a wrong one, in mode ``gated``.

    A right answer earns 1 - lambda_t * max_calls at least, when its format is wrong and it called all it may; a wrong
    one earns format_weight at most.

    Raises:
        ValueError: it is not positive, so that a wrong answer could outrank a right one.
    """
    cost = lambda_t * max_calls
    if cost >= 1:
        raise ValueError(
            f"lambda_t * max_calls = {lambda_t:g} * {max_calls} = {cost:g} must be less than 1, or a right answer "
            f"could earn no more than a wrong one: lower lambda_t below {1 / max_calls:g}"
        )
    if format_weight >= 1 - cost:
        raise ValueError(
            f"format_weight={format_weight:g} must be less than 1 - lambda_t * max_calls = {1 - cost:g}, or a "
            "well-formed wrong answer could outrank a right one"
        )
    return 1 - cost - format_weight


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyGateOptions:
    """How a trajectory is scored; the numbers are those of the X-Ragent paper where it gives them.

    Attributes:
        mode: ``gated``: R_format + R_acc * (1 + lambda_m R_CXR - lambda_t R_tool). The ablations add to
            R_format + R_acc nothing (``accuracy``), lambda_m R_CXR (``ungated_cxr``), - lambda_t R_tool
            (``ungated_tool``), or both (``ungated``), whether the answer is right or wrong.
        lambda_m: weight of R_CXR, which lies in [0, 1].
        lambda_t: cost of one tool call.
        max_calls: K_max, how many calls a question may have; R_tool counts refused calls too, up to this number.
        format_weight: R_format of a well-formed trajectory; the paper gives no number.
        table: which measurement bears on which question, and what agrees with it: ``default``, or the path of a file in
            the form of ``reward_plugins/measurements.yaml``.

    Raises:
        ValueError: a value outside its range, or numbers that let a wrong answer outrank a right one (see
            :func:`margin`). That is refused in every mode, so that modes are compared with the same numbers.
    """

    mode: Mode = "gated"
    lambda_m: float = 0.5
    lambda_t: float = 0.05
    max_calls: int = 5
    format_weight: float = 0.2
    table: str = "default"

    def __post_init__(self) -> None:
        check_choices(self, {"mode": get_args(Mode)})
        check_numbers(self, dict.fromkeys(("lambda_m", "lambda_t", "max_calls", "format_weight"), float("inf")))
        if not isinstance(self.max_calls, int):
            raise ValueError(f"max_calls={self.max_calls!r}: use a whole number")
        margin(self.lambda_t, self.max_calls, self.format_weight)

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> AccuracyGateOptions:
        """Options from ``key=value`` texts of a command line.

        Raises:
            ValueError: an unknown option, or a value outside its range.
        """
        return options_from_text(cls, texts)
