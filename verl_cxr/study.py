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
"""The grounded study: one film, its report, and the regions in which each finding is seen.

Every data set, anyone's own included, enters through this record, one JSON object a line (``.jsonl``, ``.jsonl.gz``)::

    {"id": "gb_000", "image": "images/gb_000.jpg", "width": 790, "height": 631, "view": "AP", "split": "train",
     "report": {"findings": "Moderate consolidation in the left lung.", "impression": null, "notes": null},
     "regions": [{"name": "left lung", "box": [437, 1, 761, 597], "frame": "pixel_xyxy",
                  "finding": "Moderate consolidation in the left lung."}],
     "source": "https://...", "licence": "CC BY-SA"}

``id``, ``width``, ``height`` and ``regions`` are required; anything else may be absent or null. ``patient`` is any name
that is the same for all films of a patient: it keeps one patient out of two splits. ``image`` is absolute,
or relative to the file's folder and inside it. ``frame`` is one of :data:`verl_cxr.geometry.BOX_FORMATS`; boxes are
clipped to the film. A region with ``"box": null`` is described but not located. Further keys are left for others. All
checks happen here, once; a :class:`Study` is trusted from then on.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import orjson

from verl_cxr.files import RecordError, distinct, kind_of, read_records, write_lines
from verl_cxr.geometry import BOX_FORMATS, Box, box_from_numbers, is_number

__all__ = ["RegionFinding", "Report", "Study", "StudyError", "View", "read_studies", "write_studies"]

View = Literal["PA", "AP", "LATERAL"]
_VIEWS = ("PA", "AP", "LATERAL")
_STUDY_KEYS = ("id", "image", "width", "height", "view", "split", "report", "regions", "source", "licence", "patient")
_REPORT_KEYS = ("findings", "impression", "notes")
_REGION_KEYS = ("name", "box", "frame", "finding")
_MAX_SIDE = 10**6  # pixels; beyond any detector, and small enough for exact arithmetic


class StudyError(RecordError):
    """A record that is not a study."""


@dataclass(frozen=True, slots=True)
class RegionFinding:
    """One anatomical region: its name as written, where it is (None: not located), and what is seen there."""

    name: str
    box: Box | None
    finding: str


@dataclass(frozen=True, slots=True)
class Report:
    """The sections of a radiology report; None for a section that the report does not have."""

    findings: str | None = None
    impression: str | None = None
    notes: str | None = None

    @property
    def text(self) -> str:
        """Findings and impression, joined by a space; empty when the report has neither."""
        return " ".join(part for part in (self.findings, self.impression) if part)


@dataclass(frozen=True, slots=True)
class Study:
    """One film with its report and regions. Boxes lie in ``pixel_frame(width, height)``, clipped to the film."""

    id: str
    image: Path | None
    width: int
    height: int
    view: View | None
    split: str | None
    report: Report
    regions: tuple[RegionFinding, ...]
    source: str | None = None
    licence: str | None = None
    patient: str | None = None

    def __hash__(self) -> int:
        # Ids tell studies apart. A study is looked up once a rollout, and hashing every box would cost more than that.
        return hash(self.id)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, root: str | os.PathLike[str] | None = None) -> Study:
        """Validate a record.

        Args:
            record: the JSON object of one row.
            root: folder that a relative ``image`` starts from and must not leave; None takes the path as it is written.

        Raises:
            StudyError: a field is missing, has the wrong type, or holds an impossible value.
        """
        _refuse_misspelt(record, _STUDY_KEYS, "")
        width, height = _side(record, "width"), _side(record, "height")
        view = _text(record, "view")
        if view is not None and view not in _VIEWS:
            raise StudyError("view", f"{view!r} is not a view: use {', '.join(_VIEWS)} or null")
        report = _get(record, "report", dict, "an object with findings, impression and notes") or {}
        _refuse_misspelt(report, _REPORT_KEYS, "report.")
        regions = _get(record, "regions", list, "a list of regions, empty if there are none", required=True)
        return cls(
            id=_name(record, "id"),
            image=_image(record, root),
            width=width,
            height=height,
            view=cast("View | None", view),
            split=_text(record, "split"),
            report=Report(*(_text(report, key, "report.") for key in _REPORT_KEYS)),
            regions=tuple(_region(region, f"regions[{i}]", width, height) for i, region in enumerate(regions)),
            source=_text(record, "source"),
            licence=_text(record, "licence"),
            patient=_text(record, "patient"),
        )

    def to_dict(self, *, root: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """The record of this study, with boxes as ``pixel_xyxy``.

        Args:
            root: folder to write ``image`` relative to; None writes the path as it is held.

        Raises:
            StudyError: the image lies outside ``root``.
        """
        image = self.image
        if image is not None and root is not None:
            try:
                image = Path(os.path.abspath(image)).relative_to(os.path.abspath(root))
            except ValueError:
                raise StudyError("image", f"{image} lies outside {root}: write the file above its images") from None
        return {
            "id": self.id,
            "image": None if image is None else image.as_posix(),
            "width": self.width,
            "height": self.height,
            "view": self.view,
            "split": self.split,
            "report": {key: getattr(self.report, key) for key in _REPORT_KEYS},
            "regions": [_region_record(region) for region in self.regions],
            "source": self.source,
            "licence": self.licence,
        } | ({} if self.patient is None else {"patient": self.patient})


def read_studies(
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    broken: Callable[[RecordError], None] | None = None,
) -> Iterator[Study]:
    """Read studies one by one, in the file's order; blank lines are passed over.

    Args:
        path: a JSONL file, gzipped if its name ends in ``.gz``.
        root: folder that image paths are relative to. Default: the file's folder; a path that names nothing there is
            tried from the folder above, because a collection's rows often name their own data set's folder.
        broken: called with the error of each row that is not a study, instead of raising it; the reading goes on.

    Raises:
        StudyError: the first row that is not a study, or repeats an id.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    row_of: dict[str, int] = {}
    for row, record in read_records(path, error=StudyError, broken=broken):
        try:
            study = Study.from_dict(record, root=_root_of(record, path) if root is None else root)
            if study.id in row_of:
                raise StudyError("id", f"{study.id!r} is already the id of row {row_of[study.id]}")
        except StudyError as error:
            if broken is None:
                raise error.at(path, row) from None
            broken(error.at(path, row))
            continue
        row_of[study.id] = row
        yield study


def write_studies(path: str | os.PathLike[str], studies: Iterable[Study]) -> int:
    """Write studies as JSONL (gzipped if the name ends in ``.gz``), whole or not at all.

    Image paths are written relative to the file's folder.

    Returns:
        The number of rows written.

    Raises:
        StudyError: an image lies outside the file's folder, or an id repeats.
    """
    root = Path(path).parent
    return write_lines(
        path,
        (
            orjson.dumps(study.to_dict(root=root), option=orjson.OPT_APPEND_NEWLINE)
            for study in distinct(studies, error=StudyError)
        ),
    )


def _root_of(record: Mapping[str, Any], path: Path) -> Path:
    image = record.get("image")
    if isinstance(image, str) and not (path.parent / image).is_file() and (path.parent.parent / image).is_file():
        return path.parent.parent
    return path.parent


def _get(
    record: Mapping[str, Any], key: str, kind: type, wanted: str, *, prefix: str = "", required: bool = False
) -> Any:
    """The value of a key if it has the type, None if it is absent or null."""
    value = record.get(key)
    if value is None:
        if required:
            raise StudyError(prefix + key, f"missing: give {wanted}")
        return None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise StudyError(prefix + key, f"must be {wanted}, not {kind_of(value)}")
    return value


def _text(record: Mapping[str, Any], key: str, prefix: str = "") -> str | None:
    return cast("str | None", _get(record, key, str, "text or null", prefix=prefix))


def _name(record: Mapping[str, Any], key: str, prefix: str = "") -> str:
    name = cast(str, _get(record, key, str, "text", prefix=prefix, required=True))
    if not name.strip():
        raise StudyError(prefix + key, "must not be empty")
    return name


def _side(record: Mapping[str, Any], key: str) -> int:
    side = cast(int, _get(record, key, int, "a whole number of pixels", required=True))
    if not 0 < side <= _MAX_SIDE:
        raise StudyError(key, f"must be from 1 to {_MAX_SIDE} pixels, not {side}")
    return side


def _image(record: Mapping[str, Any], root: str | os.PathLike[str] | None) -> Path | None:
    image = _text(record, "image")
    if image is None or root is None or os.path.isabs(image):
        return None if image is None else Path(image)
    # abspath instead of resolve: image folders are often links to another disk, and a link is not an escape.
    folder = os.path.abspath(root)
    path = Path(os.path.abspath(os.path.join(folder, image)))
    if not path.is_relative_to(folder):
        raise StudyError("image", f"{image!r} lies outside {folder}: give a path inside that folder")
    return path


def _region(region: object, place: str, width: int, height: int) -> RegionFinding:
    if not isinstance(region, dict):
        raise StudyError(place, f"a region is an object, not {kind_of(region)}")
    prefix = f"{place}."
    _refuse_misspelt(region, _REGION_KEYS, prefix)
    name = _name(region, "name", prefix)
    finding = _text(region, "finding", prefix) or ""
    numbers = _get(region, "box", list, "a list of 4 numbers or null", prefix=prefix)
    if numbers is None:
        return RegionFinding(name, None, finding)
    frame = _get(region, "frame", str, f"one of {', '.join(BOX_FORMATS)}", prefix=prefix, required=True)
    if frame not in BOX_FORMATS:
        raise StudyError(f"{prefix}frame", f"unknown frame {frame!r}: use one of {', '.join(BOX_FORMATS)}")
    if len(numbers) != 4 or not all(map(is_number, numbers)):
        raise StudyError(f"{prefix}box", f"must be 4 finite numbers, not {str(numbers)[:80]}")
    box = box_from_numbers(numbers, frame, width, height).clip()
    if box.is_degenerate:
        raise StudyError(f"{prefix}box", f"{numbers} as {frame} has no area on a {width} x {height} film: drop the box")
    return RegionFinding(name, box, finding)


def _region_record(region: RegionFinding) -> dict[str, Any]:
    if region.box is None:
        return {"name": region.name, "box": None, "frame": None, "finding": region.finding}
    corners = (region.box.x1, region.box.y1, region.box.x2, region.box.y2)
    numbers = [int(n) if n.is_integer() else n for n in corners]
    return {"name": region.name, "box": numbers, "frame": "pixel_xyxy", "finding": region.finding}


def _refuse_misspelt(record: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
    """An unknown key that looks like an absent known one would lose its value in silence."""
    unknown = [key for key in record if key not in known]
    absent = [key for key in known if key not in record]
    for key in unknown:
        near = [other for other in absent if abs(len(other) - len(key)) <= 1]
        if match := difflib.get_close_matches(key, near, n=1, cutoff=0.75):
            raise StudyError(prefix + key, f"unknown key: did you mean {match[0]!r}?")
