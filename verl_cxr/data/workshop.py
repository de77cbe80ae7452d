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
"""The working folder of a build, `OUT/.build`: what survives when a build is killed, and how the rest is published.

It holds the settings, the parts made so far, and at the end the finished files. These are moved into the build's folder
only when all of them are there, so that at any time the folder holds one whole build or, for the moment of the move, a
list by which the next command completes it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout

from verl_cxr.data.card import CARD_NAME
from verl_cxr.data.parts import Parts
from verl_cxr.files import replacing

__all__ = ["FOLDER", "BusyFolderError", "OtherSettingsError", "Workshop"]

FOLDER = ".build"
_SETTINGS, _PUBLISHING, _LOCK = "settings.json", "publishing.json", "lock"


class OtherSettingsError(ValueError):
    """The folder holds a half-finished build that had other settings."""


class BusyFolderError(RuntimeError):
    """Another process builds into the folder."""


class Workshop:
    """The working folder of a build in `out`. Use `opened`."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out / FOLDER
        self.parts = Parts(self.folder / "parts")
        self.final = self.folder / "final"

    @classmethod
    @contextmanager
    def opened(cls, out: Path) -> Iterator[Workshop]:
        """Hold the folder for this process. If nothing is worth keeping at the end, the working folder goes.

        Raises:
            BusyFolderError: another process has it.
        """
        shop = cls(out)
        shop.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(shop.folder / _LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise BusyFolderError(f"another process is building into {out}") from None
        try:
            yield shop
        finally:
            if not shop.parts.numbers() and not (shop.folder / _PUBLISHING).exists():
                shutil.rmtree(shop.folder, ignore_errors=True)
            lock.release()

    def begin(self, settings: Mapping[str, Any], inputs: Mapping[str, Any], *, restart: bool) -> str | None:
        """Take up the interrupted build of the same settings and inputs, or start anew.

        Args:
            settings: what the rows depend on. JSON values.
            inputs: size and time of the files that the build reads.
            restart: throw an interrupted build away.

        Returns:
            A sentence for the user if there was an interrupted build.

        Raises:
            OtherSettingsError: it had other settings, and `restart` is not set.
        """
        wanted = {"settings": dict(settings), "inputs": dict(inputs)}
        found = self._read(_SETTINGS)
        said = None
        if found is not None and self.parts.numbers():
            if restart:
                said = "the interrupted build in this folder was thrown away"
            elif changed := _differences(found["settings"], wanted["settings"]):
                raise OtherSettingsError(
                    f"{self.out} holds a half-finished build with other settings ({changed}). Finish that one by its "
                    "own command, or start over with --restart"
                )
            elif found["inputs"] != wanted["inputs"]:
                said = "the input changed since the interrupted build in this folder: starting over"
            else:
                return f"continuing the interrupted build: {len(self.parts.numbers())} parts are done"
        self.parts.remove()
        self.parts.remove(kind="filmed")
        self.parts.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / _SETTINGS) as file:
            file.write(orjson.dumps(wanted))
        return said

    def new_final(self) -> Path:
        """An empty folder for the finished files."""
        shutil.rmtree(self.final, ignore_errors=True)
        self.final.mkdir(parents=True)
        return self.final

    def publish(self) -> None:
        """Put the finished files in the place of those of the build before, and clear up."""
        files = sorted(path.name for path in self.final.iterdir())
        before = _parquet_of(self.out / CARD_NAME)
        with replacing(self.folder / _PUBLISHING) as file:
            file.write(orjson.dumps({"files": files, "stale": sorted(before - set(files))}))
        self.complete()

    def complete(self) -> bool:
        """Complete a publication that was interrupted; False if there was none."""
        listed = self._read(_PUBLISHING)
        if listed is None:
            return False
        # the card last: a folder with a card is a whole build
        for name in sorted(listed["files"], key=lambda name: name == CARD_NAME):
            if (self.final / name).exists():
                os.replace(self.final / name, self.out / name)
        for name in listed["stale"]:
            (self.out / Path(name).name).unlink(missing_ok=True)
        self.parts.remove()
        self.parts.remove(kind="filmed")
        (self.folder / _SETTINGS).unlink(missing_ok=True)
        (self.folder / _PUBLISHING).unlink()
        return True

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found = orjson.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None
        return found if isinstance(found, dict) else None


def _parquet_of(card: Path) -> set[str]:
    try:
        return {name for name in orjson.loads(card.read_bytes())["files"] if name.endswith(".parquet")}
    except FileNotFoundError:
        return set()


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    return ", ".join(f"{name}: {found.get(name)!r}, now {wanted.get(name)!r}" for name in names)
