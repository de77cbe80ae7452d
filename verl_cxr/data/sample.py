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
"""Seeded sub-samples that depend on the seed and the ids alone, not on the order of the studies or on the workers.

Every row has a priority, a hash of the seed and its id. A sample is the rows of least priority, so a smaller sample is
part of a larger one of the same seed. A stratified sample gives each stratum its share of the rows, rounded so that the
total is exact (largest remainders), and takes the rows of least priority of each.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Sample", "choose", "priority", "share", "strata"]

_RANGE = 1 << 64


def priority(seed: int, key: str, *, purpose: str = "sample") -> int:
    """64 bits that look random, and are the same for the same seed, key and purpose on every machine."""
    digest = hashlib.blake2b(f"{purpose}\0{seed}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def share(seed: int, key: str, *, purpose: str) -> float:
    """The same as a number in [0, 1)."""
    return priority(seed, key, purpose=purpose) / _RANGE


@dataclass(frozen=True, slots=True)
class Sample:
    """How many of the training rows of each stage to keep; every other split stays whole.

    Attributes:
        limit: rows of every stage, or by stage; a stage without a limit stays whole.
        fraction: share of the rows, in (0, 1], instead of a limit.
        stratify: facets whose proportions the sample keeps (`verl_cxr.data.facets`).
    """

    limit: int | Mapping[str, int] | None = None
    fraction: float | None = None
    stratify: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.limit is not None and self.fraction is not None:
            raise ValueError("give a limit or a fraction, not both")
        limits = self.limit.values() if isinstance(self.limit, Mapping) else [self.limit]
        if any(limit is not None and limit < 1 for limit in limits):
            raise ValueError("a limit is at least 1 row")
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise ValueError(
                f"a fraction is above 0 and at most 1, or above 0 % and at most 100 %, not {self.fraction}"
            )
        if self.stratify and not self:
            raise ValueError("there is nothing to stratify without a limit or a fraction")

    def __bool__(self) -> bool:
        return self.limit is not None or self.fraction is not None

    def count(self, stage: str, rows: int) -> int:
        """How many of so many rows of a stage to keep; a half is rounded to the even number."""
        if self.fraction is not None:
            return round(self.fraction * rows)
        limit = self.limit.get(stage) if isinstance(self.limit, Mapping) else self.limit
        return rows if limit is None else min(limit, rows)


def strata(facets: Sequence[Sequence[Sequence[str]]]) -> list[Hashable]:
    """One stratum a row, of a row's values under each facet.

    Where a row has several values of a facet, such as its labels, its rarest stands for it, as in iterative
    stratification (Sechidis et al. 2011): the common ones have enough rows anyway.
    """
    if not facets:
        return []
    counts = [Counter(value for row in facets for value in row[at]) for at in range(len(facets[0]))]
    return [
        tuple(min(values, key=lambda value: (count[value], value)) for values, count in zip(row, counts, strict=True))
        for row in facets
    ]


def choose(
    priorities: npt.NDArray[np.uint64], count: int, groups: Sequence[Hashable] | None = None
) -> npt.NDArray[np.bool_]:
    """Which rows a sample keeps.

    Args:
        priorities: one a row, shape [rows].
        count: rows to keep.
        groups: the stratum of each row; None takes all rows as one.

    Returns:
        Shape [rows].
    """
    kept = np.zeros(len(priorities), dtype=np.bool_)
    if groups is None:
        kept[np.argsort(priorities, kind="stable")[:count]] = True
        return kept
    members: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    for group, quota in _quotas({group: len(rows) for group, rows in members.items()}, count).items():
        rows = np.asarray(members[group])
        kept[rows[np.argsort(priorities[rows], kind="stable")[:quota]]] = True
    return kept


def _quotas(sizes: Mapping[Hashable, int], count: int) -> dict[Hashable, int]:
    total = sum(sizes.values())
    quotas = {group: count * size // total for group, size in sizes.items()}
    remainder = {group: count * size % total for group, size in sizes.items()}
    order = sorted(sizes, key=lambda group: (-remainder[group], -sizes[group], repr(group)))
    for group in order[: count - sum(quotas.values())]:
        quotas[group] += 1
    return quotas
