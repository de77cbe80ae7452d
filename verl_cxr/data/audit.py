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
"""What two sets of films share: patients, films by id, films by content.

A set is a folder that `verl-cxr data build` made, one parquet file of it, or grounded studies as JSONL. Patients and
ids are compared by name. Contents are compared by SHA-256, of the files only whose size occurs in both sets, so that
most of the films of two large sets are never opened. What cannot be compared, a film without a patient or without a
readable file, is counted: an audit proves nothing about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import pyarrow.parquet as pq

from verl_cxr.data.rows import split_name
from verl_cxr.study import Study, read_studies

__all__ = ["FilmSet", "LeakGuard", "Overlap", "compare", "leak_guard", "read_set"]

_EXAMPLES = 5
_BATCH_ROWS = 512  # bounds memory where films are embedded


@dataclass(frozen=True, slots=True)
class _Content:
    """A film's bytes: of a file, hashed when it is asked for, or of a row, hashed when it was read."""

    size: int
    path: Path | None
    digest: bytes | None

    def sha256(self) -> bytes:
        """
        Raises:
            OSError: the file cannot be read.
        """
        if self.digest is not None:
            return self.digest
        assert self.path is not None
        with self.path.open("rb") as file:
            return _digest(file)


@dataclass(slots=True)
class FilmSet:
    """The films of a set.

    Attributes:
        films: how many, by id.
        patients: films by patient.
        contents: the films' bytes, by id.
        without_patient: films that name no patient.
        unreadable: films whose file is missing or unreadable.
    """

    films: set[str] = field(default_factory=set)
    patients: dict[str, set[str]] = field(default_factory=dict)
    contents: dict[str, _Content] = field(default_factory=dict)
    without_patient: int = 0
    unreadable: int = 0

    def add(self, film: str, patient: str | None, image: Path | bytes | None) -> None:
        """Add a film, unless it is there already: a build has one row a stage for it."""
        if film in self.films:
            return
        self.films.add(film)
        if patient is None:
            self.without_patient += 1
        else:
            self.patients.setdefault(patient, set()).add(film)
        if isinstance(image, bytes):
            self.contents[film] = _Content(len(image), None, hashlib.sha256(image).digest())
            return
        try:
            if image is None:
                raise FileNotFoundError
            self.contents[film] = _Content(image.stat().st_size, image, None)
        except OSError:
            self.unreadable += 1


@dataclass(frozen=True, slots=True)
class Overlap:
    """What two sets share.

    Attributes:
        patients, films: names in both, sorted.
        contents: films of the first set of which the second has a copy, byte for byte, each with one such film.
        without_patient, unreadable: films of both sets that could not be compared in that respect.
    """

    patients: tuple[str, ...]
    films: tuple[str, ...]
    contents: tuple[tuple[str, str], ...]
    without_patient: int
    unreadable: int

    def __bool__(self) -> bool:
        return bool(self.patients or self.films or self.contents)

    def to_dict(self) -> dict[str, Any]:
        """The counts, a few examples of each, and what could not be compared."""
        return {
            "patients": {"shared": len(self.patients), "examples": list(self.patients[:_EXAMPLES])},
            "films": {"shared": len(self.films), "examples": list(self.films[:_EXAMPLES])},
            "contents": {"shared": len(self.contents), "examples": [list(pair) for pair in self.contents[:_EXAMPLES]]},
            "films_without_patient": self.without_patient,
            "films_unreadable": self.unreadable,
        }


def read_set(path: Path, splits: Collection[str] | None = None) -> FilmSet:
    """The films of a set, of some splits only if these are named (train, validate, test).

    Raises:
        FileNotFoundError: the folder holds neither parquet files nor JSONL.
        StudyError: a row of JSONL is not a study.
    """
    out = FilmSet()
    for film, patient, split, image in _rows(path):
        if splits is None or split in splits:
            out.add(film, patient, image)
    return out


def compare(first: FilmSet, second: FilmSet) -> Overlap:
    """What two sets share."""
    contents, unreadable = _same_contents(first, second)
    return Overlap(
        patients=tuple(sorted(first.patients.keys() & second.patients.keys())),
        films=tuple(sorted(first.films & second.films)),
        contents=tuple(contents),
        without_patient=first.without_patient + second.without_patient,
        unreadable=first.unreadable + second.unreadable + unreadable,
    )


class LeakGuard:
    """Tells which studies must not be trained on because of the sets that one evaluates on.

    Args:
        evaluation: those sets.
    """

    def __init__(self, evaluation: Collection[FilmSet]) -> None:
        self._films = frozenset[str]().union(*(part.films for part in evaluation))
        self._patients = frozenset[str]().union(*(part.patients for part in evaluation))
        self._by_size: dict[int, list[_Content]] = {}
        for part in evaluation:
            for content in part.contents.values():
                self._by_size.setdefault(content.size, []).append(content)

    def reason(self, study: Study) -> str | None:
        """Why a study must not be trained on; None if nothing speaks against it.

        Raises:
            OSError: a film that has to be compared cannot be read.
        """
        if study.patient is not None and study.patient in self._patients:
            return "leak guard: patient of a guarded set"
        if study.id in self._films:
            return "leak guard: film of a guarded set"
        if study.image is None or not study.image.is_file():
            return None
        size = study.image.stat().st_size
        if not (near := self._by_size.get(size)):
            return None
        digest = _Content(size, study.image, None).sha256()
        return "leak guard: copy of a guarded film" if any(digest == other.sha256() for other in near) else None


@lru_cache(maxsize=4)
def leak_guard(paths: tuple[Path, ...]) -> LeakGuard:
    """The guard of these sets, read once a process.

    Raises:
        FileNotFoundError, StudyError: a path holds no set.
    """
    return LeakGuard([read_set(path) for path in paths])


def _same_contents(first: FilmSet, second: FilmSet) -> tuple[list[tuple[str, str]], int]:
    sizes = {content.size for content in first.contents.values()} & {c.size for c in second.contents.values()}
    unreadable = 0
    by_digest: list[dict[bytes, list[str]]] = []
    for films in (first, second):
        digests: dict[bytes, list[str]] = {}
        for film, content in films.contents.items():
            if content.size in sizes:
                try:
                    digests.setdefault(content.sha256(), []).append(film)
                except OSError:
                    unreadable += 1
        by_digest.append(digests)
    mine, theirs = by_digest
    pairs = [(film, min(theirs[digest])) for digest in mine.keys() & theirs.keys() for film in mine[digest]]
    return sorted(pairs), unreadable


def _rows(path: Path) -> Iterator[tuple[str, str | None, str, Path | bytes | None]]:
    """Id, patient, split and film of every row."""
    if path.is_dir():
        files = sorted(path.rglob("*.parquet"))
        studies = sorted(file for file in path.iterdir() if file.name.endswith((".jsonl", ".jsonl.gz")))
        if not (files or studies):
            raise FileNotFoundError(f"{path} holds neither *.parquet nor *.jsonl: give a built data set or studies")
        for file in files or studies:
            yield from _rows(file)
    elif path.suffix == ".parquet":
        yield from _parquet_rows(path)
    else:
        for study in read_studies(path):
            yield study.id, study.patient, split_name(study), study.image


def _parquet_rows(path: Path) -> Iterator[tuple[str, str | None, str, Path | bytes | None]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=["extra_info", "images"]):
            for row in batch.to_pylist():
                info, images = row["extra_info"], row["images"] or [{}]
                image = images[0].get("bytes") or images[0].get("image")
                yield info["id"], info.get("patient"), info["split"], Path(image) if isinstance(image, str) else image


def _digest(file: IO[bytes]) -> bytes:
    total = hashlib.sha256()
    while block := file.read(1 << 20):
        total.update(block)
    return total.digest()
