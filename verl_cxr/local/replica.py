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
"""Registers the local rollout as ``hf``: the replica that starts servers, and the trainer's side of weight sync."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.workers.rollout import base
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry
from verl.workers.rollout.utils import ensure_async_iterator

__all__ = ["LocalReplica", "WeightSender"]


class LocalReplica(RolloutReplica):
    """One server a trainer rank, on the rank's node."""

    async def launch_servers(self) -> None:
        from verl_cxr.local.server import RolloutServer

        node = await self.workers[0].__ray_call__.remote(lambda worker: ray.get_runtime_context().get_node_id())
        options = {
            "name": _server_name(self.replica_rank) + self.name_suffix,
            "num_cpus": 1,
            "max_concurrency": self.max_concurrency,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node, soft=False),
        }
        server = ray.remote(RolloutServer).options(**options).remote(self.config, self.model_config, self.replica_rank)
        await server.launch.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = _server_name(self.replica_rank)


class WeightSender(BaseRollout):
    """Lives in the trainer's worker and sends weights to its server through Ray's object store, bucket by bucket."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = replica_rank if replica_rank >= 0 else int(os.environ["RANK"])

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    @torch.no_grad()
    async def update_weights(
        self,
        weights: Iterator[tuple[str, torch.Tensor]] | AsyncIterator[tuple[str, torch.Tensor]],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        peft_config: Any = None,
        **_: Any,
    ) -> None:
        """Send every parameter.

        Raises:
            ValueError: the weights are deltas or LoRA adapters, which the local rollout does not serve.
        """
        if wire_format != "named_tensors":
            raise ValueError(f"the local rollout takes whole tensors, not '{wire_format}'")
        if peft_config is not None:
            raise ValueError("the local rollout does not serve LoRA adapters: set model.lora.merge=True")
        server = ray.get_actor(_server_name(self.replica_rank))
        limit = int(self.config.checkpoint_engine.update_weights_bucket_megabytes) << 20
        await server.begin_update.remote()
        bucket: list[tuple[str, Any, str]] = []
        size = 0
        async for name, weight in ensure_async_iterator(weights):
            tensor = weight.detach().cpu().contiguous()
            # numpy has no bfloat16: send its bits
            array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
            bucket.append((name, array, str(tensor.dtype).removeprefix("torch.")))
            size += array.nbytes
            if size >= limit:
                await server.load_bucket.remote(bucket)
                bucket, size = [], 0
        if bucket:
            await server.load_bucket.remote(bucket)
        await server.end_update.remote(global_steps)


def _server_name(rank: int) -> str:
    return f"cxr_local_server_{rank}"


RolloutReplicaRegistry.register("hf", lambda: LocalReplica)
# the sender's registry has no public call in verl 0.9.1 (verl/workers/rollout/base.py)
base._ROLLOUT_REGISTRY[("hf", "async")] = f"{WeightSender.__module__}.{WeightSender.__qualname__}"
