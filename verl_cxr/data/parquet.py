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
"""Parquet files of rows, `{stage}_{split}.parquet`, which the recipes read.

A build streams its parts into one file a stage and split, because one file is what a recipe, a copy command and a
reader expect. Only beyond a number of rows, which is large unless films are embedded, is it cut into
`{stage}_{split}-00000.parquet` and so on; the recipes find those too (`${cxr.files:...}`). Row groups have a fixed
number of rows: the bytes of a file depend on its rows alone.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from verl_cxr.data.prompt import Stage

__all__ = ["EMBEDDED_ROWS", "PATH_ROWS", "RowFiles", "data_files", "embeds_images", "row_schema"]

PATH_ROWS, EMBEDDED_ROWS = 1_000_000, 5_000
"""Rows that a file holds at most, with films by path and with films in it."""
_GROUP = {False: 2048, True: 128}  # rows of a row group, without and with films


def row_schema(stage: Stage, *, embed_images: bool) -> pa.Schema:
    """Column types of a stage's rows, as `verl_cxr.data.rows.make_row` makes them."""
    messages = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    image = pa.struct([("bytes", pa.binary())] if embed_images else [("image", pa.string())])
    extra_info = pa.struct(
        [
            ("index", pa.int64()),
            ("id", pa.string()),
            ("patient", pa.string()),
            ("split", pa.string()),
            ("view", pa.string()),
            ("stage", pa.string()),
            ("box_frame", pa.string()),
            ("processed_size", pa.list_(pa.int64())),
        ]
    )
    shared = [("data_source", pa.string()), ("images", pa.list_(image)), ("extra_info", extra_info)]
    if stage is not Stage.GRPO:
        return pa.schema([("messages", messages), *shared])
    reward_model = pa.struct([("style", pa.string()), ("ground_truth", pa.string())])
    return pa.schema([("prompt", messages), *shared, ("ability", pa.string()), ("reward_model", reward_model)])


def embeds_images(schema: pa.Schema) -> bool:
    """Whether rows of these columns hold image bytes."""
    return schema.field("images").type.value_type.get_field_index("bytes") >= 0  # type: ignore[no-any-return]


def data_files(folder: Path, stage: str, split: str) -> list[Path]:
    """The files of a stage and split in a build's folder, in order; empty if there are none."""
    whole = folder / f"{stage}_{split}.parquet"
    shards = sorted(path for path in folder.glob(f"{stage}_{split}-*.parquet") if path.stem[-5:].isdigit())
    return [whole] if whole.exists() else shards


class RowFiles:
    """Writes the files of a build into a folder, from tables of rows in their order. Close it by `finish`.

    Args:
        shard_rows: rows that a file holds at most.
    """

    def __init__(self, folder: Path, *, shard_rows: int | None = None) -> None:
        self._folder = folder
        self._shard_rows = shard_rows
        self._series: dict[tuple[str, str], _Series] = {}

    def add(self, stage: str, split: str, table: pa.Table) -> None:
        """Append rows, whose `extra_info.index` becomes their place among the rows of this stage and split."""
        series = self._series.get((stage, split))
        if series is None:
            embeds = embeds_images(table.schema)
            shard_rows = self._shard_rows or (EMBEDDED_ROWS if embeds else PATH_ROWS)
            series = _Series(self._folder, f"{stage}_{split}", table.schema, _GROUP[embeds], shard_rows)
            self._series[stage, split] = series
        series.add(table)

    def finish(self) -> dict[str, tuple[int, str]]:
        """Write what is pending, and return rows and SHA-256 by file name."""
        files: dict[str, tuple[int, str]] = {}
        for series in self._series.values():
            files |= series.finish()
        return files


class _Series:
    """The one file, or the numbered files, of a stage and split."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema, group: int, shard_rows: int) -> None:
        self._folder, self._name, self._schema = folder, name, schema
        self._group, self._shard_rows = group, shard_rows
        self._pending: list[pa.Table] = []
        self._pending_rows = self._index = 0
        self._file: _OpenFile | None = None
        self._done: list[tuple[int, str]] = []

    def add(self, table: pa.Table) -> None:
        self._pending.append(_indexed(table, self._index))
        self._index += table.num_rows
        self._pending_rows += table.num_rows
        self._write(least=self._group)

    def finish(self) -> dict[str, tuple[int, str]]:
        self._write(least=1)
        self._close()
        if len(self._done) == 1:
            self._path(0).rename(self._folder / f"{self._name}.parquet")
            return {f"{self._name}.parquet": self._done[0]}
        return {self._path(number).name: done for number, done in enumerate(self._done)}

    def _write(self, *, least: int) -> None:
        while self._pending_rows >= least:
            table = pa.concat_tables(self._pending)
            if self._file is None:
                self._file = _OpenFile(self._path(len(self._done)), self._schema)
            rows = min(self._group, self._shard_rows - self._file.rows, table.num_rows)
            self._file.write(table.slice(0, rows))
            self._pending, self._pending_rows = [table.slice(rows)], table.num_rows - rows
            if self._file.rows == self._shard_rows:
                self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._done.append(self._file.close())
            self._file = None

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:05d}.parquet"


class _OpenFile:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._hashing = _Hashing(path.open("wb"))
        self._writer = pq.ParquetWriter(self._hashing, schema, compression="zstd")

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.rows += table.num_rows

    def close(self) -> tuple[int, str]:
        self._writer.close()
        self._hashing.close()
        return self.rows, self._hashing.sha256.hexdigest()


class _Hashing:
    """The part of a binary file that a parquet writer uses, hashing what passes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed


def _indexed(table: pa.Table, first: int) -> pa.Table:
    place = table.schema.get_field_index("extra_info")
    info = table.column(place).combine_chunks()
    cells = [
        pa.array(range(first, first + table.num_rows), pa.int64()) if field.name == "index" else info.field(at)
        for at, field in enumerate(info.type)
    ]
    return table.set_column(place, table.schema.field(place), pa.StructArray.from_arrays(cells, fields=list(info.type)))
