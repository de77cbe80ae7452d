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
"""The one place where a film's image file is read: PNG, JPEG and whatever else Pillow opens, and DICOM.

A film is 8 bits a channel here, as a radiologist is shown it. What a DICOM file says of its grey scale and of its
orientation is followed (`verl_cxr.dicom`). A picture of more than 8 bits in another format says nothing of the kind: it
is stretched from its smallest to its largest value. Orientation tags of JPEG (EXIF) are not followed, because verl does
not follow them either, and boxes are drawn on the stored pixels.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from verl_cxr.dicom.orientation import Orientation
from verl_cxr.dicom.read import DicomError, DicomHead, dicom_pixels, is_dicom, read_head
from verl_cxr.study import View

__all__ = ["MAX_PIXELS", "Film", "FilmError", "FilmHead", "film_head", "film_size", "open_image", "read_film"]

MAX_PIXELS = 100_000_000
"""A film of more pixels is taken for an attack: the largest detectors have some 20 million."""

_PLAIN_MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"})
_GREY_MODES = frozenset({"1", "L", "LA"})
_MAX_BYTES = 1 << 30
_HEAD = 132
_AS_STORED = Orientation()


class FilmError(ValueError):
    """An image file that holds no film.

    Attributes:
        reason: a few words, the same for all files that share it.
    """

    def __init__(self, reason: str, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(reason if path is None else f"{os.fspath(path)}: {reason}")
        self.reason, self.path = reason, path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.path)  # so that it crosses processes


@dataclass(frozen=True, slots=True)
class FilmHead:
    """What the head of an image file says.

    Attributes:
        width, height: of the film as it is shown, in pixels.
        plain: whether `Image.open(path).convert("RGB")`, which is what verl does, shows the film as it is.
        orientation: how the stored pixels become the film; boxes drawn on them move along.
    """

    width: int
    height: int
    plain: bool
    orientation: Orientation = _AS_STORED

    @property
    def size(self) -> tuple[int, int]:
        """(width, height)."""
        return self.width, self.height


@dataclass(frozen=True, slots=True)
class Film:
    """A film to be measured.

    Attributes:
        pixels: grey, shape [height, width], 0 black.
        spacing: millimetres between rows and between columns; None if the file does not state them. Of the detector
            where the file does not state them for the patient.
        view: as a DICOM tag states it, which is often wrong; None for other files.
        sha256: of the file's bytes, in hexadecimal.
    """

    pixels: npt.NDArray[np.uint8]
    spacing: tuple[float, float] | None
    view: View | None
    path: Path
    sha256: str


def film_head(path: str | os.PathLike[str]) -> FilmHead:
    """Read the head of an image file; its pixels are not decoded.

    Raises:
        FilmError: the file is missing, holds no film, or claims more than `MAX_PIXELS`.
        ImportError: it is a DICOM file and pydicom is not installed.
    """
    with _failing_as_film_error(path), open(path, "rb") as file:
        start = file.read(_HEAD)
        file.seek(0)
        if is_dicom(start):
            head = read_head(file, max_pixels=MAX_PIXELS)
            return FilmHead(head.width, head.height, plain=False, orientation=head.orientation)
        with Image.open(file) as image:
            _refuse_bomb(image)
            return FilmHead(*image.size, plain=image.mode in _PLAIN_MODES)


def film_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """(width, height) of a film in pixels; see `film_head` for the errors."""
    return film_head(path).size


def open_image(path: str | os.PathLike[str]) -> Image.Image:
    """The film as a picture of mode L, or RGB if it has colours, for training rows and pages.

    Raises:
        FilmError: the file is missing, or holds no film.
        ImportError: it is a DICOM file, and pydicom or a decoder is not installed.
    """
    return _decoded(path, _bytes(path))[0]


def read_film(path: str | os.PathLike[str]) -> Film:
    """Read a film with what its file says of it, to be measured; colours become grey.

    Raises:
        FilmError: the file is missing, or holds no film.
        ImportError: it is a DICOM file, and pydicom or a decoder is not installed.
    """
    data = _bytes(path)
    image, head = _decoded(path, data)
    return Film(
        pixels=np.asarray(image.convert("L"), dtype=np.uint8),
        spacing=head.spacing if head else None,
        view=head.view if head else None,
        path=Path(path),
        sha256=hashlib.sha256(data).hexdigest(),
    )


@contextmanager
def _failing_as_film_error(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            yield
    except FilmError:
        raise
    except DicomError as error:
        raise FilmError(str(error), path) from error
    except FileNotFoundError:
        raise FilmError("image file missing", path) from None
    except Image.DecompressionBombError:
        raise FilmError("image file claims too many pixels", path) from None
    except UnidentifiedImageError:
        raise FilmError("not an image file", path) from None
    except (OSError, SyntaxError, ValueError, TypeError, EOFError, IndexError, KeyError, OverflowError) as error:
        # Pillow's readers of damaged files raise any of these.
        raise FilmError("image file unreadable", path) from error


def _bytes(path: str | os.PathLike[str]) -> bytes:
    with _failing_as_film_error(path), open(path, "rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise FilmError("image file too large", path)
    return data


def _refuse_bomb(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise FilmError("image file claims too many pixels")


def _decoded(path: str | os.PathLike[str], data: bytes) -> tuple[Image.Image, DicomHead | None]:
    with _failing_as_film_error(path):
        if is_dicom(data):
            pixels, head = dicom_pixels(data, max_pixels=MAX_PIXELS)
            return Image.fromarray(pixels), head
        with Image.open(BytesIO(data)) as image:
            _refuse_bomb(image)
            image.load()
            return _eight_bits(image), None


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode in _PLAIN_MODES:
        return image.convert("L" if image.mode in _GREY_MODES else "RGB")
    values = np.asarray(image, dtype=np.float64)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise FilmError("image file of an unknown kind")
    low, high = float(values.min()), float(values.max())
    scaled = np.rint((values - low) * (255.0 / (high - low))) if high > low else np.zeros_like(values)
    return Image.fromarray(scaled.astype(np.uint8))
