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
"""Unpacks a downloaded archive into a folder, and nowhere else."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

__all__ = ["MAX_BYTES", "ArchiveError", "unpack"]

MAX_BYTES = 8 << 30
"""More than any archive here holds: a compressed bomb stops at it."""


class ArchiveError(ValueError):
    """An archive that is damaged, too large, or that holds anything but plain files and folders below its root."""


def unpack(archive: Path, folder: Path, *, max_bytes: int = MAX_BYTES) -> None:
    """Write the files of a ``.tar.gz`` below `folder`, with plain permissions.

    Raises:
        ArchiveError: see there; files before the bad one may have been written.
    """
    left = max_bytes
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            for member in tar:
                target = folder / _inside(member.name)
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                if not member.isreg():
                    raise ArchiveError(f"{member.name!r} is neither a plain file nor a folder")
                left -= member.size
                if left < 0:
                    raise ArchiveError(f"more than {max_bytes:,} bytes at {member.name!r}")
                target.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                if source is None:
                    raise ArchiveError(f"{member.name!r} cannot be read")
                with source, target.open("xb") as file:
                    shutil.copyfileobj(source, file)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ArchiveError(f"damaged archive: {error}") from error


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise ArchiveError(f"{name!r} points outside of its folder")
    return path
