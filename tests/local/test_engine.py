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
"""The CPU engine's log-probabilities, entropy and gradients are upstream's."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_cxr.local.engine import CpuEngineWithLMHead

LENGTHS = (7, 3, 11)
VOCABULARY = 50


def micro_batch(**flags: Any) -> TensorDict:
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(0, VOCABULARY, (length,), generator=generator) for length in LENGTHS]
    data = TensorDict({"input_ids": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}, batch_size=[len(rows)])
    for key, value in flags.items():
        tu.assign_non_tensor(data, **{key: value})
    return data


def outputs(method: Any, data: TensorDict, temperature: list[float]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """What a method makes of the same logits, and the gradient of a sum that weighs every token differently."""
    logits = torch.randn(
        len(LENGTHS), max(LENGTHS), VOCABULARY, generator=torch.Generator().manual_seed(1), requires_grad=True
    )
    engine = object.__new__(CpuEngineWithLMHead)
    engine.engine_config = SimpleNamespace(entropy_checkpointing=False)
    arguments = {
        "temperature_is_one": all(value == 1 for value in temperature),
        "temperature": torch.tensor(temperature),
        "input_ids_rmpad_rolled": torch.roll(data["input_ids"].values(), shifts=-1),
    }
    made = method(engine, SimpleNamespace(logits=logits * 3), arguments, data, None)
    weights = torch.linspace(0.5, 2, sum(LENGTHS))
    sum((value.values() * weights).sum() for value in made.values()).backward()
    assert logits.grad is not None
    return made, logits.grad


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("temperature", [[1.0, 1.0, 1.0], [0.7, 0.7, 0.7], [0.5, 1.0, 1.5]], ids=str)
def test_outputs_equal_upstreams(entropy: bool, temperature: list[float]) -> None:
    data = micro_batch(use_remove_padding=False, use_fused_kernels=False, calculate_entropy=entropy)
    ours, our_gradient = outputs(CpuEngineWithLMHead.prepare_model_outputs, data, temperature)
    theirs, their_gradient = outputs(FSDPEngineWithLMHead.prepare_model_outputs, data, temperature)
    assert ours.keys() == theirs.keys() == ({"log_probs", "entropy"} if entropy else {"log_probs"})
    for key, value in theirs.items():
        assert torch.equal(ours[key].offsets(), value.offsets())
        torch.testing.assert_close(ours[key].values(), value.values(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(our_gradient, their_gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "flags",
    [
        {},  # upstream takes such a batch for a packed one
        {"use_remove_padding": True},
        {"use_remove_padding": False, "use_fused_kernels": True},
        {"use_remove_padding": False, "distillation_use_topk": True},
        {"use_remove_padding": False, "calculate_sum_pi_squared": True},
    ],
    ids=str,
)
def test_uncommon_batches_go_to_upstream(flags: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FSDPEngineWithLMHead, "prepare_model_outputs", lambda *_: {"upstream": True})
    data = micro_batch(**flags)
    engine = object.__new__(CpuEngineWithLMHead)
    assert engine.prepare_model_outputs(None, {}, data, None) == {"upstream": True}
