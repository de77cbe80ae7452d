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
"""Trajectories of a run as JSON lines, one file a split and step, for ``verl-cxr score``, ``evaluate`` and ``view``."""

from __future__ import annotations

import os
import re
from pathlib import Path

import orjson

from verl_cxr.trajectory import Trajectory

__all__ = ["append_trajectory"]


def append_trajectory(folder: Path, name: str, trajectory: Trajectory) -> Path:
    """Append one line to ``FOLDER/NAME.jsonl``, in one write, so that the workers of a node may share the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.jsonl"
    line = orjson.dumps(trajectory.to_dict(), option=orjson.OPT_APPEND_NEWLINE)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)
    return path
