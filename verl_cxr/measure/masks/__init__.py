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
"""Mask backends, chosen by name: who outlines the structures of a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_cxr.backends import make_named
from verl_cxr.measure.masks.outlines import (
    CARDIOMEDIASTINUM,
    HEART,
    LEFT_LUNG,
    LUNGS,
    RIGHT_LUNG,
    MaskBackend,
    MaskError,
    Outlines,
)

__all__ = [
    "CARDIOMEDIASTINUM",
    "HEART",
    "LEFT_LUNG",
    "LUNGS",
    "MASK_BACKENDS",
    "RIGHT_LUNG",
    "MaskBackend",
    "MaskError",
    "Outlines",
    "make_masks",
]

_CLASSES = {
    "cxas": "verl_cxr.measure.masks.cxas:CxasMasks",
    "precomputed": "verl_cxr.measure.masks.precomputed:PrecomputedMasks",
    "phantom": "verl_cxr.measure.masks.phantom:PhantomMasks",
    "haar": "verl_cxr.measure.masks.haar:HaarMasks",
}
MASK_BACKENDS = tuple(_CLASSES)


def make_masks(name: str, *, cache: str | Path | None = None, remember: int = 64, **options: Any) -> MaskBackend:
    """The mask backend of a name; its results are kept in memory by the hash of a film.

    Args:
        name: one of :data:`MASK_BACKENDS`.
        cache: folder that keeps results between runs, for a backend that looks at nothing but the pixels (``cxas``,
            ``haar``).
        remember: results kept in memory.
        options: of the backend, see its class.

    Raises:
        ValueError: an unknown name or option.
        MaskError, FileNotFoundError: what the backend needs is missing.
    """
    from verl_cxr.measure.masks.kept import KeptMasks

    if cache is not None and name in _CLASSES and name not in ("cxas", "haar"):
        raise ValueError(f"masks={name} has no use for a cache: it does not look at the pixels alone")
    backend: MaskBackend = make_named("masks", "mask backend", name, _CLASSES, options)
    folder = None
    if cache is not None:
        folder = Path(cache).expanduser() / f"{name}-{getattr(backend, 'fingerprint', 'default')[:16]}"
    return KeptMasks(backend, folder=folder, remember=remember)
