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
"""What the agent-loop worker of a CPU run remembers equals what upstream works out each time."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from verl_cxr.local.agent_loop import MemoisedProcessor, _LocalWorker
from verl_cxr.once import Once

Upstream = _LocalWorker.__mro__[1]


class Counting:
    """A processor that counts its calls."""

    def __init__(self, processor: Any) -> None:
        self._own = processor
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __call__(self, **options: Any) -> Any:
        self.calls += 1
        return self._own(**options)


@pytest.fixture
def workers(processor: Any) -> tuple[Any, Any]:
    """Our worker and upstream's, without Ray, each with what its constructor would have set."""
    made = []
    for kind in (_LocalWorker, Upstream):
        worker = object.__new__(kind)
        worker.processor, worker.tokenizer = processor, processor.tokenizer
        worker._get_mm_processor_kwargs = lambda audios=None: {}
        made.append(worker)
    ours, upstream = made
    ours.processor = MemoisedProcessor(processor)
    ours._image_inputs, ours._prefix_positions = Once(), Once()
    ours._image_id = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    ours._video_id = processor.tokenizer.convert_tokens_to_ids("<|video_pad|>")
    return ours, upstream


def conversation(processor: Any, turns: list[tuple[str, list[Image.Image]]], answer: str) -> tuple[torch.Tensor, Any]:
    """Ids (L,) of turns with images, followed by an answer, and the rollout that holds the images."""
    images = [image for _, own in turns for image in own]
    text = "".join(
        f"<|im_start|>user\n{'<|vision_start|><|image_pad|><|vision_end|>' * len(own)}{words}<|im_end|>\n"
        for words, own in turns
    )
    ids = processor(text=[text + "<|im_start|>assistant\n" + answer], images=images or None)["input_ids"][0]
    media = {"images": images} if images else {}
    return torch.tensor(ids), SimpleNamespace(multi_modal_data=media, mm_processor_kwargs={})


def everything(worker: Any, ids: torch.Tensor, output: Any) -> tuple[dict[str, Any], torch.Tensor]:
    inputs = worker._compute_multi_modal_inputs(output, ids)
    positions = worker._compute_position_ids(ids.unsqueeze(0), torch.ones_like(ids).unsqueeze(0), inputs)
    return inputs, positions


def test_inputs_and_positions_equal_upstreams(
    workers: tuple[Any, Any], processor: Any, films: list[Image.Image]
) -> None:
    ours, upstream = workers
    one, other, wide = films
    cases = [
        conversation(processor, [("Hello", [])], "The lungs are clear."),
        conversation(processor, [("Read this.", [one])], "The lungs are clear."),
        conversation(processor, [("Read this.", [one])], "No effusion. The heart is normal in size."),
        conversation(processor, [("Read this.", [other])], "No effusion."),
        conversation(processor, [("Compare.", [wide, other])], "No effusion."),
        conversation(processor, [("Compare.", [other, wide])], "No effusion."),
        conversation(processor, [("Read this.", [one]), ("Here is a crop.", [wide])], "No effusion."),
        conversation(processor, [("Read this.", [wide])], ""),
    ]
    for ids, output in cases * 2:  # the second time from memory
        theirs, their_positions = everything(upstream, ids, output)
        mine, my_positions = everything(ours, ids, output)
        assert torch.equal(my_positions, their_positions)
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            assert torch.equal(mine[key], value), key


def test_rollouts_of_one_prompt_prepare_its_film_once(
    workers: tuple[Any, Any], processor: Any, films: list[Image.Image]
) -> None:
    ours, _ = workers
    counting = Counting(processor)
    ours.processor = MemoisedProcessor(counting)
    for answer in ("No effusion.", "The lungs are clear.", "The heart is normal in size."):
        ids, output = conversation(processor, [("Read this.", [films[0].copy()])], answer)
        everything(ours, ids, output)
    assert counting.calls == 1


def test_what_one_rollout_does_to_its_inputs_stays_with_it(
    workers: tuple[Any, Any], processor: Any, films: list[Image.Image]
) -> None:
    ours, _ = workers
    ids, output = conversation(processor, [("Read this.", [films[0]])], "No effusion.")
    first = ours._compute_multi_modal_inputs(output, ids)
    keys = set(first)
    first.clear()
    assert set(ours._compute_multi_modal_inputs(output, ids)) == keys


def test_a_padded_row_goes_to_upstream(workers: tuple[Any, Any], processor: Any, films: list[Image.Image]) -> None:
    ids, output = conversation(processor, [("Read this.", [films[0]])], "No effusion.")
    mask = torch.ones_like(ids)
    mask[:2] = 0
    positions = [
        worker._compute_position_ids(
            ids.unsqueeze(0), mask.unsqueeze(0), worker._compute_multi_modal_inputs(output, ids)
        )
        for worker in workers
    ]
    assert torch.equal(*positions)


def test_memoised_processor_tells_texts_images_and_options_apart(processor: Any, films: list[Image.Image]) -> None:
    counting = Counting(processor)
    memory = MemoisedProcessor(counting)
    text = "<|vision_start|><|image_pad|><|vision_end|>Read this."
    calls = [
        {"text": [text], "images": [films[0]], "return_tensors": "pt"},
        {"text": [text], "images": [films[1]], "return_tensors": "pt"},
        {"text": [text + " Now."], "images": [films[0]], "return_tensors": "pt"},
        {"text": [text], "images": [films[0]]},
    ]
    for _ in range(3):
        for call in calls:
            answer, expected = memory(**call), processor(**call)
            assert answer.keys() == expected.keys()
            for key, value in expected.items():
                assert torch.equal(torch.as_tensor(answer[key]), torch.as_tensor(value))
    assert counting.calls == len(calls)
    assert memory.tokenizer is processor.tokenizer
