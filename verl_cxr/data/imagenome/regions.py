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
"""The region sets of Chest ImaGenome 1.0.0, from the vocabulary: 36 have a box, 38 are described, 29 are both."""

from __future__ import annotations

from functools import cache

from verl_cxr.anatomy import load_vocabulary

__all__ = ["REGION_SETS", "region_set"]

REGION_SETS = ("29", "36", "38")


@cache
def region_set(name: str) -> tuple[str, ...]:
    """The regions of a set, in the vocabulary's order.

    Args:
        name: `29`, boxed and described; `36`, boxed; `38`, described, 9 of them without a box, as the paper counts.

    Raises:
        ValueError: no such set.
    """
    if name not in REGION_SETS:
        raise ValueError(f"unknown region set {name!r}: use one of {', '.join(REGION_SETS)}")
    regions = load_vocabulary().regions.values()
    if name == "36":
        return tuple(region.name for region in regions if region.boxed)
    return tuple(region.name for region in regions if region.described and (region.boxed or name == "38"))
