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
"""Fact graphs on disk: one SQLite file that many processes of one machine read and write, and that never lies.

A row is a graph (not a score: scores are cheap, and depend on level and case), under a key made of the annotator's
fingerprint and the text. Every row carries a checksum of all that it holds; a file that is damaged, or that is
something else, is refused by name. The file is bounded: the rows that were used longest ago make room.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from verl_cxr.facts.graph import FactGraph, GraphError
from verl_cxr.facts.scorer import FactServiceError

__all__ = ["FactStore", "ModelStats", "StoreError", "StoreStats"]

_APPLICATION = 0x76637846  # "vcxF"
_VERSION = 1
_SCHEMA = """
CREATE TABLE models (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, name TEXT NOT NULL);
CREATE TABLE graphs (
    key BLOB PRIMARY KEY, model INTEGER NOT NULL REFERENCES models (id), graph BLOB NOT NULL, checksum BLOB NOT NULL,
    used INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX graphs_used ON graphs (used);
"""
_NETWORK = {"nfs", "nfs4", "lustre", "cifs", "smb3", "gpfs", "beegfs", "ceph", "fuse.sshfs"}
_CHUNK = 500  # keys in one query
_WAIT_S = 60.0  # for another process that writes
_TOUCHED = 5_000  # uses that are kept in memory before they are written down


class StoreError(FactServiceError):
    """A store that cannot be used; names the file, and says what to do about it."""


@dataclass(frozen=True, slots=True)
class ModelStats:
    """What a store holds of one annotator; `last_used` is in seconds since 1970."""

    name: str
    fingerprint: str
    graphs: int
    last_used: float


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store holds: bytes of graphs and indexes, the bound on them, and the graphs of each annotator."""

    path: Path
    bytes: int
    max_bytes: int
    models: tuple[ModelStats, ...]


class FactStore:
    """The graphs of one annotator in the file at `path`, which other annotators may share; threads may share one.

    Args:
        path: made if it is not there; on a disk of this machine (SQLite's shared memory does not cross a network).
        fingerprint: of the annotator, see `verl_cxr.facts.radgraph.RadGraphAnnotator`.
        name: of the annotator, for people.
        max_bytes: bound on the file. Default: 1 GiB, about a million phrases.

    Raises:
        StoreError: the file is damaged, is no store, was written by another version, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, fingerprint: str, name: str, max_bytes: int = 1 << 30) -> None:
        self.path = Path(path).expanduser().absolute()
        self.max_bytes = max_bytes
        self._fingerprint = fingerprint
        self._used: dict[bytes, int] = {}
        self._lock = threading.RLock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the fact store {self.path} cannot be opened: {error}") from error
        self._db = _open(self.path)
        with self._guarded(), self._transaction():
            self._db.execute("INSERT OR IGNORE INTO models (fingerprint, name) VALUES (?, ?)", (fingerprint, name))
            query = self._db.execute("SELECT id FROM models WHERE fingerprint = ?", (fingerprint,))
            self._model = int(query.fetchone()[0])

    def get(self, texts: Sequence[str]) -> dict[str, FactGraph]:
        """The graphs of those texts that the store has.

        Raises:
            StoreError: a row is damaged.
        """
        keys = {self._key(text): text for text in texts}
        found: dict[str, FactGraph] = {}
        now = time.time_ns()
        with self._guarded():
            for chunk in _chunks(list(keys)):
                marks = ",".join("?" * len(chunk))
                query = self._db.execute(f"SELECT key, graph, checksum FROM graphs WHERE key IN ({marks})", chunk)
                for key, graph, checksum in query:
                    found[keys[key]] = self._decode(key, graph, checksum)
                    self._used[key] = now
            if len(self._used) >= _TOUCHED:
                self._write_uses()
        return found

    def put(self, graphs: Mapping[str, FactGraph]) -> None:
        """Add graphs by text; one that is there already stays as it is.

        Raises:
            StoreError: the file cannot be written.
        """
        now = time.time_ns()
        rows = []
        for text, graph in graphs.items():
            key, data = self._key(text), orjson.dumps(graph.to_dict())
            rows.append((key, self._model, data, _checksum(key, data), now))
        with self._guarded():
            with self._transaction():
                self._db.executemany(
                    "INSERT INTO graphs VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET used = excluded.used",
                    rows,
                )
            self._write_uses()
            self._make_room()

    def stats(self) -> StoreStats:
        """What the file holds, of all annotators."""
        with self._guarded():
            self._write_uses()
            return _stats(self._db, self.path, self.max_bytes)

    def close(self) -> None:
        """Write down what was used, and let go of the file. A closed store cannot be used."""
        with self._lock:
            try:
                with self._guarded():
                    self._write_uses()
            finally:
                self._db.close()

    @staticmethod
    def read_stats(path: str | os.PathLike[str]) -> StoreStats:
        """What the file at `path` holds, without an annotator.

        Raises:
            StoreError: see the class; also if there is no file.
        """
        path = Path(path).expanduser().absolute()
        if not path.is_file():
            raise StoreError(f"there is no fact store at {path}: `verl-cxr facts warm` makes one")
        db = _open(path)
        try:
            return _stats(db, path, 0)
        except sqlite3.DatabaseError as error:
            raise _refusal(path, error) from error
        finally:
            db.close()

    def _key(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self._fingerprint}\0{text}".encode(), digest_size=24).digest()

    def _decode(self, key: bytes, data: bytes, checksum: bytes) -> FactGraph:
        try:
            if checksum != _checksum(key, data):
                raise ValueError("its checksum is another")
            return FactGraph.from_dict(orjson.loads(data))
        except (GraphError, ValueError, TypeError) as error:
            raise StoreError(f"the fact store {self.path} is damaged: a row is wrong ({error}). {_REMEDY}") from error

    def _write_uses(self) -> None:
        if self._used:
            with self._transaction():
                self._db.executemany(
                    "UPDATE graphs SET used = ? WHERE key = ?", [(used, key) for key, used in self._used.items()]
                )
            self._used.clear()

    def _make_room(self) -> None:
        """Drop the rows that were used longest ago, a tenth at a time, until a tenth of the bound is free."""
        if _size(self._db) <= self.max_bytes:
            return
        with self._transaction():
            while _size(self._db) > 0.9 * self.max_bytes:
                (count,) = self._db.execute("SELECT count(*) FROM graphs").fetchone()
                if not count:
                    break
                self._db.execute(
                    "DELETE FROM graphs WHERE key IN (SELECT key FROM graphs ORDER BY used LIMIT ?)",
                    (max(count // 10, 1),),
                )
        self._db.execute("PRAGMA incremental_vacuum").fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise _refusal(self.path, error) from error


_REMEDY = "Delete it: it is filled again as texts are read"


def _open(path: Path) -> sqlite3.Connection:
    kind = _file_system(path)
    if kind in _NETWORK:
        raise StoreError(f"the fact store {path} is on {kind}, a network file system: put it on a disk of this machine")
    try:
        db = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreError(f"the fact store {path} cannot be opened: {error}") from error
    try:
        _prepare(db, path)
    except sqlite3.Error as error:
        db.close()
        raise _refusal(path, error) from error
    except StoreError:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Make a fresh file a store; check that any other file is one."""
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("BEGIN IMMEDIATE")
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:  # else another process was first
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {_VERSION}")
        db.execute("COMMIT")
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise StoreError(f"{path} is an SQLite file, but no fact store: give another path")
    if version != _VERSION:
        raise StoreError(f"the fact store {path} is of version {version}, and {_VERSION} is needed. {_REMEDY}")
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"the fact store {path} is damaged: {verdict}. {_REMEDY}")
    _use_wal(db)
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA journal_size_limit = 67108864")


def _use_wal(db: sqlite3.Connection) -> None:
    """Readers and one writer at a time. The change of mode does not wait for others by itself, so it is tried again."""
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.05)


def _refusal(path: Path, error: sqlite3.Error) -> StoreError:
    if isinstance(error, sqlite3.OperationalError):  # locked, disk full, read-only: the file itself is not to blame
        return StoreError(f"the fact store {path} cannot be used: {error}")
    if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
        return StoreError(f"{path} is no fact store ({error}): give another path")
    return StoreError(f"the fact store {path} is damaged: {error}. {_REMEDY}")


def _checksum(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=16).digest()


def _size(db: sqlite3.Connection) -> int:
    """Bytes in use, free pages and the log aside."""
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _stats(db: sqlite3.Connection, path: Path, max_bytes: int) -> StoreStats:
    query = db.execute(
        "SELECT name, fingerprint, count(key), coalesce(max(used), 0) FROM models LEFT JOIN graphs ON model = id "
        "GROUP BY id ORDER BY id"
    )
    models = tuple(ModelStats(name, print_, count, used / 1e9) for name, print_, count, used in query)
    return StoreStats(path, _size(db), max_bytes, models)


def _chunks(keys: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]


def _file_system(path: Path) -> str:
    """The type of the file system that `path` is on, where the platform tells; else nothing."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    target = os.path.realpath(path)
    for line in lines:
        fields = line.split()
        mount = fields[4].replace("\\040", " ")
        if (target == mount or target.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, fields[fields.index("-") + 1]
    return kind
