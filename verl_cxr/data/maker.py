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
"""How a record becomes rows. The builder knows no record type; one of these tells it all it needs.

`StudyRows` does it for grounded studies. Another record, such as a question, gets training files by a `RowMaker` of its
own, handed to `verl_cxr.data.build.build_rows` with `Adapter(name, summary, reader)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson
import pyarrow as pa

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.audit import leak_guard
from verl_cxr.data.facets import facets
from verl_cxr.data.films import FilmJob, film_name, fitted
from verl_cxr.data.parquet import row_schema
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions, UnusableStudyError, check_film, make_row, split_name
from verl_cxr.data.sample import share
from verl_cxr.film import FilmHead
from verl_cxr.geometry import pixel_frame
from verl_cxr.study import Study

__all__ = ["Draft", "Origin", "RowMaker", "StudyRows", "require_share"]


def require_share(fraction: float) -> None:
    """Check a share of the patients to hold out.

    Raises:
        ValueError: it is not at least 0 and below 1.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"a share of the patients is at least 0 and below 1, not {fraction}")


class Draft(NamedTuple):
    """A row, but for its index, and the films that it needs written or embedded (None: the file serves as it is)."""

    stage: str
    split: str
    row: dict[str, Any]
    films: Sequence[FilmJob | None]


class Origin(NamedTuple):
    """What the card counts of a record; None where it does not say."""

    source: str | None
    licence: str | None
    view: str | None


class RowMaker(Protocol):
    """Makes the rows of one record type. It travels to worker processes.

    A row has an `extra_info` with `index`, which the build fills in, `id` and `split`, and with embedded films an
    `images` whose entries have `bytes`, which the build fills in as well.
    """

    @property
    def stages(self) -> Sequence[str]:
        """The kinds of file, which are the first part of their names."""

    @property
    def records_name(self) -> str:
        """Name of the JSONL file of the records themselves, if it is written."""

    def schema(self, stage: str) -> pa.Schema:
        """The columns of a stage's rows."""

    def settings(self) -> dict[str, Any]:
        """What the rows depend on, for the card, and to tell whether an interrupted build can go on. JSON values."""

    def record_id(self, record: Any) -> str:
        """The unique id of a record, which is also `extra_info.id` of its rows."""

    def origin(self, record: Any) -> Origin:
        """What the card counts."""

    def facets(self, record: Any, names: Sequence[str]) -> Sequence[Sequence[str]]:
        """The record's values under each name of a stratified sample."""

    def line(self, record: Any, folder: Path) -> bytes:
        """The record as a line of JSON for a file in `folder`."""

    def drafts(self, record: Any, context: BuildContext) -> list[Draft]:
        """The rows of a record, at most one a stage; what it is not fit for is counted in `context.funnel`."""


@dataclass(frozen=True, slots=True)
class StudyRows:
    """Rows of grounded studies.

    Attributes:
        chosen: the stages to make rows for.
        options: how rows are written.
        lateral: keep lateral films; else they are dropped and counted, as the paper does.
        max_side: longest side of a film in pixels; a longer one is scaled down, and its boxes with it.
        films: folder for films that are written again: scaled ones, and those that verl could not open as they are.
        decode: find films whose pixels are damaged too. Scaled films are decoded in any case.
        validate_fraction: share of the training patients that become the split `validate`, drawn with `seed`. A study
            that names no patient counts as a patient of its own.
        guard: sets that one evaluates on, as `verl_cxr.data.audit` reads them: no film and no patient of theirs, and no
            copy of a film, gets into a training file.
    """

    chosen: Sequence[Stage]
    options: RowOptions
    films: Path
    lateral: bool = False
    max_side: int | None = None
    decode: bool = False
    validate_fraction: float = 0.0
    seed: int = 0
    guard: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        require_share(self.validate_fraction)

    @property
    def stages(self) -> list[str]:
        """See `RowMaker`."""
        return [stage.value for stage in self.chosen]

    @property
    def records_name(self) -> str:
        """See `RowMaker`."""
        return "studies.jsonl"

    def schema(self, stage: str) -> pa.Schema:
        """See `RowMaker`."""
        return row_schema(Stage(stage), embed_images=self.options.embed_images)

    def settings(self) -> dict[str, Any]:
        """See `RowMaker`."""
        options, processed = self.options, self.options.processed_size
        return {
            "stages": self.stages,
            "lateral": self.lateral,
            "box_frame": options.trace.frame,
            "processor": None if processed is None else getattr(processed, "folder", repr(processed)),
            "data_source": options.data_source,
            "embed_images": options.embed_images,
            "image_max_side": self.max_side,
            "decode_films": self.decode,
            "validate_fraction": self.validate_fraction,
            "guard": [str(path) for path in self.guard],
        }

    def record_id(self, record: Study) -> str:
        """See `RowMaker`."""
        return record.id

    def origin(self, record: Study) -> Origin:
        """See `RowMaker`."""
        return Origin(record.source, record.licence, record.view)

    def facets(self, record: Study, names: Sequence[str]) -> list[tuple[str, ...]]:
        """See `RowMaker`."""
        return facets(record, names)

    def line(self, record: Study, folder: Path) -> bytes:
        """See `RowMaker`. A film inside the folder is named relative to it."""
        inside = record.image is not None and record.image.is_relative_to(folder)
        return orjson.dumps(record.to_dict(root=folder if inside else None), option=orjson.OPT_APPEND_NEWLINE)

    def drafts(self, record: Study, context: BuildContext) -> list[Draft]:
        """See `RowMaker`."""
        funnel = context.funnel
        if record.view == "LATERAL" and not self.lateral:
            funnel.drop("lateral view")
            return []
        try:
            film = check_film(record, decode=self.decode)
        except UnusableStudyError as reason:
            funnel.drop(str(reason))
            context.problem(record.image or record.id, None, "image", f"{reason}: study {record.id}")
            return []
        study, job = self._placed(self._dealt(record), film)
        split, drafts = split_name(study), list[Draft]()
        if self.guard and split == "train" and (leak := leak_guard(self.guard).reason(record)):
            funnel.drop(leak)
            return drafts
        image = {"bytes": None} if self.options.embed_images else None
        for stage in self.chosen:
            try:
                row = make_row(stage, study, 0, self.options, image=image)
            except UnusableStudyError as reason:
                funnel.drop(str(reason), stage=stage.value)
                continue
            drafts.append(Draft(stage.value, split, row, [job]))
        return drafts

    def _dealt(self, study: Study) -> Study:
        """The study in the split that it falls into."""
        if not self.validate_fraction or split_name(study) != "train":
            return study
        drawn = share(self.seed, study.patient or study.id, purpose="validate")
        return replace(study, split="validate") if drawn < self.validate_fraction else study

    def _placed(self, study: Study, film: FilmHead) -> tuple[Study, FilmJob | None]:
        """The study as its film will be, and what has to be done for that."""
        size = fitted(film.width, film.height, self.max_side)
        as_it_is = film.plain and size == film.size
        embed = self.options.embed_images
        if as_it_is and not embed:
            return study, None
        target = None if embed else self.films / film_name(study.id, study.image or "")
        job = FilmJob(str(study.image), str(target) if target else None, *((None, None) if as_it_is else size))
        if size != film.size:
            frame = pixel_frame(*size)
            regions = tuple(
                region if region.box is None else replace(region, box=region.box.to(frame).clip())
                for region in study.regions
            )
            study = replace(study, width=size[0], height=size[1], regions=regions)
        return study if target is None else replace(study, image=target), job
