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
"""The projection as records state it: a study's or a question's ``view``, or one that holds for all films.

A DICOM tag is believed only where that is asked for: of Open-i's 3,647 lateral images 1,380 carry PA or AP.
"""

from __future__ import annotations

import os
from pathlib import Path

from verl_cxr.files import read_records
from verl_cxr.film import Film
from verl_cxr.measure.view.reading import VIEWS, ViewError, ViewReading, certain, view_name

__all__ = ["MetadataView"]


class MetadataView:
    """The stated view of a film; no reading where nothing states one.

    Args:
        records: JSONL of studies or questions, whose rows have ``view``, and ``image``, ``images`` or ``id``. A film is
            found by its path, else by the name of its file without ending, which may be the id.
        view: of every film that no record names.
        dicom: believe the film's own DICOM tag where neither of the others says anything.

    Raises:
        ValueError: an unknown view.
        ViewError: two records state different views of one film.
    """

    name = "metadata"

    def __init__(
        self, *, records: str | os.PathLike[str] | None = None, view: str | None = None, dicom: bool = False
    ) -> None:
        if view is not None and view_name(view) is None:
            raise ValueError(f"{view!r} is not a view: use one of {', '.join(VIEWS)}")
        self._stated, self._dicom = None if view is None else view_name(view), dicom
        self._views = {} if records is None else _read(Path(records).expanduser())

    def read(self, film: Film) -> ViewReading:
        """See `verl_cxr.measure.view.ViewBackend`."""
        view = self._views.get(os.path.realpath(film.path)) or self._views.get(film.path.stem)
        view = view or self._stated or (film.view if self._dicom else None)
        return certain(view) if view else ViewReading()


def _read(path: Path) -> dict[str, str]:
    views: dict[str, str] = {}
    for row, record in read_records(path):
        view = view_name(record["view"]) if isinstance(record.get("view"), str) else None
        if view is None:
            continue
        images = record.get("images") or [record.get("image")]
        files = [image for image in images if isinstance(image, str)] if isinstance(images, list) else []
        if len(files) > 1:
            continue  # one view of several films says nothing about each
        keys = {os.path.realpath(path.parent / file) for file in files} | {Path(file).stem for file in files}
        if isinstance(record.get("id"), str) and not files:
            keys.add(record["id"])
        for key in keys:
            if views.setdefault(key, view) != view:
                raise ViewError(f"{path}, row {row}: {key} is {view} here and {views[key]} in an earlier row")
    return views
