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
"""Many small files, read in any order: from a folder, or from a zip file that is never unpacked.

A zip file's directory is kept as three numbers and a key a member, and a member is found by its key, so that the
243,310 scene graphs cost some 20 MB. A member is read by its place alone, in any process. Sizes are bounded: neither a
member's declared size nor its inflated one may exceed the limit, whatever the archive says.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from verl_cxr.files import RecordError

__all__ = ["MemberError", "Place", "ZipIndex", "read_place"]

_LOCAL_HEADER = 30  # bytes before the name; the lengths of name and extra field are its last four
_STORED, _DEFLATED = 0, 8


class MemberError(RecordError):
    """A file of an archive that cannot be read."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of one file are: a file of its own, or a member of a zip file.

    Attributes:
        path: the file or the zip file.
        offset: of the member's local header in the zip file; None for a file of its own.
        size: compressed size of the member, in bytes.
        crc: the checksum that the zip file states.
    """

    path: Path
    offset: int | None = None
    size: int = 0
    crc: int = 0


class ZipIndex:
    """The members of a zip file by key.

    Args:
        path: the zip file.
        pattern: matched against the whole name of a member; its first group is the key. Others are passed over.

    Raises:
        MemberError: not a zip file.
    """

    def __init__(self, path: Path, pattern: str) -> None:
        self.path = path
        match = re.compile(pattern).fullmatch
        rows = []
        try:
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    if found := match(info.filename):
                        rows.append((found[1], info.header_offset, info.compress_size, info.CRC))
        except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
            raise MemberError("", f"not a sound zip file: {error}", file=str(path)) from None
        rows.sort(key=lambda row: row[0])
        self._keys: npt.NDArray[np.bytes_] = np.array([row[0] for row in rows], dtype="S")
        self._places = np.array([row[1:] for row in rows], dtype=np.int64).reshape(-1, 3)

    def __len__(self) -> int:
        return len(self._keys)

    def place(self, key: str) -> Place | None:
        """Where the member of a key is; None if there is none. Of several with one key, the first in the file."""
        if not len(self._keys):
            return None
        index = int(np.searchsorted(self._keys, key.encode()))
        if index == len(self._keys) or self._keys[index] != key.encode():
            return None
        offset, size, crc = self._places[index].tolist()
        return Place(self.path, offset, size, crc)


def read_place(place: Place, *, limit: int) -> bytes:
    """The bytes of a file.

    Args:
        limit: the most bytes that it may have.

    Raises:
        MemberError: it is larger, damaged, or compressed in a way that is not known.
        FileNotFoundError: there is no such file.
    """
    if place.offset is None:
        with open(place.path, "rb", buffering=0) as file:
            data = file.read(limit + 1)
    else:
        data = _inflate(place, limit)
    if len(data) > limit:
        raise MemberError("", f"too large: more than {limit:,} bytes where a few thousand are usual", file=_name(place))
    return data


def _inflate(place: Place, limit: int) -> bytes:
    assert place.offset is not None
    if place.size > limit:
        raise MemberError("", f"too large: {place.size:,} bytes, compressed", file=_name(place))
    file = _open(place.path)
    header = os.pread(file, _LOCAL_HEADER, place.offset)
    if len(header) < _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
        raise MemberError("", "damaged zip member: no local header", file=_name(place))
    method = int.from_bytes(header[8:10], "little")
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    data = os.pread(file, place.size, place.offset + _LOCAL_HEADER + names)
    if method == _DEFLATED:
        try:
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, limit + 1)
        except zlib.error as error:
            raise MemberError("", f"damaged zip member: {error}", file=_name(place)) from None
    elif method != _STORED:
        raise MemberError("", f"unknown compression: method {method} of a zip member", file=_name(place))
    if len(data) <= limit and zlib.crc32(data) != place.crc:
        raise MemberError("", "damaged zip member: its checksum is wrong", file=_name(place))
    return data


@lru_cache(maxsize=8)
def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY)  # open until the process ends; pread needs no position of its own


def _name(place: Place) -> str:
    return str(place.path) if place.offset is None else f"{place.path} at byte {place.offset}"
