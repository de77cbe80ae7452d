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
"""The parts of a build: what a worker makes of some hundred records, each part whole in its files or not there.

A part has one Arrow file a stage, whose columns are the row's and three that only the build reads: the row's priority
in a sample, its values under the facets of a stratified sample, and the films it needs. A JSON file, written last, says
that the part is complete and holds its share of the counts. Once the rows of a sample are chosen, and if films have to
be written or embedded, each part has a second such set of files, with the chosen rows and their films.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from verl_cxr.data.adapters import BuildContext, read_item
from verl_cxr.data.card import Provenance
from verl_cxr.data.films import FilmJob
from verl_cxr.data.funnel import Funnel
from verl_cxr.data.maker import RowMaker
from verl_cxr.data.parquet import embeds_images
from verl_cxr.data.sample import priority
from verl_cxr.files import replacing
from verl_cxr.film import FilmError

__all__ = ["FACETS", "FILMS", "PRIORITY", "PartMaker", "Parts", "digest"]

PRIORITY, FACETS, FILMS = "_priority", "_facets", "_films"
_FILM = pa.struct([("source", pa.string()), ("target", pa.string()), ("width", pa.int32()), ("height", pa.int32())])
_WORKING = [
    pa.field(PRIORITY, pa.uint64()),
    pa.field(FACETS, pa.list_(pa.list_(pa.string()))),
    pa.field(FILMS, pa.list_(_FILM)),
]


def digest(ids: Iterable[str]) -> str:
    """A short hash of a part's ids, by which a resumed build knows that a part is still about the same records."""
    whole = hashlib.blake2b(digest_size=16)
    for name in ids:
        whole.update(name.encode("utf-8", "surrogatepass") + b"\0")
    return whole.hexdigest()


@dataclass(frozen=True, slots=True)
class Parts:
    """The files of the parts under one folder; `made` are the parts as workers made them, `filmed` those with films."""

    folder: Path

    def state(self, number: int, kind: str = "made") -> dict[str, Any] | None:
        """What the JSON file of a complete part says; None if there is none."""
        try:
            state = orjson.loads(self._path(number, kind, "json").read_bytes())
        except FileNotFoundError:
            return None
        return state if isinstance(state, dict) else None

    def table(
        self, number: int, stage: str, kind: str = "made", columns: Sequence[str] | None = None
    ) -> pa.Table | None:
        """The rows of a stage; None if the part has none."""
        path = self._path(number, kind, f"{stage}.arrow")
        if not path.exists():
            return None
        with pa.memory_map(str(path)) as source:
            schema = pa.ipc.open_file(source).schema
            wanted = None if columns is None else [schema.get_field_index(name) for name in columns]
            return pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=wanted)).read_all()

    def write(self, number: int, tables: dict[str, pa.Table], state: dict[str, Any], kind: str = "made") -> None:
        """Write a part; it is complete when this returns."""
        for stage, table in tables.items():
            with (
                replacing(self._path(number, kind, f"{stage}.arrow")) as file,
                pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as out,
            ):
                out.write_table(table)
        with replacing(self._path(number, kind, "json")) as file:
            file.write(orjson.dumps(state))

    def lines(self, number: int) -> Path:
        """The file of a part's records as JSON."""
        return self._path(number, "made", "records.jsonl")

    def remove(self, number: int | None = None, kind: str = "made") -> None:
        """Remove a part, or all parts of a kind. Its JSON file goes first, so that no half of a part looks whole."""
        name = "*" if number is None else f"{number:06d}"
        for path in sorted(self.folder.glob(f"{kind}-{name}.*"), key=lambda path: path.suffix != ".json"):
            path.unlink(missing_ok=True)

    def numbers(self) -> list[int]:
        """The complete parts."""
        return sorted(int(path.stem.partition("-")[2]) for path in self.folder.glob("made-*.json"))

    def _path(self, number: int, kind: str, suffix: str) -> Path:
        return self.folder / f"{kind}-{number:06d}.{suffix}"


@dataclass(frozen=True, slots=True)
class PartMaker:
    """What a worker has to know. It travels to other processes.

    Attributes:
        out: folder of the build.
        facets: names of a stratified sample.
        keep_records: write the records themselves too.
    """

    parts: Parts
    maker: RowMaker
    out: Path
    seed: int
    strict: bool
    lateral: bool
    facets: tuple[str, ...] = ()
    keep_records: bool = False

    def make(self, number: int, items: Sequence[Any], ids: str) -> int:
        """Make a part of what an adapter yielded, and return how many items that were.

        Raises:
            RecordError: a record is broken, and the build is strict or its adapter is.
        """
        maker, funnel, provenance = self.maker, Funnel(), Provenance()
        context = BuildContext(self.out, self.seed, funnel, strict=self.strict, lateral=self.lateral)
        columns: dict[str, list[dict[str, Any]]] = {stage: [] for stage in maker.stages}
        lines: list[bytes] = []
        with _collector_off():
            for item in items:
                record = read_item(item, context)
                if record is None:
                    continue
                funnel.read += 1
                provenance.add(maker.origin(record))
                if self.keep_records:
                    lines.append(maker.line(record, self.out))
                drafts = maker.drafts(record, context)
                if not drafts:
                    continue
                working = {
                    PRIORITY: priority(self.seed, maker.record_id(record)),
                    FACETS: maker.facets(record, self.facets) if self.facets else None,
                }
                for draft in drafts:
                    columns[draft.stage].append(draft.row | working | {FILMS: _film_cells(draft.films)})
        tables = {
            stage: pa.Table.from_pylist(rows, schema=_with_working(maker.schema(stage)))
            for stage, rows in columns.items()
            if rows
        }
        if self.keep_records:
            with replacing(self.parts.lines(number)) as file:
                file.writelines(lines)
        state = {"ids": ids, "items": len(items), "funnel": funnel.to_dict(), "provenance": provenance.to_dict()}
        state["films"] = any(table[FILMS].null_count < table.num_rows for table in tables.values())
        state["rows"] = {stage: table.num_rows for stage, table in tables.items()}
        self.parts.write(number, tables, state)
        return len(items)

    def film(self, number: int, chosen: dict[str, npt.NDArray[np.bool_]]) -> int:
        """Write or embed the films of the chosen rows of a part; a row whose film cannot be had is dropped and counted.

        Args:
            chosen: which rows of each stage, shape [rows].

        Returns:
            The number of rows left.

        Raises:
            RecordError: a film is broken, and the build is strict.
        """
        funnel = Funnel()
        context = BuildContext(self.out, self.seed, funnel, strict=self.strict)
        done: dict[FilmJob, bytes | FilmError | None] = {}
        tables: dict[str, pa.Table] = {}
        for stage, mask in chosen.items():
            table = self.parts.table(number, stage)
            if table is None:
                continue
            table = table.filter(pa.array(mask))
            kept = [_do(cells, done, context) for cells in table[FILMS].to_pylist()]
            tables[stage] = _with_films(table, kept).filter(pa.array([films is not None for films in kept], pa.bool_()))
        self.parts.write(number, tables, {"funnel": funnel.to_dict()}, "filmed")
        return sum(table.num_rows for table in tables.values())


@contextmanager
def _collector_off() -> Iterator[None]:
    """Rows are many objects without cycles: looking for cycles among them takes a tenth of the time of a part."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _with_working(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *_WORKING])


def _film_cells(films: Sequence[FilmJob | None]) -> list[dict[str, Any] | None] | None:
    if not any(films):
        return None
    return [None if job is None else asdict(job) for job in films]


def _do(
    cells: list[dict[str, Any] | None] | None,
    done: dict[FilmJob, bytes | FilmError | None],
    context: BuildContext,
) -> list[bytes | None] | None:
    """The bytes of a row's films to embed, None for one that needs none; None if the row has to go."""
    films: list[bytes | None] = []
    for cell in cells or ():
        if cell is None:
            films.append(None)
            continue
        job = FilmJob(**cell)
        if job not in done:
            try:
                done[job] = job.do()
            except FilmError as error:
                done[job] = error
                context.funnel.drop(error.reason)
                context.problem(job.source, None, "", error.reason)
        data = done[job]
        if isinstance(data, FilmError):
            return None
        films.append(data)
    return films


def _with_films(table: pa.Table, kept: Iterable[list[bytes | None] | None]) -> pa.Table:
    """The table with the bytes in its images, if these have bytes at all."""
    if not embeds_images(table.schema):
        return table
    place = table.schema.get_field_index("images")
    kind = table.schema.field(place).type
    cells = [[{"bytes": data} for data in films or ()] for films in kept]
    return table.set_column(place, table.schema.field(place), pa.array(cells, kind))
