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
"""The batched decoder says what transformers says, one request at a time and without a cache."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import (
    LogitsProcessorList,
    Qwen3VLForConditionalGeneration,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from verl_cxr.local.decode import ATTENTION, Completion, Decoder, Request, Sampling

GREEDY = Sampling(temperature=0)
WORDS = "The lungs are clear. The heart is normal in size. No acute cardiopulmonary abnormality."


@dataclass(frozen=True)
class Prompt:
    """Ids as the rollout server receives them, and the tensors that transformers takes for the same prompt."""

    ids: tuple[int, ...]
    images: tuple[Image.Image, ...]
    inputs: dict[str, torch.Tensor]

    def request(self, **options: Any) -> Request:
        keys = tuple(image.tobytes() for image in self.images)
        settings: dict[str, Any] = {"max_tokens": 24, "stop_ids": frozenset(), "seed": 1} | options
        return Request(prompt_ids=self.ids, images=self.images, image_keys=keys, **settings)


@pytest.fixture(scope="module")
def reference(tiny_model: Path) -> Any:
    model = Qwen3VLForConditionalGeneration.from_pretrained(tiny_model, dtype=torch.float32, attn_implementation="sdpa")
    model.generation_config.eos_token_id = None
    return model.eval()


@pytest.fixture(scope="module")
def image_id(processor: Any) -> int:
    return int(processor.tokenizer.convert_tokens_to_ids("<|image_pad|>"))


@pytest.fixture
def decoder(tiny_model: Path, processor: Any, image_id: int) -> Decoder:
    model = Qwen3VLForConditionalGeneration.from_pretrained(
        tiny_model, dtype=torch.float32, attn_implementation=ATTENTION
    )
    pad_id = processor.tokenizer.pad_token_id
    return Decoder(model, processor, pad_id=pad_id, image_id=image_id, banned_ids=[image_id])


@pytest.fixture(scope="module")
def prompts(processor: Any, films: list[Image.Image]) -> list[Prompt]:
    """Text alone, one film, two films of two sizes, and a longer text: four lengths."""

    def make(text: str, *images: Image.Image) -> Prompt:
        content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
        written = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        inputs = dict(processor(text=[written], images=list(images) or None, return_tensors="pt"))
        return Prompt(tuple(inputs["input_ids"][0].tolist()), images, inputs)

    return [make("Hello"), make("Read this.", films[0]), make("Compare.", films[1], films[2]), make(WORDS)]


def slowly(model: Any, prompt: Prompt, request: Request, image_id: int) -> Completion:
    """What the request should give: no cache, no batch, transformers' own processors of logits."""
    sampling = request.sampling
    processors = LogitsProcessorList()
    if sampling.repetition_penalty != 1:
        processors.append(
            RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty, prompt_ignore_length=len(prompt.ids))
        )
    if sampling.top_k > 0:
        processors.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(TopPLogitsWarper(sampling.top_p))
    uniform = torch.rand(request.max_tokens, generator=torch.Generator().manual_seed(request.seed))
    written: list[int] = []
    log_probs: list[float] = []
    for step in range(request.max_tokens):
        logits = full_logits(model, prompt, written, image_id)[-1:] / (sampling.temperature or 1)
        ids = torch.tensor([[*prompt.ids, *written]])
        offered = logits.clone()
        offered[:, image_id] = -torch.inf
        offered = torch.softmax(processors(ids, offered), -1)[0].double()
        if sampling.temperature == 0:
            token = int(offered.argmax())
        else:
            token = int((offered.cumsum(0) <= uniform[step].double() * offered.sum()).sum())
        if step < len(request.forced_ids):
            token = request.forced_ids[step]
        written.append(token)
        log_probs.append(float(torch.log_softmax(logits, -1)[0, token]))
        if token in request.stop_ids:
            break
    return Completion(written, log_probs)


@torch.no_grad()
def full_logits(model: Any, prompt: Prompt, written: Sequence[int], image_id: int) -> torch.Tensor:
    """Logits (1 + W, V) of one full forward: after the prompt and after each written token."""
    ids = torch.tensor([[*prompt.ids, *written]])
    inputs = prompt.inputs | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if prompt.images:
        inputs["mm_token_type_ids"] = (ids == image_id).long()
    logits: torch.Tensor = model(**inputs, use_cache=False).logits[0, len(prompt.ids) - 1 :]
    return logits


def assert_same(ours: Completion, theirs: Completion) -> None:
    assert ours.token_ids == theirs.token_ids
    torch.testing.assert_close(torch.tensor(ours.log_probs), torch.tensor(theirs.log_probs), atol=1e-5, rtol=0)


def test_the_model_of_these_tests_minds_what_it_reads(decoder: Decoder, prompts: list[Prompt]) -> None:
    """Else every equality below would be cheap."""
    film = prompts[1]
    dark = replace(film, images=(film.images[0].point(lambda value: value // 4),))
    answers = [tuple(decoder.complete([prompt.request(sampling=GREEDY)])[0].token_ids) for prompt in [*prompts, dark]]
    assert len(set(answers)) == len(answers)


def test_greedy_ids_equal_generate(decoder: Decoder, reference: Any, prompts: list[Prompt]) -> None:
    together = decoder.complete([prompt.request(sampling=GREEDY) for prompt in prompts])
    for prompt, completion in zip(prompts, together, strict=True):
        generated = reference.generate(**prompt.inputs, do_sample=False, max_new_tokens=24, min_new_tokens=24)
        assert completion.token_ids == generated[0, len(prompt.ids) :].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.3])
def test_log_probabilities_equal_one_full_forward(
    decoder: Decoder, reference: Any, prompts: list[Prompt], image_id: int, temperature: float
) -> None:
    sampling = Sampling(temperature=temperature)
    requests = [prompt.request(sampling=sampling, seed=seed) for seed, prompt in enumerate(prompts)]
    for prompt, done in zip(prompts, decoder.complete(requests), strict=True):
        scores = torch.log_softmax(full_logits(reference, prompt, done.token_ids, image_id)[:-1] / temperature, -1)
        expected = scores.gather(-1, torch.tensor(done.token_ids).unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(torch.tensor(done.log_probs), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.5),
        Sampling(top_k=5),
        Sampling(top_p=0.6),
        Sampling(repetition_penalty=1.5),
        Sampling(temperature=1.4, top_k=40, top_p=0.9, repetition_penalty=1.2),
        Sampling(temperature=0, repetition_penalty=2.0),
    ],
    ids=str,
)
def test_samples_equal_transformers_processors(
    decoder: Decoder, reference: Any, prompts: list[Prompt], image_id: int, sampling: Sampling
) -> None:
    requests = [prompt.request(sampling=sampling, seed=seed) for seed, prompt in enumerate(prompts)]
    for prompt, request, done in zip(prompts, requests, decoder.complete(requests), strict=True):
        assert_same(done, slowly(reference, prompt, request, image_id))


def test_a_sample_does_not_depend_on_its_batch(decoder: Decoder, prompts: list[Prompt]) -> None:
    """Other prompts, repetitions of its own prompt, and rows that end early and leave the batch change nothing."""
    limits = [3, 24, 5, 24, 9, 24, 2, 24, 24, 1, 24, 17]
    requests = [prompts[number % 4].request(seed=number, max_tokens=limit) for number, limit in enumerate(limits)]
    together = decoder.complete(requests)
    assert [len(done.token_ids) for done in together] == limits
    for request, done in zip(requests, together, strict=True):
        assert_same(done, decoder.complete([request])[0])
    for request, done in zip(reversed(requests), decoder.complete(requests[::-1]), strict=True):
        assert_same(done, together[requests.index(request)])


def test_rollouts_of_one_prompt_differ_by_their_seed(decoder: Decoder, prompts: list[Prompt]) -> None:
    same = decoder.complete([prompts[1].request(seed=seed) for seed in (5, 6, 5)])
    assert same[0].token_ids == same[2].token_ids
    assert same[0].token_ids != same[1].token_ids


def test_a_stop_id_ends_its_own_row_only(decoder: Decoder, prompts: list[Prompt]) -> None:
    free = decoder.complete([prompt.request(seed=3) for prompt in prompts])
    stop = free[1].token_ids[7]
    end = free[1].token_ids.index(stop) + 1
    requests = [
        prompt.request(seed=3, stop_ids=frozenset([stop] if row == 1 else [])) for row, prompt in enumerate(prompts)
    ]
    stopped = decoder.complete(requests)
    assert stopped[1].token_ids == free[1].token_ids[:end]
    assert stopped[1].token_ids[-1] == stop
    for row in (0, 2, 3):
        assert_same(stopped[row], free[row])


def test_banned_ids_are_never_drawn_and_leave_log_probabilities_alone(
    tiny_model: Path, decoder: Decoder, reference: Any, prompts: list[Prompt], image_id: int
) -> None:
    favourite = decoder.complete([prompts[0].request(sampling=GREEDY, max_tokens=1)])[0].token_ids[0]
    decoder.banned_ids = [favourite, image_id]
    done = decoder.complete([prompts[0].request(sampling=Sampling(temperature=2.0), seed=seed) for seed in range(40)])
    drawn = {token for completion in done for token in completion.token_ids}
    assert not drawn & {favourite, image_id}
    assert decoder.complete([prompts[0].request(sampling=GREEDY, max_tokens=1)])[0].token_ids != [favourite]
    scores = torch.log_softmax(full_logits(reference, prompts[0], done[0].token_ids, image_id)[:-1] / 2.0, -1)
    expected = scores.gather(-1, torch.tensor(done[0].token_ids).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(torch.tensor(done[0].log_probs), expected, atol=1e-5, rtol=0)


def test_frequencies_follow_the_distribution(
    decoder: Decoder, reference: Any, prompts: list[Prompt], image_id: int
) -> None:
    draws = 4000
    done = decoder.complete([prompts[0].request(seed=seed, max_tokens=1) for seed in range(draws)])
    counts = torch.bincount(
        torch.tensor([completion.token_ids[0] for completion in done]),
        minlength=reference.config.text_config.vocab_size,
    )
    expected = torch.softmax(full_logits(reference, prompts[0], [], image_id)[-1], -1)
    deviation = (counts / draws - expected) / (expected * (1 - expected) / draws).sqrt()
    common = expected > 0.002
    assert common.sum() > 20
    assert deviation[common].abs().max() < 4.5
    assert deviation[common].square().mean() == pytest.approx(1, abs=0.5)


def test_forced_ids_come_first_and_keep_the_models_probability(
    decoder: Decoder, reference: Any, prompts: list[Prompt], image_id: int
) -> None:
    forced = tuple(prompts[3].ids[5:10])
    requests = [prompts[0].request(seed=2, forced_ids=forced), prompts[2].request(seed=2)]
    done = decoder.complete(requests)
    assert tuple(done[0].token_ids[:5]) == forced
    for prompt, request, completion in zip((prompts[0], prompts[2]), requests, done, strict=True):
        assert_same(completion, slowly(reference, prompt, request, image_id))


def test_an_image_is_prepared_once(decoder: Decoder, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    own = decoder.processor.image_processor

    class Counting:
        def image_processor(self, **options: Any) -> Any:
            calls.append(options)
            return own(**options)

    monkeypatch.setattr(decoder, "processor", Counting())
    first = decoder.complete([prompts[1].request(seed=seed) for seed in range(3)])
    again = decoder.complete([prompts[1].request(seed=seed) for seed in range(3)])
    assert len(calls) == 1
    assert [done.token_ids for done in first] == [done.token_ids for done in again]


def test_requests_that_sample_differently_do_not_share_a_batch(decoder: Decoder, prompts: list[Prompt]) -> None:
    with pytest.raises(ValueError, match="must share temperature"):
        decoder.complete([prompts[0].request(), prompts[0].request(sampling=GREEDY)])
