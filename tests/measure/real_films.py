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
"""Gate and measurements on the real films of the sample package; `docs/measure.md` holds the table that this prints.

    python -m tests.measure.real_films SHARED_DATA [PICTURES]

views/: 59 films with their projection. V7 Labs drew the lungs of 39 frontal ones, both in one mask. One film has a
labelled box for each side; the other 38, all PA films among them, have none, so their sides are not known.
organ_masks/: 30 films with lungs and cardiomediastinum; the source calls all of them PA, which is not believed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage

from verl_cxr.film import Film, read_film
from verl_cxr.measure import Evidence, Outlines, Thresholds, ViewReading, certain, judge, load_thresholds
from verl_cxr.measure.drawing import draw_evidence
from verl_cxr.measure.masks import LUNGS
from verl_cxr.measure.masks.precomputed import PrecomputedMasks, outlines_of
from verl_cxr.measure.view import view_name

__all__ = ["judged", "organ_films", "view_films"]

Case = tuple[str, Film, Outlines, ViewReading]


def view_films(data: Path) -> Iterator[Case]:
    """(view as labelled, film, masks, view) of every film of views/."""
    for record in json.loads((data / "views" / "annotations.json").read_text()):
        film = read_film(data / record["image"])
        reading = certain(str(view_name(record["view"])))
        yield record["view"], film, _v7_outlines(data, record, film), reading


def organ_films(data: Path, *, view: str | None) -> Iterator[Case]:
    """(view, film, masks, view) of every film of organ_masks/, their view being what the caller says."""
    backend = PrecomputedMasks(data / "organ_masks" / "masks")
    for path in sorted((data / "organ_masks" / "images").glob("*.jpg")):
        film = read_film(path)
        yield view or "not known", film, backend.outline(film), certain(view) if view else ViewReading()


def judged(cases: Iterator[Case], thresholds: Thresholds) -> Iterator[tuple[str, Film, Outlines, Evidence]]:
    """The evidence of every case."""
    for label, film, outlines, reading in cases:
        yield label, film, outlines, judge(film, outlines, reading, thresholds, view_backend="metadata")


def _v7_outlines(data: Path, record: dict, film: Film) -> Outlines:  # type: ignore[type-arg]
    height, width = film.pixels.shape
    masks = {}
    if record["lung_mask"]:
        both = np.asarray(Image.open(data / record["lung_mask"])) != 0
        if not record["lung_boxes"]:
            return outlines_of({LUNGS: both}, width=width, height=height)
        labels, count = ndimage.label(both)
        centers = ndimage.center_of_mass(both, labels, range(1, count + 1))
        for box in record["lung_boxes"]:
            x1, y1, x2, y2 = box["box_xyxy"]
            inside = [at + 1 for at, (y, x) in enumerate(centers) if x1 <= x <= x2 and y1 <= y <= y2]
            masks[box["name"].lower()] = np.isin(labels, inside)
    return Outlines(masks, width, height, "precomputed")


def _table(title: str, cases: Iterator[Case], thresholds: Thresholds, pictures: Path | None) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    films: Counter[str] = Counter()
    values: dict[str, list[float]] = {}
    for label, film, outlines, evidence in judged(cases, thresholds):
        films[label] += 1
        for measurement in evidence.exposed:
            counts[label, f"{measurement.name} exposed"] += 1
            values.setdefault(f"{label} {measurement.name}", []).append(measurement.value)
        for reason in evidence.decision.reasons:
            counts[label, f"film withheld: {reason.value}"] += 1
        for name, reasons in evidence.decision.withheld.items():
            if evidence.decision.open:
                for reason in reasons:
                    counts[label, f"{name} withheld: {reason.value}"] += 1
        if evidence.decision.open:
            counts[label, "gate open"] += 1
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
            picture = draw_evidence(film.pixels, outlines, evidence, title=film.path.stem)
            picture.save(pictures / f"{film.path.stem}.measured.png")
    labels = sorted(films)
    print(f"\n{title}\n| | {' | '.join(labels)} |\n|---|{'---|' * len(labels)}")
    print(f"| films | {' | '.join(str(films[label]) for label in labels)} |")
    for row in sorted({row for _, row in counts}):
        print(f"| {row} | {' | '.join(str(counts[label, row]) for label in labels)} |")
    for name, numbers in sorted(values.items()):
        low, middle, high = np.percentile(numbers, [0, 50, 100])
        print(f"{name}: median {middle:.3f}, {low:.3f} to {high:.3f}, n={len(numbers)}")


if __name__ == "__main__":
    root, folder = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
    _table("views", view_films(root), load_thresholds("retrocardiac"), None)
    assumed = load_thresholds("retrocardiac", {"assume_sides": True})
    _table("views, lungs told apart by their place", view_films(root), assumed, folder)
    _table("organ_masks, view not known", organ_films(root, view=None), load_thresholds("retrocardiac"), None)
    _table(
        "organ_masks, if all were PA, ratio from cardiomediastinum",
        organ_films(root, view="PA"),
        load_thresholds("retrocardiac", {"cardiomediastinum": True}),
        folder,
    )
