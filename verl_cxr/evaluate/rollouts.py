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
"""Reads verl's dumps of validation rollouts (``trainer.validation_data_dir``, one JSONL file a validation)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from verl_cxr.files import RecordError, read_records

__all__ = ["film_means"]


def film_means(dump: Path, keys: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean of each key over the rollouts of a film: ``{study id: {key: mean}}``, in the order of the ids.

    Args:
        dump: a file of rows with ``gts`` (the JSON text of a grounded study), ``score`` and the reward record's keys.
        keys: which numbers; ``reward`` is verl's ``score``.

    Raises:
        RecordError: a row without one of the keys.
    """
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, row in read_records(dump):
        for key in keys:
            column = "score" if key == "reward" else key
            if not isinstance(row.get(column), (int, float)):
                raise RecordError(column, "is not a number in this rollout", file=str(dump), row=number)
            values[_study_id(row, dump, number)][key].append(float(row[column]))
    return {film: {key: sum(found) / len(found) for key, found in values[film].items()} for film in sorted(values)}


def _study_id(row: dict[str, object], dump: Path, number: int) -> str:
    try:
        return str(json.loads(str(row["gts"]))["id"])
    except (KeyError, TypeError, json.JSONDecodeError):
        raise RecordError("gts", "is not the JSON text of a grounded study", file=str(dump), row=number) from None
