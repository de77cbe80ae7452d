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
"""Reads the arguments of a call; a wrong one is refused with what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from tool_plugins.case import CaseFilm, coordinates
from tool_plugins.refusal import Refusal, RefusedError
from verl_cxr.anatomy import load_vocabulary
from verl_cxr.geometry import Box, is_number, pixel_frame
from verl_cxr.measure import MaskBackend

__all__ = ["read_box", "read_region", "read_text"]

_LONGEST = 200  # characters of a name that are quoted


def read_text(arguments: Mapping[str, Any], key: str) -> str:
    """A text argument, stripped.

    Raises:
        RefusedError: it is missing, empty, or no text.
    """
    value = arguments.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RefusedError(Refusal.BAD_ARGUMENTS, f'Give "{key}" as text.')
    return value.strip()[:_LONGEST]


def read_box(arguments: Mapping[str, Any], film: CaseFilm) -> Box:
    """The argument ``box``, in pixels of the film, clipped to it.

    Raises:
        RefusedError: it is no box, is empty, or lies outside the film.
    """
    numbers, frame = arguments.get("box"), film.frame()
    if not isinstance(numbers, list) or len(numbers) != 4 or not all(map(is_number, numbers)):
        raise RefusedError(Refusal.BAD_ARGUMENTS, f'Give "box" as [x1, y1, x2, y2], in {coordinates(frame)}.')
    x1, y1, x2, y2 = map(float, numbers)
    box = Box(x1, y1, x2, y2, frame)
    if box.is_degenerate:
        raise RefusedError(Refusal.EMPTY_BOX, "The box is empty: x2 must be larger than x1, and y2 than y1.")
    clipped = box.clip()
    if clipped.is_degenerate:
        raise RefusedError(Refusal.OUTSIDE, f"The box lies outside the image. Boxes are in {coordinates(frame)}.")
    height, width = film.film().pixels.shape
    return clipped.to(pixel_frame(width, height))


def read_region(arguments: Mapping[str, Any], film: CaseFilm, masks: MaskBackend) -> tuple[str, Box]:
    """The argument ``region``: its canonical name, and its bounds in pixels of the film.

    Raises:
        RefusedError: no region of that name is outlined on this film.
        MaskError: the backend failed.
    """
    asked = read_text(arguments, "region")
    outlines = masks.outline(film.film())
    name = load_vocabulary().canonical(asked)
    box = outlines.box(name)
    if box is None:
        known = sorted(held for held in outlines.masks if outlines.box(held))
        near = difflib.get_close_matches(name, known, n=1)
        advice = f"Did you mean {near[0]}? " if near else ""
        listed = ", ".join(known[:40]) if known else "none"
        raise RefusedError(Refusal.UNKNOWN_REGION, f"{asked!r} is not outlined. {advice}Outlined are: {listed}.")
    return name, box
