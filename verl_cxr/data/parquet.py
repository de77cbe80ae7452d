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
"""Parquet files of rows, `{stage}_{split}.parquet`, written batch by batch and published together, or not at all."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_cxr.data.prompt import Stage
from verl_cxr.files import replacing

__all__ = ["ParquetSet", "row_schema"]

_BATCH_ROWS = 256  # bounds memory when images are embedded


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


class ParquetSet:
    """The parquet files of one build. Leaving the `with` block by an exception leaves the folder as it was.

    Args:
        folder: created if needed.
        embed_images: whether rows hold image bytes or image paths.
    """

    def __init__(self, folder: Path, *, embed_images: bool) -> None:
        self.folder = folder
        self.embed_images = embed_images
        self.counts: dict[str, int] = {}
        """Rows by file name, in the order in which the files were begun."""
        self._pending: dict[str, list[dict[str, Any]]] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._stack = ExitStack()

    def __enter__(self) -> ParquetSet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for name in self._writers:
                    self._flush(name)
        except BaseException as late:
            self._stack.__exit__(type(late), late, late.__traceback__)
            raise
        self._stack.__exit__(kind, error, trace)

    def next_index(self, stage: Stage, split: str) -> int:
        """Place of the row that `add` takes next for this stage and split."""
        return self.counts.get(_file_name(stage, split), 0)

    def add(self, stage: Stage, split: str, row: dict[str, Any]) -> None:
        """Append a row to the file of its stage and split."""
        name = _file_name(stage, split)
        if name not in self._writers:
            file = self._stack.enter_context(replacing(self.folder / name))
            schema = row_schema(stage, embed_images=self.embed_images)
            self._writers[name] = self._stack.enter_context(pq.ParquetWriter(file, schema, compression="zstd"))
            self._pending[name] = []
            self.counts[name] = 0
        self._pending[name].append(row)
        self.counts[name] += 1
        if len(self._pending[name]) >= _BATCH_ROWS:
            self._flush(name)

    def _flush(self, name: str) -> None:
        rows, writer = self._pending[name], self._writers[name]
        if rows or not self.counts[name]:
            writer.write_table(pa.Table.from_pylist(rows, schema=writer.schema))
        self._pending[name] = []


def _file_name(stage: Stage, split: str) -> str:
    return f"{stage.value}_{split}.parquet"
