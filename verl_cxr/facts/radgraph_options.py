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
"""How RadGraph runs: the options of the Hydra group ``cxr.facts`` beside the scorer's own `level` and `case`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_cxr.facts.weights import check_model_type

__all__ = ["RadGraphOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RadGraphOptions:
    """Where the weights are, what they run on, and what is kept.

    Attributes:
        model_type: ``"radgraph-xl"`` or ``"radgraph"``.
        weights: folder of the weights, see `verl_cxr.facts.weights`. None: the `radgraph` package's cache.
        download: get missing weights from the hub, once; without it nothing asks the network.
        device: ``"cpu"`` or ``"cuda[:n]"``. In a service a GPU also needs a share of one, `gpus`.
        store: file that keeps graphs between runs, on a disk of the node. None: they last as long as the run.
        store_gib: bound on that file.
        threads: of the service. Ray sets no CPU aside for it: while texts are read, verl's own workers wait for their
            GPUs or for the rewards. A reader without a service uses torch's number of threads.
        gpus: share of a GPU that Ray sets aside for the service, such as 0.1.

    Raises:
        ValueError: a value outside its range, or a model type that is refused.
    """

    model_type: str = "radgraph-xl"
    weights: str | None = None
    download: bool = False
    device: str = "cpu"
    store: str | None = None
    store_gib: float = 1.0
    threads: int = 1
    gpus: float = 0.0

    def __post_init__(self) -> None:
        check_model_type(self.model_type)
        for name in ("weights", "store"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"{name}={value!r}: use a path, or nothing")
        if not isinstance(self.download, bool):
            raise ValueError(f"download={self.download!r}: use true or false")
        kind, _, number = str(self.device).partition(":")
        if kind not in ("cpu", "cuda") or (":" in self.device and not (kind == "cuda" and number.isdigit())):
            raise ValueError(f"device={self.device!r}: use cpu, cuda or cuda:N")
        if isinstance(self.threads, bool) or not isinstance(self.threads, int) or self.threads < 1:
            raise ValueError(f"threads={self.threads!r}: use a whole number from 1 up")
        for name, least in (("store_gib", 0.001), ("gpus", 0.0)):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not math.isfinite(value)
                or value < least
            ):
                raise ValueError(f"{name}={value!r}: use a number from {least:g} up")
