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
"""DICOM files of any pixels and tags, written with pydicom."""

from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

__all__ = ["write_dicom"]


def write_dicom(path: Path, pixels: Any, *, bits: int = 12, photometric: str = "MONOCHROME2", **tags: Any) -> Path:
    """Write stored pixels, [H, W] unsigned of at most 16 bits, or [H, W, 3] of 8; a tag of None is left out."""
    pixels = np.asarray(pixels)
    grey = pixels.ndim == 2
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"  # DX, presentation
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[str(path)])
    dataset.Rows, dataset.Columns = pixels.shape[:2]
    dataset.SamplesPerPixel = 1 if grey else 3
    dataset.PhotometricInterpretation = photometric
    dataset.BitsAllocated = 16 if grey else 8
    dataset.BitsStored = bits if grey else 8
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = 0
    if not grey:
        dataset.PlanarConfiguration = 0
    dataset.PixelData = pixels.astype("<u2" if grey else "u1").tobytes()
    for name, value in tags.items():
        if value is None:
            delattr(dataset, name)
        else:
            setattr(dataset, name, value)
    pydicom.dcmwrite(path, dataset, enforce_file_format=True)
    return path
