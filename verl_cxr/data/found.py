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
"""A study that an adapter found in a table and whose film has not been opened: most data sets do not state its size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from verl_cxr.data.adapters import BuildContext
from verl_cxr.film import FilmError, FilmHead, film_head
from verl_cxr.geometry import Box, box_from_numbers, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study, View

__all__ = ["FoundRegion", "FoundStudy"]


class FoundRegion(NamedTuple):
    """A region as its data set writes it.

    Attributes:
        numbers: its box, on the film as it is stored; None if it is described and not located.
        fmt: one of `verl_cxr.geometry.BOX_FORMATS`.
    """

    name: str
    numbers: tuple[float, ...] | None
    fmt: str
    finding: str


@dataclass(frozen=True, slots=True)
class FoundStudy:
    """A study without the size of its film (`verl_cxr.data.adapters.Deferred`).

    Attributes:
        file, row: where it was found, for what is reported of it.
        stated: width and height of the stored film in pixels, if the data set states them: boxes depend on them.
    """

    id: str
    image: Path
    file: Path
    row: int
    report: Report = Report()  # noqa: RUF009 - frozen
    regions: tuple[FoundRegion, ...] = ()
    view: View | None = None
    split: str | None = None
    source: str | None = None
    licence: str | None = None
    patient: str | None = None
    stated: tuple[int, int] | None = None

    def read(self, context: BuildContext) -> Study | None:
        """The study; None after its drop was counted.

        Raises:
            RecordError: the build is strict, and the film or a box is broken.
            ImportError: the film is a DICOM file, and pydicom is not installed.
        """
        try:
            head = film_head(self.image)
        except FilmError as error:
            context.funnel.drop(error.reason)
            context.problem(self.image, None, "image", f"{error.reason}: study {self.id}")
            return None
        stored = head.size[::-1] if head.orientation.transposed else head.size
        if self.stated is not None and self.stated != stored:
            context.funnel.drop("image size differs from the record's width and height")
            message = f"image size differs from the record's: {stored} is that of the file, {self.stated} is stated"
            context.problem(self.file, self.row, "width", message)
            return None
        return Study(
            id=self.id,
            image=self.image,
            width=head.width,
            height=head.height,
            view=self.view,
            split=self.split,
            report=self.report,
            regions=tuple(
                RegionFinding(region.name, self._box(place, head, stored, context), region.finding)
                for place, region in enumerate(self.regions)
            ),
            source=self.source,
            licence=self.licence,
            patient=self.patient,
        )

    def _box(self, place: int, head: FilmHead, stored: tuple[int, int], context: BuildContext) -> Box | None:
        region = self.regions[place]
        if region.numbers is None:
            return None
        box = box_from_numbers(region.numbers, region.fmt, *stored)
        if head.orientation:
            box = head.orientation.box(box)
        box = Box(box.x1, box.y1, box.x2, box.y2, pixel_frame(*head.size)).clip()
        if not box.is_degenerate:
            return box
        context.funnel.discard("no area on the film", unit="boxes")
        message = f"box without area: {list(region.numbers)} as {region.fmt} on a film of {stored[0]} x {stored[1]}"
        context.problem(self.file, self.row, f"regions[{place}].box", f"{message}, study {self.id}")
        return None
