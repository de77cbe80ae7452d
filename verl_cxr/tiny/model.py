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
"""A tiny Qwen3-VL of the genuine architecture, with random weights and a real processor.

Everything that verl, transformers and this project do with a Qwen3-VL checkpoint they do with this one: interleaved
M-RoPE, DeepStack, the vision merger, the chat template, the image processor. Only the sizes are small, about a million
parameters, so that three training stages fit into minutes on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_cxr.tiny.tokenizer import chat_template, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3VLProcessor

__all__ = ["PATCH_SIZE", "TinySizes", "build_tiny_model"]

PATCH_SIZE = 16  # as in Qwen3-VL; two by two patches make one token
MERGE_SIZE = 2
INITIALIZER_RANGE = 0.08  # about 1 / sqrt(hidden); the 0.02 of wide models makes a narrow one learn slowly


@dataclass(frozen=True, slots=True)
class TinySizes:
    """Sizes of the tiny model; the defaults are those that the local demo learns with.

    Attributes:
        hidden, layers: width and depth of the language model; a head has 32 dimensions.
        vision_hidden, vision_layers: width and depth of the vision encoder.
        image_size: films are scaled down to at most `image_size ** 2` pixels; a multiple of 32.
    """

    hidden: int = 128
    layers: int = 3
    vision_hidden: int = 64
    vision_layers: int = 2
    image_size: int = 128

    def __post_init__(self) -> None:
        if self.hidden % 64 or self.vision_hidden % 64:
            raise ValueError(
                f"hidden and vision_hidden must be multiples of 64, got {self.hidden}, {self.vision_hidden}"
            )
        if self.image_size < 64 or self.image_size % 32:
            raise ValueError(f"image_size must be a multiple of 32, at least 64, got {self.image_size}")
        if self.layers < 1 or self.vision_layers < 1:
            raise ValueError(f"layers and vision_layers must be at least 1, got {self.layers}, {self.vision_layers}")


def build_tiny_model(
    out: Path, *, texts: Iterable[str], seed: int = 0, sizes: TinySizes = TinySizes(), vocab_size: int = 1536
) -> Path:
    """Write a checkpoint folder: weights, configuration, tokenizer, processor and chat template.

    Args:
        out: folder to write into, created if needed.
        texts: what the tokenizer is trained on: prompts, traces and reports of the data at hand.
        seed: of the weights. The caller's torch random state is left as it was.

    Returns:
        `out`, absolute.
    """
    from verl_cxr.local.torchvision_shim import install

    install()  # before anything imports torchvision
    import torch
    from transformers import GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration

    out = Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts, vocab_size=vocab_size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**_config(tokenizer, sizes))).float()
    ids = tokenizer.convert_tokens_to_ids
    model.generation_config = GenerationConfig(
        bos_token_id=ids("<|endoftext|>"),
        pad_token_id=ids("<|endoftext|>"),
        eos_token_id=[ids("<|im_end|>"), ids("<|endoftext|>")],
    )
    model.save_pretrained(out)
    _processor(tokenizer, sizes).save_pretrained(out)
    return out


def _config(tokenizer: PreTrainedTokenizerFast, sizes: TinySizes) -> dict[str, Any]:
    ids = tokenizer.convert_tokens_to_ids
    grid = sizes.image_size // PATCH_SIZE
    text = {
        "vocab_size": -(-len(tokenizer) // 64) * 64,
        "hidden_size": sizes.hidden,
        "intermediate_size": 2 * sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.hidden // 32,
        "num_key_value_heads": sizes.hidden // 64,
        "head_dim": 32,
        "max_position_embeddings": 4096,
        "initializer_range": INITIALIZER_RANGE,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [8, 4, 4],
            "mrope_interleaved": True,
        },
        "bos_token_id": ids("<|endoftext|>"),
        "eos_token_id": ids("<|im_end|>"),
        "pad_token_id": ids("<|endoftext|>"),
    }
    vision = {
        "depth": sizes.vision_layers,
        "hidden_size": sizes.vision_hidden,
        "intermediate_size": 2 * sizes.vision_hidden,
        "num_heads": sizes.vision_hidden // 32,
        "patch_size": PATCH_SIZE,
        "spatial_merge_size": MERGE_SIZE,
        "initializer_range": INITIALIZER_RANGE,
        "out_hidden_size": sizes.hidden,
        "num_position_embeddings": grid * grid,
        # DeepStack adds one vision feature to each of the first language layers, hence no more of them than those.
        "deepstack_visual_indexes": list(range(min(sizes.vision_layers, sizes.layers))),
    }
    return {
        "text_config": text,
        "vision_config": vision,
        "image_token_id": ids("<|image_pad|>"),
        "video_token_id": ids("<|video_pad|>"),
        "vision_start_token_id": ids("<|vision_start|>"),
        "vision_end_token_id": ids("<|vision_end|>"),
        "tie_word_embeddings": False,
    }


def _processor(tokenizer: PreTrainedTokenizerFast, sizes: TinySizes) -> Qwen3VLProcessor:
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    common = {
        "patch_size": PATCH_SIZE,
        "merge_size": MERGE_SIZE,
        "temporal_patch_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "size": {"shortest_edge": (PATCH_SIZE * MERGE_SIZE) ** 2, "longest_edge": sizes.image_size**2},
    }
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**common),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**common),
        chat_template=chat_template(),
    )
