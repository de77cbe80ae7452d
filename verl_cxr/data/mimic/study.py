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
"""One film with its report and its scene graph, read by whichever process of a build gets it.

`FUNNEL` states what is counted, beside the numbers of region-grounded GRPO ("Data filtering"): of 377,110 films and
227,835 reports 213,073 pairs remain when lateral films and reports with neither findings nor impression are dropped,
and 642,703 boxes of 38 regions are used. The paper does not say of which pairs: ours are those of described regions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import orjson

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.funnel import Line
from verl_cxr.data.imagenome.scene_graph import Described, SceneGraphError, described_regions
from verl_cxr.data.imagenome.sound import sound_graph
from verl_cxr.data.members import Place, read_place
from verl_cxr.data.mimic.films import Film
from verl_cxr.data.mimic.sectioned import SectionRow
from verl_cxr.data.report_text import ALL_PRIOR, NO_SECTION, TextOptions
from verl_cxr.files import RecordError
from verl_cxr.reports.overrides import Override
from verl_cxr.reports.sections import Sections, split_report
from verl_cxr.study import RegionFinding, Report, Study, View

__all__ = ["FUNNEL", "WITHOUT_PHRASE", "FilmStudy", "StudyOptions"]

WITHOUT_PHRASE = ("report", "boxes", "drop")
_MAX_REPORT = 1 << 20  # bytes
_MAX_GRAPH = 1 << 24
_CACHED = 1 << 16  # phrases; a phrase is that of several regions, and many reports share theirs
_SOURCE = "MIMIC-CXR"
_LICENCE = "PhysioNet Credentialed Health Data License 1.5.0"

FUNNEL = (
    Line("films listed", paper=377_110),
    Line("reports they belong to", paper=227_835),
    Line("lateral view", dropped=True),
    Line("another view than PA, AP or lateral", dropped=True),
    Line("no view stated", dropped=True),
    Line("films of a view that is used"),
    Line("no size in the metadata", dropped=True),
    Line("no report", dropped=True),
    Line(NO_SECTION, dropped=True),
    Line("film-report pairs", paper=213_073),
    Line("reports of these pairs"),
    Line("no split", dropped=True),
    Line("leak guard: patient of Chest ImaGenome's gold set", dropped=True),
    Line("leak guard: patient of an evaluation split", dropped=True),
    Line(ALL_PRIOR, dropped=True),
    Line("pairs with a scene graph"),
    Line("pairs with a described region"),
    Line("boxes", paper=642_703),
)


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """How a film's texts and regions are taken; see the options of the adapter."""

    regions: tuple[str, ...]
    phrases: int
    without_phrase: str
    silent_regions: bool
    priors: bool
    last_paragraph: bool
    drop_blanks: bool
    graphs: bool


@dataclass(frozen=True, slots=True)
class FilmStudy:
    """A film that is still to be read (`verl_cxr.data.adapters.Deferred`).

    Attributes:
        report, graph: where they are; None if there is none.
        override: what the section rules must be told about this report.
        drawn: boxes of the gold set.
        leak: why it must not train.
        first: whether it is the first film of its report.
    """

    film: Film
    image: Path
    report: Place | SectionRow | None
    override: Override | None
    graph: Place | None
    drawn: tuple[tuple[str, float, float, float, float], ...] | None
    leak: str | None
    first: bool
    options: StudyOptions

    @property
    def id(self) -> str:
        return self.film.dicom

    def read(self, context: BuildContext) -> Study | None:
        """The study; None after its drop was counted.

        Raises:
            RecordError: the build is strict and the report or the scene graph is broken.
        """
        funnel = context.funnel
        sections = self._sections(context)
        if sections is None:
            return None
        funnel.count("film-report pairs")
        if self.first:
            funnel.count("reports of these pairs")
        film, options = self.film, self.options
        if film.split is None or self.leak:
            funnel.drop(self.leak or "no split")
            return None
        rewrite = _rewriter(TextOptions(options.priors, options.drop_blanks))
        findings, impression = (rewrite(text) if text else None for text in sections)
        if not (findings or impression):
            funnel.drop(ALL_PRIOR)
            return None
        regions = self._regions(context, rewrite) if options.graphs else ()
        if regions is None:
            return None
        return Study(
            id=film.dicom,
            image=self.image,
            width=film.width,
            height=film.height,
            view=cast(View, film.view),
            split=film.split,
            report=Report(findings or None, impression or None),
            regions=regions,
            source=_SOURCE,
            licence=_LICENCE,
            patient=f"p{film.subject}",
        )

    def _sections(self, context: BuildContext) -> tuple[str | None, str | None] | None:
        """Findings and impression as they are written; None after the drop was counted."""
        sections = self._report(context)
        if sections is None:
            context.funnel.drop("no report")
            return None
        findings, impression = sections.findings, sections.impression
        if not (findings or impression) and self.options.last_paragraph:
            findings = sections.last_paragraph
        if not (findings or impression):
            context.funnel.drop(NO_SECTION)
            return None
        return findings, impression

    def _report(self, context: BuildContext) -> Sections | None:
        if self.report is None:
            context.problem(self.image.parent, None, "report", "no report: the archive holds none for this study")
            return None
        try:
            if isinstance(self.report, SectionRow):
                return self.report.read()
            data = read_place(self.report, limit=_MAX_REPORT)
        except FileNotFoundError:
            context.problem(self.report.path, None, "", "no report: the file is missing")
            return None
        except (RecordError, OSError) as error:
            _report_problem(context, self.report.path, error, f"s{self.film.study}")
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            context.problem(self.report.path, None, "", f"not UTF-8: byte {error.start}; read as Latin-1")
            text = data.decode("latin-1")
        return split_report(text, self.override)

    def _regions(self, context: BuildContext, rewrite: Callable[[str], str]) -> tuple[RegionFinding, ...] | None:
        """The regions; None after the drop of a film without any was counted."""
        described = self._described(context, rewrite)
        if described is None:
            return () if self._keeps_silent(context) else None
        funnel = context.funnel
        funnel.count("pairs with a scene graph")
        for (unit, reason), number in described.lost.items():
            funnel.discard(reason, unit=unit, number=number)
        for field, problem in described.problems:
            assert self.graph is not None
            context.problem(self.graph.path, None, f"{self.id}: {field}", problem)
        regions = described.regions
        if not any(region.finding and region.box for region in regions):
            if not self._keeps_silent(context):
                return None
            if self.options.without_phrase == "report":
                return ()
        else:
            funnel.count("pairs with a described region")
        funnel.count("boxes", sum(region.box is not None for region in regions))
        return regions

    def _keeps_silent(self, context: BuildContext) -> bool:
        if self.options.without_phrase == "drop":
            context.funnel.drop("no region with a phrase")
            return False
        return True

    def _described(self, context: BuildContext, rewrite: Callable[[str], str]) -> Described | None:
        if self.graph is None:
            return None
        film, options = self.film, self.options
        try:
            data = read_place(self.graph, limit=_MAX_GRAPH)
            graph: Any = sound_graph(data)
            if graph is None or graph.image_id != film.dicom or graph.viewpoint not in ("PA", "AP"):
                graph = _parse(data)
                _check(graph, film)
            return described_regions(
                graph,
                options.regions,
                width=film.width,
                height=film.height,
                rewrite=rewrite,
                cap=options.phrases,
                silent=options.silent_regions or options.without_phrase == "boxes",
                boxes=self.drawn,
            )
        except (RecordError, OSError) as error:
            _report_problem(context, self.graph.path, error, self.id)
            return None


def _parse(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise SceneGraphError("", f"not JSON: {error}") from None


def _check(graph: Any, film: Film) -> None:
    """Refuse a scene graph of another film, or of a view that its boxes do not hold for."""
    if not isinstance(graph, dict):
        return
    image = graph.get("image_id", film.dicom)
    if image != film.dicom:
        raise SceneGraphError("image_id", f"the scene graph of another film: {str(image)[:60]}")
    view = graph.get("viewpoint", film.view)
    if view not in ("PA", "AP"):
        raise SceneGraphError("viewpoint", f"not a frontal view: {str(view)[:20]!r}")


def _report_problem(context: BuildContext, path: Path, error: Exception, member: str) -> None:
    field, problem = (
        (error.field, error.problem) if isinstance(error, RecordError) else ("", f"cannot be read: {error}")
    )
    context.problem(path, None, ": ".join(part for part in (member, field) if part), problem)


@lru_cache(maxsize=8)
def _rewriter(options: TextOptions) -> Callable[[str], str]:
    return lru_cache(maxsize=_CACHED)(options.rewritten)
