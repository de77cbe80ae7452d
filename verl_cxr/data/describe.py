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
"""What is in a data set: rows by file, and studies by split, view, region and label.

A set is a folder that `verl-cxr data build` made, one of its parquet files, or grounded studies as JSONL. Rows for
reinforcement learning hold the whole study. Those of the cold start hold its regions in their trace, and those of SFT
its report only, so a folder is described by the best of its stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from verl_cxr.data.facets import FACETS
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import split_name
from verl_cxr.data.sample import priority
from verl_cxr.files import RecordError
from verl_cxr.film import FilmError, film_size, open_image
from verl_cxr.geometry import Frame, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study, View, read_studies
from verl_cxr.trace import Trace, TraceFormat, parse

__all__ = ["Description", "Shown", "describe", "files_of"]

_STAGES = (Stage.GRPO, Stage.COLD_START, Stage.SFT)


@dataclass(frozen=True, slots=True)
class Shown:
    """A study of a set, and its film: a path, or the bytes that a row holds."""

    study: Study
    film: Path | bytes | None

    def open(self) -> Image.Image:
        """The film as 8-bit RGB.

        Raises:
            OSError: it is missing or unreadable.
        """
        if self.film is None:
            raise FileNotFoundError("the row names no film")
        if not isinstance(self.film, bytes):
            try:
                return open_image(self.film).convert("RGB")
            except FilmError as error:
                raise OSError(str(error)) from error
        with Image.open(BytesIO(self.film)) as image:
            return image.convert("RGB")


@dataclass(slots=True)
class Description:
    """Counts of a set.

    Attributes:
        files: rows by parquet file; empty for JSONL.
        source: which files or stage the counts are of.
        counts: studies by facet, value and split. A study counts once for each of its regions and labels.
        splits: studies by split.
        without_patient: studies that name no patient.
        drawn: films for a contact sheet, drawn with the seed.
    """

    source: str
    files: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    splits: Counter[str] = field(default_factory=Counter)
    without_patient: int = 0
    drawn: list[Shown] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON values, the most frequent first."""
        facets = {facet: {value: dict(splits) for value, splits in self.ordered(facet)} for facet in self.counts}
        return {
            "source": self.source,
            "files": self.files,
            "splits": dict(self.splits),
            "without_patient": self.without_patient,
            **facets,
        }

    def ordered(self, facet: str) -> list[tuple[str, Counter[str]]]:
        """The values of a facet with their counts by split, the most frequent first."""
        return sorted(self.counts[facet].items(), key=lambda item: (-item[1].total(), item[0]))


def files_of(path: Path) -> dict[str, int]:
    """Rows by name of the parquet files of a built folder."""
    return {file.name: pq.read_metadata(file).num_rows for file in sorted(path.glob("*.parquet"))}


def describe(
    path: Path,
    *,
    facets: Sequence[str] = tuple(FACETS),
    films: int = 0,
    seed: int = 0,
    stage: Stage | None = None,
    progress: Callable[[int], None] = lambda more: None,
) -> Description:
    """Count a set.

    Args:
        facets: what to count by, of `verl_cxr.data.facets.FACETS`.
        films: how many studies to draw for a contact sheet.
        stage: of a folder; None takes the one whose rows say most.

    Raises:
        FileNotFoundError: there is nothing of that stage.
        RecordError: a row is not what it should be.
    """
    found = Description(source=path.name)
    if path.is_dir():
        found.files = files_of(path)
        found.source, rows = _stage_of(path, found.files, stage)
    elif path.suffix == ".parquet":
        found.files = {path.name: pq.read_metadata(path).num_rows}
        rows = _rows(path)
    else:
        rows = (Shown(study, study.image) for study in read_studies(path))
    found.counts = {facet: {} for facet in facets}
    heap: list[tuple[int, int, Shown]] = []
    for number, shown in enumerate(rows):
        study = shown.study
        split = split_name(study)
        found.splits[split] += 1
        found.without_patient += study.patient is None
        for facet in facets:
            for value in FACETS[facet](study):
                found.counts[facet].setdefault(value, Counter())[split] += 1
        if films:
            item = (-priority(seed, study.id, purpose="sheet"), -number, shown)
            heappush(heap, item) if len(heap) < films else heappushpop(heap, item)
        progress(1)
    found.drawn = [shown for *_, shown in sorted(heap, key=lambda item: -item[1])]
    return found


def _stage_of(folder: Path, files: Mapping[str, int], stage: Stage | None) -> tuple[str, Iterator[Shown]]:
    for candidate in _STAGES if stage is None else (stage,):
        if names := [name for name in files if name.startswith(f"{candidate.value}_")]:
            return f"{candidate.value} rows", (shown for name in names for shown in _rows(folder / name))
    wanted = "row" if stage is None else f"{stage.value} row"
    raise FileNotFoundError(f"{folder} holds no {wanted}: name a folder that `verl-cxr data build` made")


def _rows(path: Path) -> Iterator[Shown]:
    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=64):
                for row in batch.to_pylist():
                    number += 1
                    try:
                        yield _shown(row)
                    except RecordError as error:
                        raise error.at(path, number) from None
                    except (KeyError, TypeError, IndexError, AttributeError, orjson.JSONDecodeError) as error:
                        raise RecordError("", f"not a row of a build: {error!r}", file=str(path), row=number) from None
    except pa.ArrowInvalid as error:
        raise RecordError("", f"not a parquet file: {error}", file=str(path)) from None


def _shown(row: Mapping[str, Any]) -> Shown:
    image = row["images"][0]
    film: Path | bytes = image["bytes"] if "bytes" in image else Path(image["image"])
    if "reward_model" in row:
        study = Study.from_dict(orjson.loads(row["reward_model"]["ground_truth"]), root=Path())
        return Shown(study, film)
    return Shown(_study_of_messages(row, film), film)


def _study_of_messages(row: Mapping[str, Any], film: Path | bytes) -> Study:
    """What the messages of a supervised row tell of its study: the report, and the regions of a trace."""
    info, answer = row["extra_info"], row["messages"][-1]["content"]
    width, height = _size(film)
    regions: tuple[RegionFinding, ...] = ()
    report = answer
    if info["stage"] == Stage.COLD_START.value:
        processed = info["processed_size"]
        frame = TraceFormat(info["box_frame"]).frame_for(width, height, tuple(processed) if processed else None)
        trace = parse(answer, frame)
        if isinstance(trace, Trace):
            regions, report = _in_pixels(trace.regions, pixel_frame(width, height)), trace.report
    view: View | None = info.get("view")
    return Study(
        info["id"],
        film if isinstance(film, Path) else None,
        width,
        height,
        view,
        info["split"],
        Report(findings=report),
        regions,
        patient=info.get("patient"),
    )


def _size(film: Path | bytes) -> tuple[int, int]:
    try:
        if not isinstance(film, bytes):
            return film_size(film)
        with Image.open(BytesIO(film)) as image:
            return image.size
    except (OSError, FilmError):
        return 1, 1  # its boxes are counted, and cannot be drawn


def _in_pixels(regions: Sequence[RegionFinding], frame: Frame) -> tuple[RegionFinding, ...]:
    return tuple(
        RegionFinding(region.name, region.box.to(frame) if region.box else None, region.finding) for region in regions
    )
