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
"""The reference texts of a data set: what a reward will compare with, known before training."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verl_cxr.files import RecordError
from verl_cxr.study import Study, read_studies

__all__ = ["reference_texts"]


def reference_texts(path: str | os.PathLike[str], *, reports: bool = False) -> Iterator[str]:
    """The distinct findings of the annotated regions, and with `reports` also the reports, in order; none is blank.

    Args:
        path: studies (JSONL, plain or gzipped) or verl's rows for reinforcement learning (parquet), whose
            ``reward_model.ground_truth`` is a study.

    Raises:
        RecordError: the file, and its row and field, that are not what they should be.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    seen: set[str] = set()
    for study in _rows(path) if path.suffix == ".parquet" else read_studies(path):
        texts = [region.finding for region in study.regions]
        if reports:
            texts.append(study.report.text)
        for text in texts:
            if text.strip() and text not in seen:
                seen.add(text)
                yield text


def _rows(path: Path) -> Iterator[Study]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with pq.ParquetFile(path) as file:
            if "reward_model" not in file.schema_arrow.names:
                problem = "missing: give the rows of the reinforcement learning stage, or the studies themselves"
                raise RecordError("reward_model", problem, file=str(path))
            row = 0
            for batch in file.iter_batches(batch_size=1024, columns=["reward_model"]):
                for cell in batch.column(0).to_pylist():
                    row += 1
                    yield _study(cell, path, row)
    except pa.ArrowInvalid as error:
        raise RecordError("", f"not a parquet file: {error}", file=str(path)) from None


def _study(cell: Any, path: Path, row: int) -> Study:
    truth: Any = cell.get("ground_truth") if isinstance(cell, dict) else None
    try:
        return Study.from_dict(json.loads(truth), root=Path())
    except RecordError as error:
        raise error.at(path, row) from None
    except (TypeError, ValueError) as error:
        problem = f"not the JSON text of a study: {error}"
        raise RecordError("reward_model.ground_truth", problem, file=str(path), row=row) from None
