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
"""The tiny model's tokenizer: byte-level BPE, trained on the texts that the model will read and write.

It keeps two habits of Qwen's tokenizer that rewards depend on: each digit is a token of its own, and the tags of the
trace survive `skip_special_tokens=True`. It breaks one habit on purpose: merges may cross spaces inside a sentence, a
region name or a piece of JSON scaffolding, so that a trace of four regions costs about a hundred tokens and a
million-parameter model can learn to write it on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["SPECIAL_TOKENS", "TAG_TOKENS", "chat_template", "train_tokenizer"]

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
TAG_TOKENS = (
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)

# What a merge may span, tried in this order: a digit, JSON scaffolding of the trace, a tool's schema and scaffolding of
# calls, a sentence, other plain text.
_PIECES = (
    r"\d",
    r"\{\"region\": \"|\", \"box\": \[|\], \"finding\": \"|\"\}, |\"\}\]|\[(?=\{)|, (?=\d)",
    r"\{\"type\": \"function\"[^\n]*|\{\"name\": \"|\", \"arguments\": \{\"?|\": \"|\"\}\}",
    r"[^\d{}\[\]\"<>\n.]+\.",
    r"[^\d{}\[\]\"<>\n.]+",
    r"[\n.]+",
    r"[{}\[\]\"<>]+",
)


def train_tokenizer(texts: Iterable[str], *, vocab_size: int = 1536) -> PreTrainedTokenizerFast:
    """Train on `texts`; any other text still encodes, byte by byte if need be.

    Args:
        texts: prompts, traces and reports as the model meets them; how often each occurs steers the merges.
        vocab_size: upper bound, special and tag tokens included.
    """
    from tokenizers import (  # type: ignore[import-untyped]
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("|".join(_PIECES)), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.train_from_iterator(
        (_without_tags(text) for text in texts),
        trainers.BpeTrainer(
            vocab_size=vocab_size - len(TAG_TOKENS),
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            min_frequency=2,
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=[token for token in SPECIAL_TOKENS if token not in ("<|endoftext|>", "<|im_end|>")],
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )
    fast.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAG_TOKENS])
    fast.chat_template = chat_template()
    return fast


def chat_template() -> str:
    """The Jinja chat template: ChatML with images, tools and tool responses."""
    return (files("verl_cxr.tiny") / "chat_template.jinja").read_text(encoding="utf-8")


def _without_tags(text: str) -> str:
    for tag in TAG_TOKENS:
        text = text.replace(tag, "\n")
    return text
