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
"""Replay buffer of every recipe: a failed rollout stops the run, and the rest are noticed as soon as configured."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from reward_plugins.failure import read_failure

__all__ = ["RolloutFailedError", "StrictReplayBuffer"]


class RolloutFailedError(RuntimeError):
    """At least one rollout or its reward could not be computed."""


class StrictReplayBuffer(ReplayBuffer):
    """``trainer.v1.sampler.custom_sampler`` (verl 0.9.1, synchronous trainer).

    Upstream pads the batch where a rollout failed, and looks for finished rollouts every two seconds.
    ``sampler_kwargs.poll_interval`` (seconds) shortens the second; the first becomes an error.
    """

    def __init__(self, *args: Any, sampler_kwargs: Any = None, **kwargs: Any) -> None:
        if sampler_kwargs and sampler_kwargs.get("poll_interval"):
            kwargs["poll_interval"] = float(sampler_kwargs["poll_interval"])
        super().__init__(*args, sampler_kwargs=sampler_kwargs, **kwargs)

    def _sync_metadata_from_transfer_queue(self) -> None:
        super()._sync_metadata_from_transfer_queue()
        failed = sum(len(keys) for keys in self.failure_keys.values())
        if failed:
            cause = read_failure() or "see the rollout worker's error above"
            raise RolloutFailedError(f"{failed} prompt(s) could not be rolled out or scored: {cause}")
