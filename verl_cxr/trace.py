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
"""What the model writes: regions with boxes and findings inside ``<think>``, the report inside ``<answer>``.

The form, on one line (region-grounded GRPO, "Reasoning trace")::

    <think>[{"region": "left lung", "box": [553, 2, 963, 946], "finding": "Consolidation."}]</think><answer>...</answer>

:func:`parse` is the paper's format gate: the four tags complete, in order, once; every region that is named has a box.
It is lenient about white space, code fences, key order and further keys. It refuses text outside the tags, which
nothing would verify. It lets an empty list pass, because a list that names no region lacks no box; whether that earns
anything is for the reward to say. It never raises, and its time is linear in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from json.encoder import encode_basestring as _quoted  # what json.dumps(text, ensure_ascii=False) calls
from typing import Any, Literal, get_args

import orjson

from verl_cxr.anatomy import Vocabulary, load_vocabulary
from verl_cxr.geometry import RELATIVE_1000, Box, Frame, pixel_frame
from verl_cxr.study import RegionFinding, Study

__all__ = ["FormatReason", "Rejection", "Trace", "TraceFormat", "TraceFrame", "parse", "reference_trace", "render"]

TraceFrame = Literal["relative_1000", "pixel_original", "pixel_processed"]
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_NUMBER_TYPES = frozenset({int, float})
_FAR = 1e200  # beyond it, a coordinate may leave the range of numbers when it is scaled
_INTEGER_FRAMES = ("relative_1000", "pixel")


class FormatReason(str, Enum):
    """Why the format gate refused a response."""

    MISSING_TAG = "missing_tag"
    REPEATED_TAG = "repeated_tag"
    TAG_ORDER = "tag_order"
    TEXT_OUTSIDE_TAGS = "text_outside_tags"
    NOT_JSON = "not_json"
    NOT_A_LIST = "not_a_list"
    NOT_A_REGION = "not_a_region"
    """An item of the list is not an object with a non-empty text ``region``."""
    MISSING_BOX = "missing_box"
    BAD_BOX = "bad_box"
    """A box is not a list of four finite numbers."""
    DEGENERATE_BOX = "degenerate_box"
    """A box has no area; only a reward that is told to refuses it."""
    BAD_FINDING = "bad_finding"
    """A finding is present and not text."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A response that does not pass the format gate."""

    reason: FormatReason
    detail: str


@dataclass(frozen=True, slots=True)
class Trace:
    """A response in parts: the regions in the order written, and the report."""

    regions: tuple[RegionFinding, ...]
    report: str


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """How boxes are written in the text.

    ``relative_1000`` (default): integers 0-1000 along either side of the image, Qwen3-VL's own grounding convention.
    ``pixel_original``: pixels of the film as the study records it.
    ``pixel_processed``: pixels of the image after the processor resized it.
    """

    frame: TraceFrame = "relative_1000"

    def __post_init__(self) -> None:
        if self.frame not in get_args(TraceFrame):
            raise ValueError(f"unknown trace frame {self.frame!r}: use one of {', '.join(get_args(TraceFrame))}")

    def frame_for(self, study_width: int, study_height: int, processed_size: tuple[int, int] | None = None) -> Frame:
        """The frame of the boxes in a response about one study.

        Args:
            study_width, study_height: the film in pixels.
            processed_size: (width, height) of the image that the model saw, in pixels; needed by ``pixel_processed``.

        Raises:
            ValueError: ``pixel_processed`` without ``processed_size``.
        """
        if self.frame == "relative_1000":
            return RELATIVE_1000
        if self.frame == "pixel_original":
            return pixel_frame(study_width, study_height)
        if processed_size is None:
            raise ValueError("frame pixel_processed needs the (width, height) of the processed image")
        return pixel_frame(*processed_size)


def reference_trace(study: Study, vocabulary: Vocabulary | None = None) -> Trace:
    """The trace that a perfect model would write about a study: each located region once, and the report.

    Rows about one region (by its canonical name) become one: the box around all of theirs, their findings joined. A
    region without a box is left out, since the gate demands one.

    Args:
        study: the annotation.
        vocabulary: default :func:`~verl_cxr.anatomy.load_vocabulary`'s.
    """
    canonical = (vocabulary or load_vocabulary()).canonical
    rows: dict[str, list[RegionFinding]] = {}
    for region in study.regions:
        rows.setdefault(canonical(region.name), []).append(region)
    merged = [same[0] if len(same) == 1 else _merged(same) for same in rows.values()]
    return Trace(tuple(region for region in merged if region.box is not None), study.report.text)


def render(trace: Trace, frame: Frame) -> str:
    """Write a trace as the model should, with boxes converted into ``frame``: integers in a pixel or 0-1000 frame.

    Raises:
        ValueError: a region has no box, or a text contains one of the tags: the gate would refuse the result.
    """
    regions = [
        f'{{"region": {_quoted(region.name)}, "box": {_numbers(region, frame)}, "finding": {_quoted(region.finding)}}}'
        for region in trace.regions
    ]
    thoughts, report = f"[{', '.join(regions)}]", trace.report.strip()
    for tag in _TAGS:
        if tag in thoughts or tag in report:
            raise ValueError(f"cannot write a trace whose text contains {tag}")
    return f"<think>{thoughts}</think><answer>{report}</answer>"


def parse(text: str, frame: Frame) -> Trace | Rejection:
    """Take a response apart.

    Args:
        text: the response, whatever it holds. Special tokens are gone (verl strips them).
        frame: the frame in which the boxes of the text are to be read. They are not clipped.

    Returns:
        The trace, or why it is none.
    """
    text = _unfenced(text)
    places = []
    for tag in _TAGS:
        place = text.find(tag)
        if place < 0:
            return Rejection(FormatReason.MISSING_TAG, f"no {tag}")
        if text.find(tag, place + 1) >= 0:
            return Rejection(FormatReason.REPEATED_TAG, f"{tag} more than once")
        places.append(place)
    if places != sorted(places):
        return Rejection(FormatReason.TAG_ORDER, "tags are not in the order " + " ".join(_TAGS))
    think, end_think, answer, end_answer = places
    between = text[end_think + len("</think>") : answer]
    if think > 0 or end_answer + len("</answer>") < len(text) or between.strip():
        return Rejection(FormatReason.TEXT_OUTSIDE_TAGS, "only white space may stand outside the tags")
    regions = _regions(_unfenced(text[think + len("<think>") : end_think]), frame)
    if isinstance(regions, Rejection):
        return regions
    return Trace(regions, text[answer + len("<answer>") : end_answer].strip())


def _regions(text: str, frame: Frame) -> tuple[RegionFinding, ...] | Rejection:
    try:
        items = orjson.loads(text)  # refuses NaN, Infinity and deep nesting with the same error as any other non-JSON
    except orjson.JSONDecodeError as error:
        return Rejection(FormatReason.NOT_JSON, str(error)[:200])
    if not isinstance(items, list):
        return Rejection(FormatReason.NOT_A_LIST, f"the reasoning is a JSON {type(items).__name__}")
    regions = []
    for number, item in enumerate(items):
        name = item.get("region") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name.strip():
            return Rejection(FormatReason.NOT_A_REGION, f"item {number} names no region")
        box = item.get("box")
        if box is None:
            return Rejection(FormatReason.MISSING_BOX, f"item {number} has no box")
        # orjson reads no number that is not finite: the types are all there is to check
        if not isinstance(box, list) or len(box) != 4 or not _NUMBER_TYPES.issuperset(map(type, box)):
            return Rejection(FormatReason.BAD_BOX, f"the box of item {number} is not a list of 4 finite numbers")
        finding = item.get("finding")
        if finding is not None and not isinstance(finding, str):
            return Rejection(FormatReason.BAD_FINDING, f"the finding of item {number} is not text")
        x1, y1, x2, y2 = box
        regions.append(RegionFinding(name, Box(float(x1), float(y1), float(x2), float(y2), frame), finding or ""))
    return tuple(regions)


def _merged(regions: Sequence[RegionFinding]) -> RegionFinding:
    boxes = [region.box for region in regions if region.box is not None]
    findings = dict.fromkeys(region.finding for region in regions if region.finding)
    return RegionFinding(regions[0].name, reduce(Box.union, boxes) if boxes else None, " ".join(findings))


def _unfenced(text: str) -> str:
    """The text without white space and one Markdown code fence around it."""
    text = text.strip()
    if len(text) >= 6 and text.startswith("```") and text.endswith("```"):
        text = text[3:-3].strip()
        if text[:4].lower() == "json":
            text = text[4:].lstrip()
    return text


def _numbers(region: RegionFinding, frame: Frame) -> list[Any]:
    """The corners of a region's box in a frame, as they are written. A list of numbers prints as JSON does."""
    box = region.box
    if box is None:
        raise ValueError(f"region {region.name!r} has no box to write")
    if frame.name in _INTEGER_FRAMES and -_FAR < box.x1 < box.x2 < _FAR and -_FAR < box.y1 < box.y2 < _FAR:
        # as Box.to and Box.rounded, without the boxes between: this runs once a region of every row that is built
        sx, sy = frame.width / box.frame.width, frame.height / box.frame.height
        nearest = [round(box.x1 * sx), round(box.y1 * sy), round(box.x2 * sx), round(box.y2 * sy)]
        if nearest[0] < nearest[2] and nearest[1] < nearest[3]:
            return nearest
    box = box.to(frame)
    if frame.name in _INTEGER_FRAMES:
        box = box.rounded()
        return [int(number) for number in (box.x1, box.y1, box.x2, box.y2)]
    return [round(number, 4) for number in (box.x1, box.y1, box.x2, box.y2)]
