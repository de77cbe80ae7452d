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
"""The TRL side of :mod:`tests.benchmarks.trainer`.

``python -m tests.benchmarks.trl_grpo ASSETS PROMPTS ROLLOUTS TOKENS STEPS``

Prints one line of JSON: seconds of each step, and the wall clock at which the first began.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import verl_cxr.local.torchvision_shim as shim

shim.install()

from datasets import Dataset, Image, Sequence  # noqa: E402
from transformers import AutoProcessor, TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from tests.benchmarks.letters import letters  # noqa: E402


def reward(completions: list[Any], **_: Any) -> list[float]:
    """Share of letters of each completion, in whichever form TRL hands it over."""
    texts = [completion if isinstance(completion, str) else completion[0]["content"] for completion in completions]
    return [letters(text if isinstance(text, str) else text[0]["text"]) for text in texts]


class _Clock(TrainerCallback):
    def __init__(self) -> None:
        self.began = 0.0
        self.steps: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began, self.last = time.time(), time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        now = time.perf_counter()
        self.steps.append(now - self.last)
        self.last = now


def main(assets: str, prompts: int, rollouts: int, tokens: int, steps: int) -> None:
    rows = Dataset.from_parquet(f"{assets}/grpo_train.parquet")
    rows = Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": row["prompt"][0]["content"].removeprefix("<image>")}],
                "images": [row["images"][0]["image"]],
            }
            for row in rows
        ]
    ).cast_column("images", Sequence(Image()))
    processor = AutoProcessor.from_pretrained(f"{assets}/model")
    names = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    suppressed = [processor.tokenizer.convert_tokens_to_ids(name) for name in names]
    settings = GRPOConfig(
        output_dir=f"{assets}/baseline",
        per_device_train_batch_size=prompts * rollouts,
        num_generations=rollouts,
        max_completion_length=tokens,
        beta=0.04,
        max_steps=steps,
        learning_rate=1e-6,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        generation_kwargs={"suppress_tokens": suppressed, "min_new_tokens": tokens},
        model_init_kwargs={"dtype": "float32"},
        disable_tqdm=True,
        lr_scheduler_type="constant",
    )
    clock = _Clock()
    trainer = GRPOTrainer(
        model=f"{assets}/model",
        reward_funcs=reward,
        args=settings,
        train_dataset=rows,
        processing_class=processor,
        callbacks=[clock],
    )
    trainer.train()
    print(json.dumps({"began": clock.began, "steps": clock.steps}))


if __name__ == "__main__":
    main(str(Path(sys.argv[1])), *map(int, sys.argv[2:]))
