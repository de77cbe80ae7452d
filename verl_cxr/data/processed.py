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
"""The size of a film after a model's own preprocessing, found by running it on a blank film of that size."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["ProcessedSize", "processed_size_of"]


class ProcessedSize:
    """A function from a film's (width, height) to that of the image which the model sees, in pixels.

    verl resizes an image twice, by `qwen_vl_utils` and by the processor; both run here, once for each film size. What
    travels to a worker process is the folder's name; each loads the processor once.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self._processor: Any = None
        self._sizes: dict[tuple[int, int], tuple[int, int]] = {}

    def __reduce__(self) -> tuple[Callable[[str], ProcessedSize], tuple[str]]:
        return _of_this_process, (self.folder,)

    def __call__(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of the processed image."""
        size = self._sizes.get((width, height))
        if size is None:
            size = self._sizes[width, height] = self._measure(width, height)
        return size

    def load(self) -> None:
        """Load the processor, which the first call does anyway.

        Raises:
            OSError, ValueError: the folder holds none.
        """
        if self._processor is None:
            from verl_cxr.local.torchvision_shim import install

            install()  # before anything imports torchvision
            from transformers import AutoProcessor

            self._processor = AutoProcessor.from_pretrained(self.folder).image_processor

    def _measure(self, width: int, height: int) -> tuple[int, int]:
        self.load()
        from PIL import Image
        from qwen_vl_utils import fetch_image  # type: ignore[import-untyped]

        patch = self._processor.patch_size
        blank = fetch_image({"image": Image.new("RGB", (width, height))}, image_patch_size=patch)
        grid = self._processor(images=[blank], return_tensors="pt")["image_grid_thw"][0].tolist()
        return grid[2] * patch, grid[1] * patch


@cache
def _of_this_process(folder: str) -> ProcessedSize:
    return ProcessedSize(folder)


def processed_size_of(processor_folder: str | Path) -> ProcessedSize:
    """`ProcessedSize` of a model's folder or name, with its processor loaded: a wrong one is refused here."""
    sizes = _of_this_process(str(processor_folder))
    sizes.load()
    return sizes
