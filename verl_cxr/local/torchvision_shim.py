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
"""Lets torchvision be imported beside a CPU build of torch.

The registry's torchvision is built for CUDA: beside ``torch+cpu`` its extension cannot be loaded, and importing it
stops at ``torchvision::nms`` and ``torchvision::qnms``, which nobody declared. Declaring the two operator schemas is
enough for its Python part, which is all that the image processors use; calling either operator still fails.
"""

from __future__ import annotations

import importlib.util

__all__ = ["install"]

_declared: list[object] = []  # a Library withdraws its operators when it is collected


def install() -> None:
    """Declare the missing operator schemas. Does nothing without torchvision, with CUDA, or when they exist."""
    import torch

    if _declared or torch.version.cuda is not None or importlib.util.find_spec("torchvision") is None:
        return
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
