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

__all__ = ["processed_size_of"]


def processed_size_of(processor_folder: str | Path) -> Callable[[int, int], tuple[int, int]]:
    """A function from a film's (width, height) to that of the image which the model of this folder sees, in pixels.

    verl resizes an image twice, by `qwen_vl_utils` and by the processor; both run here, once for each film size.
    """
    from verl_cxr.local.torchvision_shim import install

    install()  # before anything imports torchvision
    from PIL import Image
    from qwen_vl_utils import fetch_image  # type: ignore[import-untyped]
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(processor_folder).image_processor

    @cache
    def processed_size(width: int, height: int) -> tuple[int, int]:
        blank = fetch_image({"image": Image.new("RGB", (width, height))}, image_patch_size=processor.patch_size)
        grid = processor(images=[blank], return_tensors="pt")["image_grid_thw"][0].tolist()
        return grid[2] * processor.patch_size, grid[1] * processor.patch_size

    return processed_size
