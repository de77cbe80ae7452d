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
"""The tiny Qwen3-VL: its tokenizer's habits, its template, its weights."""

import json
from functools import cache

import pytest
import torch
import verl  # noqa: F401 - loads the plug-in, which lets torchvision be imported
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from verl_cxr.data.phantom import iter_phantoms, make_phantom
from verl_cxr.data.prompt import Stage, prompt_text
from verl_cxr.geometry import RELATIVE_1000
from verl_cxr.tiny import TinySizes, build_tiny_model, train_tokenizer, training_texts
from verl_cxr.tiny.tokenizer import TAG_TOKENS
from verl_cxr.trace import TraceFormat, reference_trace, render

TRACE = TraceFormat()


def texts(count=200):
    return training_texts((film.study for film in iter_phantoms(0, count)), TRACE)


@cache
def trained_tokenizer():
    return train_tokenizer(texts())


@pytest.fixture
def tokenizer():
    return trained_tokenizer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_tiny_model(tmp_path_factory.mktemp("tiny"), texts=texts(20), seed=0)


@pytest.fixture(scope="module")
def processor(folder):
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder):
    from transformers import Qwen3VLForConditionalGeneration

    return Qwen3VLForConditionalGeneration.from_pretrained(folder).eval()


def unseen():
    return make_phantom(1, split="validate").study


def test_digits_are_tokens_of_their_own(tokenizer):
    text = render(reference_trace(unseen()), RELATIVE_1000)
    for token in tokenizer.tokenize(text):
        assert len(token) == 1 or not any(character.isdigit() for character in token)


def test_a_trace_costs_about_a_hundred_tokens(tokenizer):
    assert len(tokenizer.tokenize(render(reference_trace(unseen()), RELATIVE_1000))) < 110
    assert len(tokenizer.tokenize(prompt_text(Stage.GRPO, RELATIVE_1000))) < 70


def test_the_tags_survive_what_verl_strips(tokenizer):
    text = "".join(TAG_TOKENS) + render(reference_trace(unseen()), RELATIVE_1000)
    assert tokenizer.decode(tokenizer(text + "<|im_end|>")["input_ids"], skip_special_tokens=True) == text
    for tag in TAG_TOKENS:
        assert len(tokenizer.tokenize(tag)) == 1


@given(st.text(max_size=80))
def test_any_text_comes_back(text):
    tokenizer = trained_tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_training_is_deterministic():
    assert train_tokenizer(texts(30)).get_vocab() == train_tokenizer(texts(30)).get_vocab()


def test_messages_rendered_one_by_one_concatenate(processor):
    image = Image.new("RGB", (64, 64))
    messages = [
        {"role": "system", "content": "You read films."},
        {"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "\nRead."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Clear."}]},
        {"role": "user", "content": "Sure?"},
    ]
    whole = processor.apply_chat_template(messages, tokenize=False)
    assert whole == "".join(processor.apply_chat_template([message], tokenize=False) for message in messages)
    assert whole.startswith("<|im_start|>system\nYou read films.<|im_end|>\n<|im_start|>user\n<|vision_start|>")
    prompt = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert prompt == whole + "<|im_start|>assistant\n"


def test_tools_and_their_answers_are_rendered(processor):
    tool = {"type": "function", "function": {"name": "zoom", "parameters": {"type": "object", "properties": {}}}}
    call = {"type": "function", "function": {"name": "zoom", "arguments": {"box": [1, 2, 3, 4]}}}
    image = {"type": "image", "image": Image.new("RGB", (64, 64))}
    text = processor.apply_chat_template(
        [
            {"role": "user", "content": "Read."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": [image, {"type": "text", "text": "enlarged"}]},
            {"role": "tool", "content": "done"},
        ],
        tools=[tool],
        tokenize=False,
    )
    assert json.dumps(tool, ensure_ascii=False) in text
    assert '<tool_call>\n{"name": "zoom", "arguments": {"box": [1, 2, 3, 4]}}\n</tool_call><|im_end|>\n' in text
    assert (
        "<|im_start|>user\n<tool_response>\n<|vision_start|><|image_pad|><|vision_end|>enlarged\n</tool_response>"
        "\n<tool_response>\ndone\n</tool_response><|im_end|>\n"
    ) in text


def test_the_architecture_is_the_genuine_one_and_small(model):
    assert type(model).__name__ == "Qwen3VLForConditionalGeneration"
    assert 0.8e6 < sum(weight.numel() for weight in model.parameters()) < 1.3e6
    assert model.config.vision_config.deepstack_visual_indexes == [0, 1]


def test_the_film_reaches_the_logits(model, processor):
    def logits(image):
        messages = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "Read."}]}]
        inputs = processor.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True
        )
        with torch.no_grad():
            return model(**inputs).logits[0, -1]

    one, other = (Image.fromarray(film.image).convert("RGB") for film in iter_phantoms(0, 2))
    assert torch.equal(logits(one), logits(one))
    assert not torch.allclose(logits(one), logits(other), atol=1e-4)


def test_it_generates(model, processor):
    film = Image.fromarray(make_phantom(0).image).convert("RGB")
    messages = [{"role": "user", "content": [{"type": "image", "image": film}, {"type": "text", "text": "Read."}]}]
    inputs = processor.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True
    )
    out = model.generate(**inputs, max_new_tokens=5, min_new_tokens=5, do_sample=False)
    assert out.shape[1] == inputs["input_ids"].shape[1] + 5


def test_the_seed_decides_the_weights_and_the_caller_keeps_its_own(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    sizes = TinySizes(hidden=64, layers=1, vision_layers=1, image_size=64)
    files = [
        build_tiny_model(tmp_path / name, texts=["Clear."], seed=seed, sizes=sizes) / "model.safetensors"
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert torch.rand(1) == expected
    first, again, other = (file.read_bytes() for file in files)
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "sizes", [{"hidden": 100}, {"vision_hidden": 32}, {"image_size": 100}, {"image_size": 32}, {"layers": 0}]
)
def test_sizes_that_the_architecture_does_not_allow(sizes):
    with pytest.raises(ValueError, match="must be"):
        TinySizes(**sizes)


def test_the_command_builds_one(tmp_path):
    from typer.testing import CliRunner

    from verl_cxr.cli import app
    from verl_cxr.study import write_studies

    write_studies(tmp_path / "studies.jsonl", [film.study for film in iter_phantoms(0, 4)])
    out = tmp_path / "model"
    arguments = ["data", "tiny-model", "--out", str(out), "--studies", str(tmp_path / "studies.jsonl")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= {
        p.name for p in out.iterdir()
    }
    refused = CliRunner().invoke(app, [*arguments, "--image-size", "100"])
    assert refused.exit_code == 1
    assert "multiple of 32" in refused.output
