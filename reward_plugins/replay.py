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
"""Replay buffer of every recipe: a failed rollout stops the run, and what the rewards saw is logged.

verl's synchronous trainer pads its batch where a rollout failed, logs nothing of a training reward but its sum, and
looks for finished rollouts every two seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

import transfer_queue
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from reward_plugins.failure import read_failure

__all__ = ["RolloutFailedError", "StrictReplayBuffer"]


class RolloutFailedError(RuntimeError):
    """At least one rollout or its reward could not be computed."""


class StrictReplayBuffer(ReplayBuffer):
    """``trainer.v1.sampler.custom_sampler`` (verl 0.9.1, synchronous trainer).

    ``sampler_kwargs.poll_interval``: seconds between two looks for finished rollouts.
    """

    def __init__(self, *args: Any, sampler_kwargs: Any = None, **kwargs: Any) -> None:
        if sampler_kwargs and sampler_kwargs.get("poll_interval"):
            kwargs["poll_interval"] = float(sampler_kwargs["poll_interval"])
        super().__init__(*args, sampler_kwargs=sampler_kwargs, **kwargs)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """A batch, and metrics of it: of a training batch also ``reward/KEY/mean`` for each number of its rewards."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        if partition_id == "train" and batch.keys:
            rows = transfer_queue.kv_batch_get(
                keys=batch.keys, partition_id=partition_id, select_fields=["extra_fields"]
            )
            metrics |= _means(row.get("reward_extra_info") or {} for row in rows["extra_fields"])
        return batch, metrics

    def _sync_metadata_from_transfer_queue(self) -> None:
        super()._sync_metadata_from_transfer_queue()
        failed = sum(len(keys) for keys in self.failure_keys.values())
        if failed:
            cause = read_failure() or "see the rollout worker's error above"
            raise RolloutFailedError(f"{failed} prompt(s) could not be rolled out or scored: {cause}")


def _means(rewards: Iterable[Mapping[str, float]]) -> dict[str, float]:
    columns: dict[str, list[float]] = {}
    for reward in rewards:
        for key, value in reward.items():
            columns.setdefault(key, []).append(value)
    return {f"reward/{key}/mean": fmean(values) for key, values in columns.items()}
