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
"""The rollout server without Ray: requests share batches, weights arrive whole, errors reach whoever asked."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from PIL import Image

from verl_cxr.local.replica import WeightSender
from verl_cxr.local.server import RolloutServer, image_key
from verl_cxr.local.threads import use_threads

Make = Callable[..., RolloutServer]
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


@pytest.fixture(scope="module")
def make(tiny_model: Path) -> Make:
    def build(*overrides: str) -> RolloutServer:
        names = ["+recipe=cxr_grpo", "+scale=local", "cxr.data=/none", f"cxr.model={tiny_model}"]
        sizes = ["data.max_prompt_length=60", "data.max_response_length=12"]
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=[*names, *sizes, *overrides])
        OmegaConf.resolve(config)
        return RolloutServer(config.actor_rollout_ref.rollout, config.actor_rollout_ref.model, 0)

    return build


def serve(server: RolloutServer, *work: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Launch the server, do all the work at once, and stop it."""

    async def run() -> list[Any]:
        await server.launch()
        try:
            return await asyncio.gather(*(task() for task in work), return_exceptions=True)
        finally:
            server._serving.cancel()

    return asyncio.run(run())


def ask(server: RolloutServer, ids: list[int], **options: Any) -> Callable[[], Awaitable[Any]]:
    settings = SAMPLING | options.pop("sampling", {})
    return lambda: server.generate(ids, dict(settings), "request", **options)


def prompt(processor: Any, *images: Image.Image) -> list[int]:
    text = "<|im_start|>user\n" + "<|vision_start|><|image_pad|><|vision_end|>" * len(images) + "Hello<|im_end|>\n"
    ids: list[int] = processor(text=[text], images=list(images) or None)["input_ids"][0]
    return ids


def weights(server: RolloutServer, factor: float) -> list[tuple[str, Any, str]]:
    return [
        (name, (value.detach() * factor).numpy(), "float32") for name, value in server.decoder.model.named_parameters()
    ]


def test_requests_of_a_step_share_a_batch(make: Make, processor: Any, films: list[Image.Image]) -> None:
    server = make()
    sizes = []
    complete = server.decoder.complete
    server.decoder.complete = lambda requests: sizes.append(len(requests)) or complete(requests)  # type: ignore
    ids = prompt(processor, films[0])
    outputs = serve(
        server, *[ask(server, ids, image_data=[films[0]]) for _ in range(6)], ask(server, prompt(processor))
    )
    assert sizes == [7]
    assert len({tuple(output.token_ids) for output in outputs}) == 7  # a stream of its own for each rollout
    assert all(len(output.token_ids) == len(output.log_probs) <= 12 for output in outputs)


def test_the_same_requests_get_the_same_answers(make: Make, processor: Any) -> None:
    ids = prompt(processor)
    first, again = (serve(server, *[ask(server, ids)] * 3) for server in (make(), make()))
    assert [output.token_ids for output in first] == [output.token_ids for output in again]


def test_requests_that_sample_differently_take_turns(make: Make, processor: Any) -> None:
    server = make("+actor_rollout_ref.rollout.engine_kwargs.hf.max_batch_size=2")
    ids = prompt(processor)
    greedy = ask(server, ids, sampling={"temperature": 0})
    outputs = serve(server, greedy, ask(server, ids), greedy, greedy, ask(server, ids))
    assert len({tuple(outputs[row].token_ids) for row in (0, 2, 3)}) == 1


def test_limits_of_a_request(make: Make, processor: Any) -> None:
    server = make("actor_rollout_ref.rollout.ignore_eos=true")
    ids = prompt(processor)
    crowded = ids * 30
    outputs = serve(
        server,
        ask(server, ids, sampling={"max_tokens": 3}),
        ask(server, ids),
        ask(server, crowded[:70]),
        ask(server, crowded[:72]),
        ask(server, ids, video_data=["film"]),
    )
    assert [len(output.token_ids) for output in outputs[:3]] == [3, 12, 2]
    assert isinstance(outputs[3], ValueError)
    assert "a prompt of 72 tokens leaves no room in max_model_len=72" in str(outputs[3])
    assert "images, not videos" in str(outputs[4])


def test_an_error_reaches_those_who_asked_and_the_server_lives_on(make: Make, processor: Any) -> None:
    server = make()
    complete = server.decoder.complete

    def fail(requests: Any) -> Any:
        server.decoder.complete = complete  # type: ignore[method-assign]
        raise MemoryError("no room")

    server.decoder.complete = fail  # type: ignore[method-assign]
    ids = prompt(processor)

    async def later() -> Any:
        await asyncio.sleep(1)
        return await ask(server, ids)()

    failed, also_failed, fine = serve(server, ask(server, ids), ask(server, ids), later)
    for error in (failed, also_failed):
        assert isinstance(error, RuntimeError)
        assert "the local rollout failed: MemoryError('no room')" in str(error)
    assert fine.token_ids


def test_weights_arrive_and_change_the_answer(make: Make, processor: Any) -> None:
    server = make()
    ids = prompt(processor)
    before = serve(server, ask(server, ids))[0]

    async def update() -> None:
        await server.begin_update()
        await server.load_bucket(weights(server, 0.5))
        await server.end_update(7)

    asyncio.run(update())
    after = serve(server, ask(server, ids))[0]
    assert after.extra_fields["global_steps"] == 7
    assert before.log_probs != after.log_probs


def test_bfloat16_travels_as_its_bits(make: Make) -> None:
    server = make()
    name, parameter = next(iter(server.decoder.model.named_parameters()))
    sent = torch.randn_like(parameter).bfloat16()
    server._load([(name, sent.view(torch.int16).numpy(), "bfloat16")])
    assert torch.equal(parameter.detach(), sent.float())


def test_an_incomplete_or_unknown_update_is_an_error(make: Make) -> None:
    server = make()

    async def update(tensors: list[tuple[str, Any, str]]) -> None:
        await server.begin_update()
        await server.load_bucket(tensors)
        await server.end_update(1)

    with pytest.raises(RuntimeError, match="left 1 parameters untouched, such as"):
        asyncio.run(update(weights(server, 1.0)[1:]))
    with pytest.raises(KeyError, match=r"'other\.weight', which the rollout model does not have"):
        asyncio.run(update([("other.weight", torch.zeros(1).numpy(), "float32")]))


def test_frozen_weights_take_the_first_update_only(make: Make) -> None:
    server = make("+actor_rollout_ref.rollout.engine_kwargs.hf.freeze_weights=true")
    first = next(iter(server.decoder.model.parameters()))
    before = first.detach().clone()

    async def update(factor: float) -> None:
        await server.begin_update()
        await server.load_bucket(weights(server, factor))
        await server.end_update(1)

    asyncio.run(update(0.5))
    assert torch.equal(first.detach(), before * 0.5)
    asyncio.run(update(0.5))
    assert torch.equal(first.detach(), before * 0.5)


def test_generation_waits_while_requests_are_held_back(make: Make, processor: Any) -> None:
    server = make()
    order = []

    async def held() -> None:
        await server.abort_all_requests()
        answer = asyncio.create_task(ask(server, prompt(processor))())  # type: ignore[arg-type]
        await asyncio.sleep(0.5)
        order.append(answer.done())
        await server.resume_generation()
        await answer
        order.append(answer.done())

    assert serve(server, held) == [None]
    assert order == [False, True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wire_format": "delta"}, "takes whole tensors, not 'delta'"),
        ({"peft_config": object()}, "does not serve LoRA adapters: set model.lora.merge=True"),
    ],
)
def test_the_sender_refuses_what_the_server_cannot_load(options: dict[str, Any], said: str) -> None:
    sender = object.__new__(WeightSender)
    with pytest.raises(ValueError, match=said):
        asyncio.run(sender.update_weights(iter(()), **options))


def test_a_small_model_takes_one_thread_and_a_large_one_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for width, share in ((100, 1), (5000, 1), (5000, 2), (5000, 16)):
        use_threads(torch.nn.Linear(width, width, device="meta"), share=share)
    assert asked == [1, 8, 4, 1]


def test_an_unknown_option_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match=r"unknown rollout option\(s\) in engine_kwargs\.hf: quite_s"):
        make("+actor_rollout_ref.rollout.engine_kwargs.hf.quite_s=1")


def test_an_image_is_known_by_its_content() -> None:
    image = Image.new("RGB", (8, 4), (1, 2, 3))
    assert image_key(image) == image_key(image.copy())
    others = [Image.new("RGB", (4, 8), (1, 2, 3)), Image.new("RGB", (8, 4), (1, 2, 4)), image.convert("L")]
    assert len({image_key(other) for other in [image, *others]}) == 4
