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
"""The replay buffer of the recipes: a failed rollout stops the run with its cause."""

from typing import Any

import pytest
import ray
import transfer_queue
from omegaconf import OmegaConf
from ray.experimental import internal_kv
from tensordict import NonTensorStack, TensorDict

from reward_plugins import failure, replay
from reward_plugins.replay import RolloutFailedError, StrictReplayBuffer


def make(**sampler_kwargs: Any) -> StrictReplayBuffer:
    return StrictReplayBuffer(
        trainer_mode="sync",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=None,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create(sampler_kwargs),
    )


def queue(monkeypatch: pytest.MonkeyPatch, **statuses: str) -> None:
    """Let the transfer queue hold prompts with these statuses."""
    prompts = {uid: {"is_prompt": True, "global_steps": 1, "status": status} for uid, status in statuses.items()}
    monkeypatch.setattr(transfer_queue, "kv_list", lambda: {"train": prompts})


def test_poll_interval_is_taken_from_the_sampler() -> None:
    assert make(poll_interval=0.02).poll_interval == 0.02
    assert make().poll_interval == 2.0


def test_finished_and_running_prompts_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    queue(monkeypatch, a="finished", b="running", c="pending")
    buffer = make()
    buffer._sync_metadata_from_transfer_queue()
    assert buffer.finished_keys["train"] == {"a"}


def test_a_failed_prompt_stops_the_run_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    queue(monkeypatch, a="finished", b="failure", c="failure")
    monkeypatch.setattr(replay, "read_failure", lambda: "the annotator is down")
    with pytest.raises(RolloutFailedError, match=r"2 prompt\(s\) could not be .*: the annotator is down"):
        make()._sync_metadata_from_transfer_queue()


def test_a_failure_without_a_known_cause_points_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    queue(monkeypatch, a="failure")
    monkeypatch.setattr(replay, "read_failure", lambda: None)
    with pytest.raises(RolloutFailedError, match="see the rollout worker's error above"):
        make()._sync_metadata_from_transfer_queue()


@pytest.mark.parametrize("partition", ["train", "val"])
def test_numbers_of_training_rewards_are_logged(partition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = {
        "a": {"is_prompt": True, "global_steps": 1, "status": "finished"},
        "a_0_0": {"status": "success"},
        "a_1_0": {"status": "success"},
    }
    numbers = {"a_0_0": {"spatial": 0.25, "format": 1.0}, "a_1_0": {"spatial": 0.75, "format": 1.0}}

    def get(*, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        assert (partition_id, select_fields) == ("train", ["extra_fields"])
        rows = [{"reward_extra_info": numbers[key]} for key in keys]
        return TensorDict({"extra_fields": NonTensorStack(*rows)}, batch_size=[len(rows)])

    monkeypatch.setattr(transfer_queue, "kv_list", lambda: {partition: statuses})
    monkeypatch.setattr(transfer_queue, "kv_clear", lambda **_: None)
    monkeypatch.setattr(transfer_queue, "kv_batch_get", get)
    batch, metrics = make().sample(global_steps=1, partition_id=partition, batch_size=1)
    assert sorted(batch.keys) == ["a_0_0", "a_1_0"]
    expected = {"reward/spatial/mean": 0.5, "reward/format/mean": 1.0}
    assert metrics == (expected if partition == "train" else {})


def test_outside_of_ray_nothing_is_recorded() -> None:
    failure.report_failure("nobody listens")
    assert failure.read_failure() is None


def test_the_first_cause_of_a_job_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store: dict[tuple[bytes, bytes], bytes] = {}
    job = "01000000"

    def put(key: bytes, value: bytes, *, overwrite: bool, namespace: bytes) -> None:
        if overwrite or (namespace, key) not in store:
            store[namespace, key] = value

    context = type("Context", (), {"get_job_id": lambda self: job})
    monkeypatch.setattr(ray, "get_runtime_context", context)
    monkeypatch.setattr(internal_kv, "_internal_kv_initialized", lambda: True)
    monkeypatch.setattr(internal_kv, "_internal_kv_put", put)
    monkeypatch.setattr(internal_kv, "_internal_kv_get", lambda key, *, namespace: store.get((namespace, key)))
    assert failure.read_failure() is None
    failure.report_failure("the cause")
    failure.report_failure("an echo")
    assert failure.read_failure() == "the cause"
    job = "02000000"
    assert failure.read_failure() is None
