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
"""Run-length encoded masks as COCO writes them: column by column, beginning with a run of background.

``counts`` is a list of run lengths, or text in which COCO packs them (5 bits a character, differences from the run
before the last).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_cxr.measure.shape import Mask

__all__ = ["decode_rle", "encode_rle"]

_CHARACTER, _MORE, _SIGN, _FIVE = 48, 0x20, 0x10, 0x1F


def decode_rle(counts: str | Sequence[int], height: int, width: int) -> Mask:
    """The mask, bool [height, width].

    Raises:
        ValueError: the runs do not fill the mask exactly, or the text is no packed run.
    """
    runs = _unpacked(counts) if isinstance(counts, str) else list(counts)
    if any(type(run) is not int or run < 0 for run in runs):
        raise ValueError("run lengths must be whole numbers, 0 or more")
    if sum(runs) != height * width:
        raise ValueError(f"runs cover {sum(runs)} pixels of {height} x {width} = {height * width}")
    values = np.zeros(len(runs), dtype=bool)
    values[1::2] = True
    return np.repeat(values, runs).reshape((height, width), order="F")


def encode_rle(mask: Mask) -> list[int]:
    """The run lengths of a mask."""
    flat = np.concatenate([[False], mask.ravel(order="F")])
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    return [int(run) for run in np.diff(np.concatenate([[0], changes, [mask.size]]))]


def _unpacked(text: str) -> list[int]:
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - _CHARACTER
        if not 0 <= bits < 2 * _MORE:
            raise ValueError(f"{character!r} is no packed run length")
        value |= (bits & _FIVE) << shift
        shift += 5
        if bits & _MORE:
            continue
        if bits & _SIGN:
            value -= 1 << shift
        runs.append(value + runs[-2] if len(runs) > 2 else value)
        value = shift = 0
    if shift:
        raise ValueError("the packed run lengths are cut short")
    return runs
