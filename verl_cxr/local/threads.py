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
"""How many torch threads a process of a CPU run takes."""

from __future__ import annotations

import os

import torch

__all__ = ["SMALL", "use_threads"]

SMALL = 20_000_000  # parameters below which a second thread costs more in waiting than it computes


def use_threads(model: torch.nn.Module, *, share: int = 1) -> None:
    """Give this process all cores (divided by ``share`` equal processes) for a large model, one for a small model.

    The kernels of a small model last microseconds: threads that meet at a barrier after each one gain nothing on idle
    cores and lose two orders of magnitude when another process holds one of them.
    """
    size = sum(parameter.numel() for parameter in model.parameters())
    torch.set_num_threads(1 if size < SMALL else max(1, (os.cpu_count() or 1) // share))
