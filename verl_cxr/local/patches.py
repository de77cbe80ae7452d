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
"""Every monkeypatch of verl, in one place. Each says where, why, for which versions, and how to see that it can go.

``tests/local/test_patches.py`` shows each upstream fault without its patch and fails when the fault is gone.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

__all__ = ["apply"]


def apply() -> None:
    """Apply all patches. Idempotent."""
    patch_process_group()
    patch_position_ids()


def patch_process_group() -> None:
    """Open the process group with the back end ``cpu:gloo``, named once.

    Where: ``verl/utils/distributed.py``, ``initialize_global_process_group`` and ``..._ray``; verl 0.9.1.
    Why: both build ``f"cpu:gloo,{device}:{backend}"``, on a CPU ``cpu:gloo,cpu:gloo``, which torch refuses
    ("Duplicate device type cpu in backend string"). Their callers import them by name, after this plug-in has run.
    """
    import torch.distributed
    import verl.utils.distributed as upstream

    def initialize_global_process_group_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
        if torch.distributed.is_initialized():
            return
        torch.distributed.init_process_group(
            backend=backend or "cpu:gloo",
            rank=int(os.environ.get("RANK", 0)),
            world_size=int(os.environ.get("WORLD_SIZE", 1)),
            timeout=None if timeout_second is None else timedelta(seconds=timeout_second),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )

    def initialize_global_process_group(timeout_second: int = 36000) -> tuple[int, int, int]:
        torch.distributed.init_process_group(
            backend="cpu:gloo",
            timeout=timedelta(seconds=timeout_second),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )
        return int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    upstream.initialize_global_process_group_ray = initialize_global_process_group_ray
    upstream.initialize_global_process_group = initialize_global_process_group


def patch_position_ids() -> None:
    """Keep the four M-RoPE rows apart from the ragged sequence dimension when all sequences are equally long.

    Where: ``verl/utils/tensordict_utils.py``, ``maybe_fix_3d_position_ids``; verl 0.9.1, every device.
    Why: for position ids of shape ``[(4, L)] * B`` with one common L, torch takes the first dimension as the ragged
    one; upstream then relabels the ragged index without moving the values ("Expected cond to be True").
    """
    import verl.utils.tensordict_utils as upstream

    if getattr(upstream.maybe_fix_3d_position_ids, "by_verl_cxr", False):
        return
    original = upstream.maybe_fix_3d_position_ids

    def maybe_fix_3d_position_ids(data: Any) -> None:
        ids = data["position_ids"] if "position_ids" in data.keys() else None  # noqa: SIM118 - a TensorDict
        if ids is not None and ids.is_nested and ids.dim() == 3:
            values, offsets = ids._values, ids._offsets
            if values.shape[0] == int(offsets[-1]):  # rows were taken as the ragged dimension: (B * 4, L)
                rows = values.view(len(offsets) - 1, -1, values.shape[-1])
                data["position_ids"] = upstream.nested_tensor_from_tensor_list(list(rows), ragged_idx=2)
                return
        original(data)

    maybe_fix_3d_position_ids.by_verl_cxr = True  # type: ignore[attr-defined]
    upstream.maybe_fix_3d_position_ids = maybe_fix_3d_position_ids
