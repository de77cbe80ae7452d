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
"""Answers of a slow look-up, kept in memory, and on disk where a folder is given."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from verl_cxr.files import replacing
from verl_cxr.once import Once

__all__ = ["KeptAnswers"]


class KeptAnswers:
    """Asks for each name once; threads that want the same name at one time wait for the first of them.

    Args:
        folder: for one file an answer, which several processes may share; None keeps none.
        stamp: all that an answer depends on beside the name: another stamp has other answers.
    """

    def __init__(self, folder: Path | None, *, stamp: Mapping[str, Any]) -> None:
        self._folder, self._stamp = folder, orjson.dumps(dict(stamp), option=orjson.OPT_SORT_KEYS)
        self._answers: Once[str, str] = Once()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, ask: Callable[[], str]) -> str:
        """The answer for a name, from ``ask`` if nothing is kept. An error of ``ask`` is raised, and not kept."""
        return self._answers.get(name, lambda: self._from_disk_or_asked(name, ask))

    def _from_disk_or_asked(self, name: str, ask: Callable[[], str]) -> str:
        text = self._read(name)
        if text is None:
            text = ask()
            self._write(name, text)
        return text

    def _read(self, name: str) -> str | None:
        """The answer on disk; None if there is none, or a damaged one."""
        if self._folder is None:
            return None
        try:
            record = orjson.loads(self._path(self._folder, name).read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            return None
        text = record.get("text") if isinstance(record, dict) and record.get("name") == name else None
        return text if isinstance(text, str) else None

    def _write(self, name: str, text: str) -> None:
        if self._folder is not None:
            with replacing(self._path(self._folder, name)) as file:
                file.write(orjson.dumps({"name": name, "text": text}))

    def _path(self, folder: Path, name: str) -> Path:
        digest = hashlib.sha256(self._stamp + b"\0" + name.encode(errors="surrogatepass")).hexdigest()
        return folder / f"{digest[:40]}.json"
