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
"""Reports that the section rules misread, and what to take instead, from a file.

Two forms are read. JSON or YAML of one's own, by study::

    s50000001: recommendations      # the impression stands under this header
    s50000002: [201, 349]           # the impression is these characters of the file

And `section_parser.py` as it was published with MIMIC-CXR: its tables `custom_section_names` and `custom_indices`, some
50 studies, are taken from the text of the program, which is not run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from verl_cxr.files import RecordError, kind_of

__all__ = ["Override", "read_overrides"]

Override = str | tuple[int, int]
_TABLES = ("custom_section_names", "custom_indices")


def read_overrides(path: Path) -> dict[str, Override]:
    """The overrides by study, for instance `s50000001`.

    Raises:
        RecordError: the file holds something else.
    """
    text = path.read_text(encoding="utf-8")
    try:
        table = _published(text) if path.suffix == ".py" else yaml.safe_load(text)
    except (SyntaxError, ValueError, yaml.YAMLError) as error:
        raise RecordError("", f"cannot be read: {str(error)[:200]}", file=str(path)) from None
    if not isinstance(table, Mapping):
        raise RecordError("", f"overrides are an object by study, not {kind_of(table)}", file=str(path))
    return {str(study): _override(study, value, path) for study, value in table.items()}


def _override(study: object, value: Any, path: Path) -> Override:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(type(n) is int and n >= 0 for n in value):
        return value[0], value[1]
    message = f"must be the name of a section or [first, last] character, not {str(value)[:60]}"
    raise RecordError(str(study), message, file=str(path))


def _published(program: str) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for node in ast.walk(ast.parse(program)):
        if not isinstance(node, ast.Assign):
            continue
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if any(name in _TABLES for name in names):
            tables |= ast.literal_eval(node.value)
    if not tables:
        raise ValueError(f"the program has no table {' or '.join(_TABLES)}")
    return tables
