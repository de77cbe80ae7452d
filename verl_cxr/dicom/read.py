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
"""A projection radiograph in a DICOM file: its tags, and its upright 8-bit picture.

pydicom is imported when a file is read. It decodes uncompressed, RLE, JPEG and JPEG 2000 data with what is installed
here; JPEG Lossless and JPEG-LS need python-gdcm too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, cast

import numpy.typing as npt

from verl_cxr.dicom.orientation import Orientation
from verl_cxr.dicom.shown import Pixels, colour_as_shown, grey_as_shown
from verl_cxr.study import View

if TYPE_CHECKING:
    from pydicom import Dataset

__all__ = ["DicomError", "DicomHead", "dicom_pixels", "is_dicom", "read_head"]

_INSTALL = "pip install 'verl-cxr[dicom]'"
_MARK = slice(128, 132)
_DEFLATED = "1.2.840.10008.1.2.1.99"
_HEAD_TAGS = (
    "Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation", "PatientOrientation",
    "ViewPosition", "PixelSpacing", "ImagerPixelSpacing",
)  # fmt: skip
_VIEW_OF: dict[str, View] = {"PA": "PA", "AP": "AP", "LL": "LATERAL", "RL": "LATERAL", "LATERAL": "LATERAL"}


class DicomError(ValueError):
    """A DICOM file that holds no film. The message is a short reason, the same for all files that share it."""


@dataclass(frozen=True, slots=True)
class DicomHead:
    """What the tags of a film say.

    Attributes:
        width, height: of the upright film, in pixels.
        spacing: millimetres between the rows and between the columns of the upright film; of the detector, where the
            file does not state them for the patient.
        view: as the tag states it, which is often wrong (in Open-i for 1,380 of 3,647 lateral films).
    """

    width: int
    height: int
    spacing: tuple[float, float] | None
    view: View | None
    orientation: Orientation


def is_dicom(data: bytes) -> bool:
    """Whether a file that starts with these bytes is a DICOM file."""
    return data[_MARK] == b"DICM"


def read_head(file: IO[bytes], *, max_pixels: int) -> DicomHead:
    """Read the tags of a film; its pixels stay unread.

    Raises:
        DicomError: it is no DICOM file, or one of something else than a single film.
        ImportError: pydicom is not installed.
    """
    return _head(_dataset(file, pixels=False), max_pixels)


def dicom_pixels(data: bytes, *, max_pixels: int) -> tuple[Pixels, DicomHead]:
    """Decode a film.

    Args:
        data: the file.

    Raises:
        DicomError: it is no DICOM file, one of something else than a single film, or damaged.
        ImportError: pydicom, or the decoder that the file's compression needs, is not installed.
    """
    dataset = _dataset(BytesIO(data), pixels=True)
    head = _head(dataset, max_pixels)
    if "PixelData" not in dataset:
        raise DicomError("DICOM file without pixels")
    with _failing_as_dicom_error():
        stored = _decoded(dataset)
        grey = stored.ndim == 2
        shown = grey_as_shown(stored, dataset) if grey else colour_as_shown(stored, dataset)
    return head.orientation.apply(shown), head


@contextmanager
def _failing_as_dicom_error() -> Iterator[None]:
    """pydicom has no error class of its own: a broken file may raise anything."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about values that break the standard and are understood all the same
            yield
    except (DicomError, ImportError):
        raise
    except Exception as error:
        raise DicomError("DICOM file unreadable") from error


def _dataset(file: IO[bytes], *, pixels: bool) -> Dataset:
    try:
        from pydicom import dcmread
        from pydicom.filereader import read_partial
    except ImportError:
        raise ImportError(f"reading DICOM films needs pydicom: {_INSTALL}") from None
    with _failing_as_dicom_error():
        if not is_dicom(file.read(_MARK.stop)):
            raise DicomError("not a DICOM file")
        file.seek(0)
        # The meta information alone: a deflated dataset is inflated whole, however large, before its tags can be read.
        meta = read_partial(cast(Any, file), stop_when=lambda *_: True).file_meta
        if meta.get("TransferSyntaxUID") == _DEFLATED:
            raise DicomError("deflated DICOM file: write it in another transfer syntax")
        file.seek(0)
        if pixels:
            return dcmread(file)
        return dcmread(file, stop_before_pixels=True, specific_tags=list(_HEAD_TAGS))


def _head(dataset: Dataset, max_pixels: int) -> DicomHead:
    with _failing_as_dicom_error():
        width, height = int(dataset.get("Columns") or 0), int(dataset.get("Rows") or 0)
        if width < 1 or height < 1:
            raise DicomError("DICOM file without an image")
        if width * height > max_pixels:
            raise DicomError("image file claims too many pixels")
        if int(dataset.get("NumberOfFrames") or 1) > 1:
            raise DicomError("DICOM file of several frames: give each its own file")
        # pydicom's multi-valued element is a sequence of its own kind
        directions = dataset.get("PatientOrientation")
        orientation = Orientation.from_patient(list(directions) if directions and len(directions) == 2 else None)
        spacing = _spacing(dataset.get("PixelSpacing")) or _spacing(dataset.get("ImagerPixelSpacing"))
        if orientation.transposed:
            width, height = height, width
            spacing = spacing and spacing[::-1]
        view = _VIEW_OF.get(str(dataset.get("ViewPosition") or "").strip().upper())
        return DicomHead(width, height, spacing, view, orientation)


def _spacing(values: Any) -> tuple[float, float] | None:
    try:
        row, column = (float(value) for value in values)
    except (TypeError, ValueError):
        return None
    return (row, column) if 0 < row < math.inf and 0 < column < math.inf else None


def _decoded(dataset: Dataset) -> npt.NDArray[Any]:
    """Stored values, of a grey film as they are; of one in colour as RGB. Shape [height, width(, 3)]."""
    from pydicom.pixels import pixel_array

    try:
        stored: npt.NDArray[Any] = pixel_array(dataset)
    except RuntimeError as error:
        if "missing dependencies" not in str(error):
            raise
        syntax = dataset.file_meta.TransferSyntaxUID.name
        raise ImportError(
            f"films compressed as {syntax} need a decoder that is not installed: pip install python-gdcm"
        ) from error
    if stored.ndim not in (2, 3) or (stored.ndim == 3 and stored.shape[2] != 3):
        raise DicomError("DICOM file of several frames: give each its own file")
    return stored
