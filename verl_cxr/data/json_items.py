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
"""The members of a large JSON array or object, one by one, so that a file of any size is read in flat memory.

Question sets and annotations come as one JSON document of up to some gigabytes. A member is decoded by Python's own
reader, which takes the `NaN` that pandas writes. What follows a place that is not JSON cannot be told apart and is
lost: it is reported, and what came before it counts.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from verl_cxr.data.adapters import BuildContext
from verl_cxr.files import RecordError, kind_of

__all__ = ["json_items", "json_members", "read_document"]

_CHUNK = 1 << 20  # characters
_LARGEST = 64 << 20  # characters of one member
_DOCUMENT = 256 << 20  # bytes
_NEAR_END = 64  # characters; an error so near the end may be a member that goes on in the next chunk
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER_GOES_ON = re.compile(r"[-+.eE0-9]*")
_DECODER = json.JSONDecoder()


def json_items(path: Path, context: BuildContext) -> Iterator[tuple[int, Any]]:
    """The items of a file that holds a JSON array, each with its number from 1; gzipped if it is named ``.gz``.

    Raises:
        RecordError: the file does not hold an array, or `context` is strict and the file is damaged.
        FileNotFoundError: no such file.
    """
    for row, (_, item) in enumerate(_members(path, context, "["), start=1):
        yield row, item


def json_members(path: Path, context: BuildContext) -> Iterator[tuple[int, str, Any]]:
    """The keys and values of a file that holds a JSON object, each with its number from 1; see `json_items`.

    Raises:
        RecordError: the file does not hold an object, or `context` is strict and the file is damaged.
        FileNotFoundError: no such file.
    """
    for row, (key, value) in enumerate(_members(path, context, "{"), start=1):
        yield row, key, value


def read_document(path: Path) -> Any:
    """The whole of a JSON file of moderate size; gzipped if it is named ``.gz``.

    Raises:
        RecordError: it is damaged, or larger than 256 MiB.
        FileNotFoundError: no such file.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(_DOCUMENT + 1)
        if len(data) > _DOCUMENT:
            raise RecordError("", f"too large: more than {_DOCUMENT >> 20} MiB", file=str(path))
        return json.loads(data)
    except FileNotFoundError:
        raise
    except (EOFError, OSError, zlib.error) as error:
        raise RecordError("", f"cannot be read: {error}", file=str(path)) from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError("", f"not JSON: {error}", file=str(path)) from None


class _Reader:
    """A window over a text file that grows while a member needs more of it."""

    def __init__(self, file: TextIO) -> None:
        self._file, self.text, self.at, self.ended = file, "", 0, False

    def more(self) -> bool:
        """Take another chunk in; False at the end of the file."""
        chunk = self._file.read(max(_CHUNK, len(self.text) - self.at))
        self.ended = not chunk
        self.text, self.at = self.text[self.at :] + chunk, 0
        return not self.ended

    def peek(self) -> str:
        """The next character that is not white space; empty at the end of the file."""
        while True:
            match = _SPACE.match(self.text, self.at)
            assert match is not None
            self.at = match.end()
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def take(self, expected: str) -> None:
        found = self.peek()
        if found not in expected or not found:
            raise ValueError(f"expected {' or '.join(expected)}, found {found!r}" if found else "the file ends early")
        self.at += 1

    def value(self) -> Any:
        """Decode the next value."""
        if not self.peek():
            raise ValueError("the file ends early")
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                cut = error.pos >= len(self.text) - _NEAR_END or error.msg.startswith("Unterminated string")
                if not cut or not self._may_grow() or not self.more():
                    raise
                continue
            # A number may go on in the next chunk: 1 may become 12, 1.5 or 1e5.
            if self.ended or not _NUMBER_GOES_ON.fullmatch(self.text, end):
                self.at = end
                return value
            self.more()

    def _may_grow(self) -> bool:
        if len(self.text) - self.at > _LARGEST:
            raise ValueError(f"a member has more than {_LARGEST >> 20} million characters")
        return not self.ended


def _members(path: Path, context: BuildContext, opening: str) -> Iterator[tuple[str, Any]]:
    closing = {"[": "]", "{": "}"}[opening]
    row = 1
    with _open(path) as file:
        reader = _Reader(file)
        try:
            if reader.peek() != opening:
                wanted = "an array" if opening == "[" else "an object"
                found = kind_of(_sample_of(reader.peek()))
                raise RecordError("", f"the file must hold {wanted}, not {found}", file=str(path))
            reader.at += 1
            if reader.peek() == closing:
                return
            while True:
                key = ""
                if opening == "{":
                    key = reader.value()
                    if not isinstance(key, str):
                        raise ValueError(f"a key must be text, not {kind_of(key)}")
                    reader.take(":")
                yield key, reader.value()
                row += 1
                reader.take("," + closing)
                if reader.text[reader.at - 1] == closing:
                    return
        except RecordError:
            raise
        except (ValueError, RecursionError, EOFError, OSError, zlib.error) as error:
            context.problem(path, row, "", f"not JSON from here on, the rest is lost: {error}")


def _sample_of(character: str) -> Any:
    return {"[": [], "{": {}, '"': "", "t": True, "f": False, "n": None, "": None}.get(character, 0)


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace")
    return path.open(encoding="utf-8-sig", errors="replace")
