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

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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

MASK_BACKENDS = ("cxas", "precomputed", "phantom", "haar")


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

    makers: Mapping[str, Callable[..., MaskBackend]] = {
        "cxas": _cxas, "precomputed": _precomputed, "phantom": _phantom, "haar": _haar
    }  # fmt: skip
    if name not in makers:
        raise ValueError(f"unknown mask backend {name!r}: use one of {', '.join(MASK_BACKENDS)}")
    if cache is not None and name not in ("cxas", "haar"):
        raise ValueError(f"masks={name} has no use for a cache: it does not look at the pixels alone")
    try:
        backend = makers[name](**options)
    except TypeError as error:
        raise ValueError(f"masks={name}: {error}") from None
    folder = None
    if cache is not None:
        folder = Path(cache).expanduser() / f"{name}-{getattr(backend, 'fingerprint', 'default')[:16]}"
    return KeptMasks(backend, folder=folder, remember=remember)


def _cxas(**options: Any) -> MaskBackend:
    from verl_cxr.measure.masks.cxas import CxasMasks

    return CxasMasks(**options)


def _precomputed(**options: Any) -> MaskBackend:
    from verl_cxr.measure.masks.precomputed import PrecomputedMasks

    return PrecomputedMasks(**options)


def _phantom(**options: Any) -> MaskBackend:
    from verl_cxr.measure.masks.phantom import PhantomMasks

    return PhantomMasks(**options)


def _haar(**options: Any) -> MaskBackend:
    from verl_cxr.measure.masks.haar import HaarMasks

    return HaarMasks(**options)
