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
"""Results of a slow backend, kept by the hash of a film: in memory, and on disk where a folder is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from verl_cxr.film import Film
from verl_cxr.once import Once

__all__ = ["Remembered"]

T = TypeVar("T")


class Remembered(Generic[T]):
    """Computes a film's result once; threads that ask for one film at the same time wait for the first of them.

    Args:
        compute: makes the result.
        size: results kept in memory, those that were used last.
        folder: for results on disk; None keeps none. It must be this backend's own.
        suffix, read, write: name ending and form of a file. `read` raises ValueError for a damaged one, which is
            computed anew.
    """

    def __init__(
        self,
        compute: Callable[[Film], T],
        *,
        size: int,
        folder: Path | None = None,
        suffix: str = "",
        read: Callable[[Path], T] | None = None,
        write: Callable[[Path, T], None] | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"remember={size}: keep at least the result of one film")
        self._compute, self._folder, self._suffix = compute, folder, suffix
        self._read, self._write = read, write
        self._results: Once[tuple[str, str], T] = Once(size)

    def get(self, film: Film) -> T:
        """The result of a film."""
        # Backends that look a film up by name need the name too: two names may hold the same bytes.
        return self._results.get((film.sha256, str(film.path)), lambda: self._from_disk_or_made(film))

    def _from_disk_or_made(self, film: Film) -> T:
        if self._folder is None or self._read is None or self._write is None:
            return self._compute(film)
        path = self._folder / film.sha256[:2] / f"{film.sha256}{self._suffix}"
        if path.is_file():
            try:
                return self._read(path)
            except ValueError:
                pass  # as if it were not there: it is made again, and written over
        result = self._compute(film)
        self._write(path, result)
        return result
