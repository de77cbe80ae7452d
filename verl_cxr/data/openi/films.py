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
"""The films of Open-i: where they lie, and which of them are frontal.

    images/CXR1000_IM-0003-1001.png            as Open-i serves them (PNG), or .dcm
    images_normalized/1000_IM-0003-1001.dcm.png    as they go round with the tables
    indiana_projections.csv                    uid,filename,projection (Frontal or Lateral)

The projection was told by people. The DICOM files state a view as well, wrongly for 1,380 of 3,647 lateral films, so
that it is not read. Frontal is not yet PA.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.fields import listed, named, object_of, reported, reporter, table_rows, text
from verl_cxr.files import read_records

__all__ = ["FilmFolder", "film_key", "read_projections"]

_SUFFIXES = (".png", ".jpg", ".jpeg", ".dcm")
_PROJECTIONS = ("Frontal", "Lateral")


def film_key(name: str) -> str:
    """What the names of one film have in common: `1000_IM-0003-1001` of `CXR1000_IM-0003-1001.dcm.png`."""
    name = name.rpartition("/")[2]
    while name.lower().endswith(_SUFFIXES):
        name = name.rpartition(".")[0]
    return name.removeprefix("CXR")


class FilmFolder:
    """The image files below a folder, by `film_key`. Of several files of one film the first counts, in their order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places: dict[str, str] = {}
        for parent, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(files):
                if name.lower().endswith(_SUFFIXES):
                    self._places.setdefault(film_key(name), os.path.join(parent, name))

    def find(self, name: str) -> Path:
        """The file of a film; where it would be if there is none."""
        place = self._places.get(film_key(name))
        return self.folder / f"{name}.png" if place is None else Path(place)

    def of_report(self, number: int) -> list[str]:
        """The names of the films of a report, in their order."""
        return sorted(f"CXR{key}" for key in self._places if key.startswith(f"{number}_"))


def read_projections(path: Path, context: BuildContext) -> dict[str, str]:
    """Frontal or Lateral by `film_key`, from `indiana_projections.csv`.

    JSON lines with `{"images": [{"id": "CXR1_1_IM-0001-3001", "projection": "Frontal"}]}` are read as well.

    Raises:
        RecordError: a column is missing, or `context` is strict and a row is broken.
    """
    projections: dict[str, str] = {}
    for row, name, projection in _labels(path, context):
        if projection in _PROJECTIONS:
            projections.setdefault(film_key(name), projection)
        elif projection:
            message = f"not a projection: {projection[:40]!r}, should be one of {', '.join(_PROJECTIONS)}"
            context.problem(path, row, "projection", message)
    return projections


def _labels(path: Path, context: BuildContext) -> Iterator[tuple[int, str, str]]:
    """Rows, names of films, and what is said of them."""
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        for row, record in read_records(path, broken=reporter(context, path)):
            for name, projection in reported(_images, record, context=context, path=path, row=row, dropped=None) or ():
                yield row, name, projection
    else:
        for row, cells in table_rows(path, ["filename", "projection"], context):
            yield row, cells["filename"], cells["projection"].strip()


def _images(record: dict[str, Any]) -> list[tuple[str, str]]:
    images = [object_of(image, "images") for image in listed(record, "images")]
    return [(named(image, "id"), text(image, "projection") or "") for image in images]
