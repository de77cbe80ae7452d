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
"""The image files of a build: checked, scaled down, and rewritten where verl could not open them as they are.

verl opens an image with PIL and converts it to RGB. That shows a file of 8 bits a channel as it is; of one with more,
such as a 16-bit PNG, it would show white, and it opens no DICOM file. Such films are read by `verl_cxr.film` and
written again as 8-bit PNG.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image

from verl_cxr.files import replacing
from verl_cxr.film import FilmError, FilmHead, film_head, open_image

__all__ = ["FilmJob", "film_name", "fitted", "look_at"]

_JPEG_QUALITY = 95
_TAIL = 64  # bytes; some writers pad a file behind its end mark
_END_MARKS = {b"\xff\xd8\xff": b"\xff\xd9", b"\x89PN": b"IEND\xae\x42\x60\x82"}
_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)


def look_at(path: str | os.PathLike[str]) -> FilmHead:
    """Read the head of an image file, and check that a JPEG or PNG file has its end; the pixels are not decoded.

    Raises:
        FilmError: the file is missing, is no image, is cut off, or claims more pixels than a film can have.
    """
    head = film_head(path)
    with open(path, "rb", buffering=0) as file:
        mark = _END_MARKS.get(file.read(3))
        if mark is not None:
            file.seek(-min(_TAIL, os.fstat(file.fileno()).st_size), os.SEEK_END)
            if mark not in file.read():
                raise FilmError("image file cut off", path)
    return head


def fitted(width: int, height: int, max_side: int | None) -> tuple[int, int]:
    """The size (width, height) in pixels of a film whose longer side is at most `max_side`, in its own proportions."""
    longer = max(width, height)
    if max_side is None or longer <= max_side:
        return width, height
    return max(1, round(width * max_side / longer)), max(1, round(height * max_side / longer))


def film_name(record_id: str, source: str | os.PathLike[str]) -> str:
    """A file name for the rewritten film of a record: its id where that is safe, and JPEG for what was JPEG."""
    name = _UNSAFE.sub("_", record_id).lstrip(".") or "_"
    if name != record_id or len(name) > 100:
        distinct = hashlib.blake2b(record_id.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        name = f"{name[:100]}-{distinct}"
    return name + (".jpg" if Path(source).suffix.lower() in (".jpg", ".jpeg") else ".png")


@dataclass(frozen=True, slots=True)
class FilmJob:
    """A film to be put into a build.

    Attributes:
        source: its file.
        target: the file to write; None embeds it in the row.
        width, height: in pixels, of the film as it is to be; None takes over the source's bytes as they are.
    """

    source: str
    target: str | None
    width: int | None
    height: int | None

    def do(self) -> bytes | None:
        """Write the target, or return the bytes to embed.

        Raises:
            FilmError: the source cannot be read or decoded.
        """
        data = self._encoded() if self.width and self.height else _bytes(self.source)
        if self.target is None:
            return data
        with replacing(self.target) as file:
            file.write(data)
        return None

    def _encoded(self) -> bytes:
        size = (self.width or 0, self.height or 0)
        shown = _reduced(self.source, size) if film_head(self.source).plain else open_image(self.source)
        scaled = shown.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0) if shown.size != size else shown
        out = BytesIO()
        jpeg = (self.target or self.source).lower().endswith((".jpg", ".jpeg"))
        scaled.save(out, **({"format": "JPEG", "quality": _JPEG_QUALITY} if jpeg else {"format": "PNG"}))
        return out.getvalue()


def _reduced(source: str, size: tuple[int, int]) -> Image.Image:
    """The film at `size` or larger: a JPEG is decoded at a half, a quarter or an eighth, which takes less time."""
    try:
        with Image.open(source) as image:
            image.draft("L" if image.mode == "L" else None, size)
            return image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    except (OSError, SyntaxError, ValueError, TypeError, EOFError, Image.DecompressionBombError) as error:
        raise FilmError("image file unreadable", source) from error


def _bytes(source: str) -> bytes:
    try:
        return Path(source).read_bytes()
    except FileNotFoundError:
        raise FilmError("image file missing", source) from None
    except OSError as error:
        raise FilmError("image file unreadable", source) from error
