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
"""The 3,955 reports of Open-i, as XML (an archive or its folder) and as the table that goes round with the images.

    ecgen-radiology/1000.xml     <uId id="CXR1000"/> ... <AbstractText Label="FINDINGS">...</AbstractText> ...
                                 <parentImage id="CXR1000_IM-0003-1001"> ...
    indiana_reports.csv          uid,MeSH,Problems,image,indication,comparison,findings,impression

Of 3,955 reports 3,425 have findings and 3,921 an impression; 104 name no image. An archive is read member by member and
never unpacked; a report is at most a megabyte, and its XML may not define entities.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import table_rows
from verl_cxr.files import RecordError

__all__ = ["OpeniReport", "read_table", "read_xml"]

_LARGEST = 1 << 20  # bytes of a report; the largest real one has 20,000
_NUMBER = re.compile(r"(\d{1,9})\.xml")
_UID = re.compile(r"CXR(\d{1,9})")
_IMAGE = re.compile(r"[\w.-]{1,100}", re.ASCII)
_ENTITIES = re.compile(rb"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)
_SECTIONS = ("FINDINGS", "IMPRESSION", "INDICATION", "COMPARISON")


@dataclass(frozen=True, slots=True)
class OpeniReport:
    """A report; None for a section that it does not have.

    Attributes:
        number: 1000 for CXR1000.
        images: names of its films, such as CXR1000_IM-0003-1001; a table does not name them.
        file, row: where it was found.
    """

    number: int
    findings: str | None
    impression: str | None
    indication: str | None
    comparison: str | None
    images: tuple[str, ...]
    file: Path
    row: int

    @property
    def uid(self) -> str:
        """The name of the report, which is also that of the patient."""
        return f"CXR{self.number}"


def read_xml(source: Path, context: BuildContext) -> list[OpeniReport]:
    """The reports of a folder, a tar file (also compressed) or a zip file of XML, in the order of their numbers.

    Raises:
        RecordError: `context` is strict and a report, or the archive, is broken.
        FileNotFoundError: no such file or folder.
    """
    reports: dict[int, OpeniReport] = {}
    for row, (name, data) in enumerate(_members(source, context), start=1):
        place = source / name if source.is_dir() else source
        try:
            report = _parse(data, place, row)
        except RecordError as error:
            context.problem(place, row, error.field or name, error.problem)
            continue
        if report.number in reports:
            context.problem(place, row, "uId", f"report listed twice: {report.uid}, its first is used")
            continue
        reports[report.number] = report
    return [reports[number] for number in sorted(reports)]


def read_table(path: Path, context: BuildContext) -> list[OpeniReport]:
    """The reports of `indiana_reports.csv`, in the order of their numbers.

    Raises:
        RecordError: a column is missing, or `context` is strict and a row is broken.
    """
    reports: dict[int, OpeniReport] = {}
    sections = [section.lower() for section in _SECTIONS]
    for row, cells in table_rows(path, ["uid", *sections], context):
        uid = cells["uid"].strip()
        if not (uid.isascii() and uid.isdecimal() and len(uid) < 10):
            context.problem(path, row, "uid", f"not the number of a report: {uid[:40]!r}")
            continue
        if int(uid) in reports:
            context.problem(path, row, "uid", f"report listed twice: {uid}, its first is used")
            continue
        texts = {section: cells[section].strip() or None for section in sections}
        reports[int(uid)] = OpeniReport(int(uid), **texts, images=(), file=path, row=row)
    return [reports[number] for number in sorted(reports)]


def _parse(data: bytes, file: Path, row: int) -> OpeniReport:
    if _ENTITIES.search(data):
        raise RecordError("", "XML with a document type: entities are not expanded")
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise RecordError("", f"not XML: {error}") from None
    uid = root.find(".//uId")
    match = _UID.fullmatch(uid.get("id", "") if uid is not None else "")
    if match is None:
        raise RecordError("uId", "no number of a report: should be like CXR1000")
    texts = dict.fromkeys(_SECTIONS, "")
    for section in root.iter("AbstractText"):
        label = section.get("Label", "")
        if label in texts and not texts[label]:
            texts[label] = "".join(section.itertext()).strip()
    images = tuple(dict.fromkeys(image.get("id", "") for image in root.iter("parentImage")))
    for image in images:
        if not _IMAGE.fullmatch(image):
            raise RecordError("parentImage", f"not the name of an image: {image[:60]!r}")
    findings, impression, indication, comparison = (texts[label] or None for label in _SECTIONS)
    return OpeniReport(int(match[1]), findings, impression, indication, comparison, images, file, row)


def _members(source: Path, context: BuildContext) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the XML files."""
    if source.is_dir():
        for path in sorted(source.glob("*.xml")):
            if _fits(path.name, path.stat().st_size, path, context):
                with path.open("rb") as file:
                    yield path.name, file.read(_LARGEST)
        return
    archive = _from_zip if source.suffix.lower() == ".zip" else _from_tar
    try:
        yield from archive(source, context)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        context.problem(source, None, "", f"damaged archive, the rest of it is lost: {error}")


def _from_tar(source: Path, context: BuildContext) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(source, "r|*") as archive:
        for member in archive:
            if not (member.isfile() and _is_report(member.name, source, context)):
                continue
            if _fits(member.name, member.size, source, context):
                file = archive.extractfile(member)
                assert file is not None
                yield member.name, file.read(_LARGEST)


def _from_zip(source: Path, context: BuildContext) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            if not member.is_dir() and _is_report(member.filename, source, context):
                with archive.open(member) as file:
                    data = file.read(_LARGEST + 1)  # whatever size the directory states
                if _fits(member.filename, len(data), source, context):
                    yield member.filename, data


def _is_report(name: str, source: Path, context: BuildContext) -> bool:
    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
        context.problem(source, None, name[:80], "leads out of the archive: such members are passed over")
        return False
    return _NUMBER.fullmatch(name.rpartition("/")[2]) is not None


def _fits(name: str, size: int, file: Path, context: BuildContext) -> bool:
    """Whether a report is of a size that reports have."""
    if size > _LARGEST:
        context.problem(
            file, None, name[:80], f"too large: {_LARGEST:,} bytes and more, where a few thousand are usual"
        )
    return size <= _LARGEST
