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
"""View backends, chosen by name: who tells the projection of a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_cxr.backends import make_named
from verl_cxr.measure.view.reading import VIEWS, ViewBackend, ViewError, ViewReading, certain, view_name

__all__ = [
    "VIEWS",
    "VIEW_BACKENDS",
    "ViewBackend",
    "ViewError",
    "ViewReading",
    "certain",
    "make_view",
    "view_name",
]

_CLASSES = {
    "metadata": "verl_cxr.measure.view.metadata:MetadataView",
    "precomputed": "verl_cxr.measure.view.precomputed:PrecomputedView",
    "opencxr": "verl_cxr.measure.view.opencxr:OpencxrView",
}
VIEW_BACKENDS = tuple(_CLASSES)


def make_view(name: str, *, cache: str | Path | None = None, remember: int = 4096, **options: Any) -> ViewBackend:
    """The view backend of a name; its results are kept in memory by the hash of a film.

    Args:
        name: one of :data:`VIEW_BACKENDS`.
        cache: folder that keeps results between runs, for ``opencxr``.
        remember: results kept in memory.
        options: of the backend, see its class.

    Raises:
        ValueError: an unknown name or option.
        ViewError, FileNotFoundError: what the backend needs is missing or damaged.
    """
    from verl_cxr.measure.view.kept import KeptViews

    if cache is not None and name in _CLASSES and name != "opencxr":
        raise ValueError(f"view={name} has no use for a cache: it does not look at the pixels")
    backend: ViewBackend = make_named("view", "view backend", name, _CLASSES, options)
    folder = None if cache is None else Path(cache).expanduser() / name
    return KeptViews(backend, folder=folder, remember=remember)
