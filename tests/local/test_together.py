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
"""Rollouts that end together are scored and stored together, each with its own result."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reward_plugins.manager import decode_response
from verl_cxr.local.agent_loop import _LocalWorker, _padded, _Together


class Rewards:
    """Stands for a reward worker's actor handle: answers with what the manager would read from each row."""

    def __init__(self) -> None:
        self.calls = 0

    @property
    def compute_score_batch(self) -> Any:
        return SimpleNamespace(remote=self._answer)

    async def _answer(self, data: Any) -> list[dict[str, Any]]:
        self.calls += 1
        tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: ids.tolist())
        return [
            {"read": decode_response(data[i : i + 1][-1], tokenizer), "id": data.non_tensor_batch["uid"][i]}
            for i in range(len(data))
        ]


def rollout(prompt: list[int], response: list[int], uid: str) -> Any:
    output = SimpleNamespace(prompt_ids=prompt, response_ids=response, num_turns=2, extra_fields={})
    return output, {"uid": uid, "reward_model": {"ground_truth": uid}}


def test_each_rollout_of_a_batch_is_read_whole_and_alone() -> None:
    worker = object.__new__(_LocalWorker)
    rewards = Rewards()
    worker.reward_loop_worker_handles = [rewards]
    rollouts = [rollout([1, 2, 3], [7], "a"), rollout([4], [8, 9, 10], "b"), rollout([5, 6], [11, 12], "c")]
    answers = asyncio.run(worker._score_batch(rollouts))
    assert answers == [
        {"read": "[7]", "id": "a"},
        {"read": "[8, 9, 10]", "id": "b"},
        {"read": "[11, 12]", "id": "c"},
    ]
    assert rewards.calls == 1


def test_what_arrives_together_is_handled_in_one_call() -> None:
    calls = []

    async def double(items: list[int]) -> list[int]:
        calls.append(items)
        return [2 * item for item in items]

    async def main() -> list[int]:
        together = _Together(double, wait=0.01)
        first = await asyncio.gather(*(together(item) for item in range(5)))
        return [*first, await together(7)]

    assert asyncio.run(main()) == [0, 2, 4, 6, 8, 14]
    assert calls == [[0, 1, 2, 3, 4], [7]]


def test_a_failed_call_reaches_everyone_in_it_and_nobody_after() -> None:
    async def refuse_negatives(items: list[int]) -> list[int]:
        if min(items) < 0:
            raise ValueError("negative")
        return items

    async def main() -> tuple[list[Any], int]:
        together = _Together(refuse_negatives, wait=0.01)
        failed = await asyncio.gather(together(1), together(-1), return_exceptions=True)
        return failed, await together(3)

    failed, after = asyncio.run(main())
    assert [str(error) for error in failed] == ["negative", "negative"]
    assert after == 3


@pytest.mark.parametrize("left", [True, False])
def test_padding_goes_to_its_side(left: bool) -> None:
    ids, mask = _padded([[1, 2], [3]], left=left)
    assert ids.tolist() == ([[1, 2], [0, 3]] if left else [[1, 2], [3, 0]])
    assert np.array_equal(mask.numpy(), (ids != 0).long().numpy())
