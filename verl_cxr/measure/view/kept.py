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
"""View backends whose results are kept by the hash of a film."""

from __future__ import annotations

from pathlib import Path

import orjson

from verl_cxr.files import replacing
from verl_cxr.film import Film
from verl_cxr.measure.remember import Remembered
from verl_cxr.measure.view.reading import ViewBackend, ViewReading

__all__ = ["KeptViews"]


class KeptViews:
    """A view backend in front of another one, which it asks once a film; arguments as for `KeptMasks`."""

    def __init__(self, backend: ViewBackend, *, folder: Path | None = None, remember: int = 4096) -> None:
        self.name = backend.name
        self.backend = backend
        self._results = Remembered(backend.read, size=remember, folder=folder, suffix=".json", read=_read, write=_write)

    def read(self, film: Film) -> ViewReading:
        """See `verl_cxr.measure.view.ViewBackend`."""
        return self._results.get(film)


def _read(path: Path) -> ViewReading:
    return ViewReading.from_dict(orjson.loads(path.read_bytes()))


def _write(path: Path, reading: ViewReading) -> None:
    with replacing(path) as file:
        file.write(orjson.dumps(reading.to_dict()))
