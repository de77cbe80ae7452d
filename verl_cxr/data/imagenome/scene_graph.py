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
"""The regions of one film from its scene graph: where each is, and what the report says about it.

A scene graph, abridged; outer lists of an attribute entry are parallel, one item a phrase::

    {"image_id": "10cd06e9-...", "viewpoint": "AP", "patient_id": 10063856, "study_id": 56759094, ...
     "objects": [{"object_id": "10cd06e9-..._right lung", "bbox_name": "right lung", "x1": 48, ..., "original_x1": 395,
                  "original_y1": 532, "original_x2": 1255, "original_y2": 1268, ...}, ...],
     "attributes": [{"right lung": true, "bbox_name": "right lung", "attributes": [["anatomicalfinding|no|lung opacity",
                     "nlp|yes|normal"]], "phrases": ["Right lung is clear."], "phrase_IDs": ["56759094|10"],
                     "sections": ["finalreport"], ...}, ...],
     "relationships": [...]}

`x1` and its like belong to a padded frame of 224 x 224 and are not used; `original_x1` and its like are pixels of the
film. Boxes overrun the film and are clipped, those without area are dropped, a region that occurs twice gets the box
around both, and entries for regions without an object are regions without a box.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from verl_cxr.data.imagenome.sound import SoundAttribute, SoundGraph, SoundObject
from verl_cxr.files import RecordError, kind_of
from verl_cxr.geometry import Box, pixel_frame
from verl_cxr.study import RegionFinding

__all__ = ["Described", "SceneGraphError", "described_regions"]

_LAST = 1 << 30  # place of a phrase that states none
_NUMBERS = frozenset({int, float})
_OBJECT = {dict}
_CORNERS = ("original_x1", "original_y1", "original_x2", "original_y2")


class SceneGraphError(RecordError):
    """A scene graph that is not what it should be."""


@dataclass(slots=True)
class Described:
    """What came of one scene graph.

    Attributes:
        regions: in the order in which the report speaks of them; those that it does not speak of come last.
        lost: how many boxes or phrases were lost, by (unit, reason).
        problems: broken parts, as (field, what is wrong).
    """

    regions: tuple[RegionFinding, ...] = ()
    lost: dict[tuple[str, str], int] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)

    def lose(self, unit: str, reason: str, number: int = 1) -> None:
        self.lost[unit, reason] = self.lost.get((unit, reason), 0) + number


def described_regions(
    graph: Any,
    names: tuple[str, ...],
    *,
    width: int,
    height: int,
    rewrite: Callable[[str], str],
    cap: int,
    silent: bool = False,
    boxes: Iterable[tuple[str, float, float, float, float]] | None = None,
) -> Described:
    """The regions of a scene graph with their boxes and findings.

    A finding is the region's phrases, rewritten, each once, in the order of the report, at most `cap` of them.

    Args:
        graph: the parsed JSON, or the part of it that `sound_graph` decodes.
        names: the regions that are wanted.
        width, height: the film, in pixels.
        rewrite: what becomes of a phrase; an empty text drops it.
        silent: keep located regions that no phrase is about, with an empty finding.
        boxes: use these in place of the scene graph's: (name, x1, y1, x2, y2) in pixels of the film.

    Raises:
        SceneGraphError: it is no scene graph at all.
    """
    out = Described()
    order = _order(names)
    rows: Iterable[tuple[str, float, float, float, float]]
    # Most regions of most films are silent, and a box costs more than a look at its name.
    if isinstance(graph, SoundGraph):
        phrases = _sound_phrases(graph.attributes, order, rewrite, out)
        wanted = order if silent else phrases
        rows = _sound_corners(graph.objects, wanted)
    elif isinstance(graph, dict):
        objects, attributes = _rows(graph, "objects", out), _rows(graph, "attributes", out)
        phrases = _phrases(attributes, order, rewrite, out)
        wanted = order if silent else phrases
        rows = _corners(objects, wanted, out)
    else:
        raise SceneGraphError("", f"a scene graph is an object, not {kind_of(graph)}")
    if boxes is not None:
        rows = (row for row in boxes if row[0] in wanted)
    located = _clipped(rows, width, height, out)
    found = []
    for name, placed in phrases.items():
        first, finding = placed[0]
        if len(placed) > 1:
            placed.sort()
            first = placed[0][0]
            texts = list(dict.fromkeys([text for _, text in placed]))
            if len(texts) > cap:
                out.lose("phrases", "beyond the cap of a region", len(texts) - cap)
            finding = " ".join(texts[:cap])
        found.append((first, order[name], RegionFinding(name, located.get(name), finding)))
    if silent:
        rest = (name for name in located if name not in phrases)
        found += [(_LAST, order[name], RegionFinding(name, located[name], "")) for name in rest]
    found.sort(key=_reading_order)
    out.regions = tuple([row[2] for row in found])
    return out


@lru_cache(maxsize=16)
def _order(names: tuple[str, ...]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _reading_order(row: tuple[int, int, RegionFinding]) -> tuple[int, int]:
    return row[:2]


def _sound_phrases(
    attributes: Iterable[SoundAttribute], wanted: Container[str], rewrite: Callable[[str], str], out: Described
) -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    for entry in attributes:
        name, phrases = entry.bbox_name, entry.phrases
        if not phrases or name not in wanted:
            continue
        places = entry.phrase_IDs
        known = len(places)
        placed = found.get(name, [])
        for number, phrase in enumerate(phrases):
            if text := rewrite(phrase):
                placed.append((_number_behind_bar(places[number]) if number < known else _LAST, text))
            else:
                out.lose("phrases", "only about an earlier examination")
        if placed:
            found[name] = placed
    return found


def _sound_corners(
    objects: Iterable[SoundObject], wanted: Container[str]
) -> Iterator[tuple[str, float, float, float, float]]:
    for item in objects:
        if item.bbox_name in wanted:
            yield item.bbox_name, item.original_x1, item.original_y1, item.original_x2, item.original_y2


def _corners(
    objects: Iterable[dict[str, Any]], wanted: Container[str], out: Described
) -> Iterator[tuple[str, float, float, float, float]]:
    for item in objects:
        name = item.get("bbox_name")
        if not isinstance(name, str) or name not in wanted:
            continue
        x1, y1, x2, y2 = corners = [item.get(key) for key in _CORNERS]
        if _NUMBERS.issuperset(map(type, corners)):  # orjson reads no number that is not finite
            yield name, x1, y1, x2, y2  # type: ignore[misc]
        else:
            out.problems.append(("objects", f"not a box in pixels of the film: {name}, {str(corners)[:80]}"))
            out.lose("boxes", "not four numbers")


def _clipped(
    rows: Iterable[tuple[str, float, float, float, float]], width: int, height: int, out: Described
) -> dict[str, Box]:
    """The box of each region, clipped to the film."""
    located: dict[str, Box] = {}
    frame = pixel_frame(width, height)
    for name, x1, y1, x2, y2 in rows:
        box = Box(float(x1), float(y1), float(x2), float(y2), frame)
        if not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
            box = box.clip()
            if box.is_degenerate:
                out.lose("boxes", "no area on the film")
                continue
        if name in located:
            located[name] = located[name].union(box)
            out.lose("boxes", "joined with another box of the region")
        else:
            located[name] = box
    return located


def _phrases(
    attributes: Iterable[dict[str, Any]], wanted: Container[str], rewrite: Callable[[str], str], out: Described
) -> dict[str, list[tuple[int, str]]]:
    """The rewritten phrases of each wanted region that has any, with their place in the report."""
    found: dict[str, list[tuple[int, str]]] = {}
    for entry in attributes:
        name = entry.get("bbox_name")
        if not isinstance(name, str) or name not in wanted:
            continue
        phrases, ids = entry.get("phrases"), entry.get("phrase_IDs")
        if not isinstance(phrases, list):
            out.problems.append(("attributes", f"phrases are a list, not {kind_of(phrases)}: {name}"))
            continue
        places = ids if isinstance(ids, list) else []
        for phrase, place in zip_longest(phrases, places[: len(phrases)]):
            if not isinstance(phrase, str):
                out.problems.append(("attributes", f"a phrase is text, not {kind_of(phrase)}: {name}"))
            elif text := rewrite(phrase):
                found.setdefault(name, []).append((_sentence_number(place), text))
            else:
                out.lose("phrases", "only about an earlier examination")
    return found


def _sentence_number(place: object) -> int:
    """The 10 of "56759094|10"."""
    return _number_behind_bar(place) if isinstance(place, str) else _LAST


@lru_cache(maxsize=4096)  # a report's phrases come back under every region that they are about
def _number_behind_bar(place: str) -> int:
    number = place[place.rfind("|") + 1 :]
    return int(number) if number.isdecimal() and len(number) < 9 else _LAST


def _rows(graph: dict[str, Any], key: str, out: Described) -> list[dict[str, Any]]:
    rows = graph.get(key)
    if not isinstance(rows, list):
        raise SceneGraphError(key, f"must be a list, not {kind_of(rows)}")
    if set(map(type, rows)) <= _OBJECT:
        return rows
    sound = [row for row in rows if isinstance(row, dict)]
    out.problems.append((key, f"an entry is an object, not something else: {len(rows) - len(sound)} are not"))
    return sound
