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
"""Rows as verl's own data sets read them, with a real processor."""

from io import BytesIO

import numpy as np
import pyarrow.parquet as pq
import pytest
import verl  # noqa: F401 - loads the plug-in, which lets torchvision be imported
from omegaconf import OmegaConf
from PIL import Image
from verl.utils import hf_processor, hf_tokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset

from verl_cxr.data.processed import processed_size_of
from verl_cxr.trace import Trace, TraceFormat, parse

FOLDERS = ["", "embedded"]


@pytest.fixture(scope="module")
def processor(tiny):
    return hf_processor(str(tiny))


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return hf_tokenizer(str(tiny))


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("stage", ["sft", "cold_start"])
def test_the_sft_data_set_trains_on_the_answer_alone(built, processor, tokenizer, stage, folder):
    path = built / folder / f"{stage}_train.parquet"
    config = OmegaConf.create({"max_length": 512, "pad_mode": "no_padding", "truncation": "error"})
    rows = MultiTurnSFTDataset(str(path), tokenizer, config, processor)
    answers = [row["messages"][1]["content"] for row in pq.read_table(path).to_pylist()]
    assert len(rows) == 4
    for row, answer in zip((rows[i] for i in range(4)), answers, strict=True):
        trained = tokenizer.decode(row["input_ids"][row["loss_mask"] == 1], skip_special_tokens=True)
        assert trained == answer + "\n"
        # 96 x 64 pixels are 6 x 4 patches, two by two of which make a token
        assert row["multi_modal_inputs"]["image_grid_thw"].tolist() == [[1, 4, 6]]
        assert (row["input_ids"] == processor.image_token_id).sum() == 6
        assert row["position_ids"].shape == (4, len(row["input_ids"]))
        if stage == "cold_start":
            assert isinstance(parse(trained, TraceFormat().frame_for(96, 64)), Trace)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_rl_data_set_yields_prompt_image_and_truth(built, processor, tokenizer, folder, tmp_path):
    path = built / folder / "grpo_validate.parquet"
    config = OmegaConf.create(
        {"max_prompt_length": 256, "cache_dir": str(tmp_path), "filter_overlong_prompts": True,
         "filter_overlong_prompts_workers": 1}
    )  # fmt: skip
    rows = RLHFDataset([str(path)], tokenizer, config, processor)
    stored = pq.read_table(path).to_pylist()
    assert len(rows) == 2  # nothing was filtered: a row that the processor cannot read would be dropped here
    for index, expected in enumerate(stored):
        row = rows[index]
        image, text = row["raw_prompt"][0]["content"]
        assert image["type"] == "image"
        assert "<image>" + text["text"] == expected["prompt"][0]["content"]
        assert row["reward_model"] == expected["reward_model"]
        assert row["data_source"] == "phantom"
        assert row["index"] == index
        images, _ = RLHFDataset._process_multi_modal_info(row["raw_prompt"], 16, config)[:2]
        kept = expected["images"][0]
        film = Image.open(BytesIO(kept["bytes"]) if folder else kept["image"]).convert("RGB")
        assert np.array_equal(np.asarray(images[0]), np.asarray(film))


def test_processed_size_is_what_the_model_sees(tiny, processor):
    sizes = processed_size_of(tiny)
    assert sizes(96, 64) == (96, 64)
    width, height = sizes(1024, 841)  # scaled down to at most 96 x 96 pixels, in multiples of 32
    assert width % 32 == height % 32 == 0
    assert width * height <= 96 * 96
