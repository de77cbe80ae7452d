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
"""From the stored values of a DICOM file to the 8-bit picture that a radiologist is shown.

In the order of the standard (PS3.4 N.2): modality LUT or rescale slope and intercept, VOI LUT or the first window
(PS3.3 C.11.2.1: linear, linear exact or sigmoid), inversion for MONOCHROME1. A file that states neither table nor
window is stretched from its smallest to its largest value, pixel padding left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pydicom import Dataset

__all__ = ["Pixels", "colour_as_shown", "grey_as_shown"]

Pixels = npt.NDArray[np.uint8]
"""Shape [height, width] for a grey film, [height, width, 3] for one in colour."""


def colour_as_shown(stored: npt.NDArray[Any], dataset: Dataset) -> Pixels:
    """Decoded RGB as 8 bits a channel. Shape [height, width, 3]."""
    bits = int(dataset.BitsStored)
    return (stored >> (bits - 8) if bits > 8 else stored).astype(np.uint8)


def grey_as_shown(stored: npt.NDArray[Any], dataset: Dataset) -> Pixels:
    """Stored values of one channel as they are shown. Shape [height, width]; with a palette [height, width, 3]."""
    if str(dataset.PhotometricInterpretation) == "PALETTE COLOR":
        from pydicom.pixels import apply_color_lut

        return _colour_of_palette(apply_color_lut(stored, dataset))
    from pydicom.pixels import apply_modality_lut

    values = apply_modality_lut(stored, dataset)
    grey = _voi_table(values, dataset)
    if grey is None:
        grey = _windowed(values.astype(np.float64), dataset)
    if grey is None:
        grey = _stretched(values.astype(np.float64), _padding(stored, dataset))
    if str(dataset.PhotometricInterpretation) == "MONOCHROME1":
        grey = 1.0 - grey
    return np.rint(grey * 255.0).astype(np.uint8)


def _colour_of_palette(looked_up: npt.NDArray[Any]) -> Pixels:
    shift = 8 * (looked_up.dtype.itemsize - 1)
    return (looked_up[..., :3] >> shift).astype(np.uint8)


def _voi_table(values: npt.NDArray[Any], dataset: Dataset) -> npt.NDArray[np.float64] | None:
    """Values in [0, 1] by the VOI LUT; None if there is none, or one of a single level.

    pydicom's own look-up counts in 8 bits where the entries have 8, whatever the number of entries.
    """
    if not dataset.get("VOILUTSequence"):
        return None
    item = dataset.VOILUTSequence[0]
    entries, first = int(item.LUTDescriptor[0]) or 1 << 16, int(item.LUTDescriptor[1])
    table = _table(item.LUTData, entries, little=dataset.original_encoding[1] is not False)
    # The bits that a descriptor states are often more than the entries use.
    low, high = float(table.min()), float(table.max())
    if high <= low:
        return None
    looked_up: npt.NDArray[Any] = table[
        np.clip(np.floor(values.astype(np.float64)) - first, 0, len(table) - 1).astype(np.intp)
    ]
    grey: npt.NDArray[np.float64] = (looked_up.astype(np.float64) - low) / (high - low)
    return grey


def _table(data: Any, entries: int, *, little: bool) -> npt.NDArray[Any]:
    if not isinstance(data, bytes):
        return np.asarray(data)
    if len(data) < 2 * entries:  # packed, one byte an entry
        return np.frombuffer(data, dtype=np.uint8)[:entries]
    return np.frombuffer(data, dtype="<u2" if little else ">u2")[:entries]


def _windowed(values: npt.NDArray[np.float64], dataset: Dataset) -> npt.NDArray[np.float64] | None:
    """Values in [0, 1] by the first window; None if there is none that the standard allows."""
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    if centre is None or width is None or width <= 0:
        return None
    function = str(dataset.get("VOILUTFunction") or "LINEAR").upper()
    if function == "SIGMOID":
        steepness: npt.NDArray[np.float64] = np.clip(-4.0 * (values - centre) / width, -60.0, 60.0)
        return 1.0 / (1.0 + np.exp(steepness))
    if function == "LINEAR_EXACT":
        return np.clip((values - centre) / width + 0.5, 0.0, 1.0)
    if width < 1:
        return None
    if width == 1:
        return (values > centre - 0.5).astype(np.float64)
    return np.clip((values - (centre - 0.5)) / (width - 1.0) + 0.5, 0.0, 1.0)


def _first(value: Any) -> float | None:
    try:
        number = float(value[0] if hasattr(value, "__len__") and not isinstance(value, str) else value)
    except (TypeError, ValueError, IndexError):
        return None
    return number if math.isfinite(number) else None


def _padding(stored: npt.NDArray[Any], dataset: Dataset) -> npt.NDArray[np.bool_] | None:
    """Which pixels are no part of the film; None if the file does not say."""
    first = dataset.get("PixelPaddingValue")
    if first is None:
        return None
    last = dataset.get("PixelPaddingRangeLimit", first)
    low, high = sorted((int(first), int(last)))
    return (stored >= low) & (stored <= high)


def _stretched(values: npt.NDArray[np.float64], padding: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.float64]:
    """Values from their smallest to their largest as [0, 1]; a flat film is black."""
    inside = values if padding is None or padding.all() else values[~padding]
    low, high = float(inside.min()), float(inside.max())
    return np.clip((values - low) / (high - low), 0.0, 1.0) if high > low else np.zeros_like(values)
