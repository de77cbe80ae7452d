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
"""Mask backends whose results are kept by the hash of a film."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from verl_cxr.files import replacing
from verl_cxr.film import Film
from verl_cxr.measure.masks.outlines import MaskBackend, Outlines
from verl_cxr.measure.remember import Remembered

__all__ = ["KeptMasks", "read_outlines", "write_outlines"]


class KeptMasks:
    """A mask backend in front of another one, which it asks once a film.

    Args:
        backend: the one that is asked.
        folder: for results on disk; None keeps them in memory alone.
        remember: results kept in memory.
    """

    def __init__(self, backend: MaskBackend, *, folder: Path | None = None, remember: int = 64) -> None:
        self.name = backend.name
        self.backend = backend
        self._results = Remembered(
            backend.outline, size=remember, folder=folder, suffix=".npz", read=read_outlines, write=write_outlines
        )

    def outline(self, film: Film) -> Outlines:
        """See `verl_cxr.measure.masks.MaskBackend`."""
        return self._results.get(film)


def write_outlines(path: Path, outlines: Outlines) -> None:
    """Write outlines: one bit a pixel, whole or not at all."""
    names = list(outlines.masks)
    head = {
        "names": names,
        "grid": outlines.grid,
        "size": [outlines.width, outlines.height],
        "backend": outlines.backend,
        "confidence": dict(outlines.confidence),
        "degraded": outlines.degraded,
        "sides_assumed": outlines.sides_assumed,
    }
    packed: dict[str, Any] = {f"mask{at}": np.packbits(outlines.masks[name]) for at, name in enumerate(names)}
    with replacing(path) as file:
        np.savez_compressed(file, allow_pickle=False, head=np.frombuffer(orjson.dumps(head), dtype=np.uint8), **packed)


def read_outlines(path: Path) -> Outlines:
    """Read what `write_outlines` wrote.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as held:
            head = orjson.loads(held["head"].tobytes())
            rows, columns = head["grid"]
            masks = {
                name: np.unpackbits(held[f"mask{at}"], count=rows * columns).astype(bool).reshape(rows, columns)
                for at, name in enumerate(head["names"])
            }
        width, height = head["size"]
        return Outlines(
            masks, width, height, head["backend"], head["confidence"], head["degraded"], head["sides_assumed"]
        )
    except (OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: damaged outlines: {error}") from None
