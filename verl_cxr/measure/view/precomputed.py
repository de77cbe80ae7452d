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
"""Views that a classifier found beforehand, in a JSONL file, a film a row::

    {"id": "film-7", "probabilities": {"PA": 0.97, "AP": 0.02, "LATERAL": 0.01, "OTHER": 0.0},
     "rotated": 0.01, "inverted": 0.0, "flipped": null}

``id`` is the name of the film's file without ending; ``sha256`` of the file's bytes may stand for it.
"""

from __future__ import annotations

import os

from verl_cxr.files import read_records
from verl_cxr.film import Film
from verl_cxr.measure.view.reading import ViewError, ViewReading

__all__ = ["PrecomputedView"]


class PrecomputedView:
    """The views of a file; no reading of a film that it does not name.

    Args:
        file: see the module.

    Raises:
        ViewError: a row is no view, or two rows are of one film.
        FileNotFoundError: no such file.
    """

    name = "precomputed"

    def __init__(self, *, file: str | os.PathLike[str]) -> None:
        self._readings: dict[str, ViewReading] = {}
        for row, record in read_records(os.path.expanduser(file)):
            key = record.get("sha256") or record.get("id")
            if not isinstance(key, str) or not key:
                raise ViewError(f"{file}, row {row}: a view names its film by id or sha256")
            if key in self._readings:
                raise ViewError(f"{file}, row {row}: a second view of {key}")
            try:
                self._readings[key] = ViewReading.from_dict(record)
            except ValueError as error:
                raise ViewError(f"{file}, row {row}: {error}") from None

    def read(self, film: Film) -> ViewReading:
        """See `verl_cxr.measure.view.ViewBackend`."""
        found = self._readings.get(film.sha256) or self._readings.get(film.path.stem)
        return found or ViewReading()
