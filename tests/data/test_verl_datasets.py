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
import torch
import verl  # noqa: F401 - loads the plug-in, which lets torchvision be imported
from omegaconf import OmegaConf
from PIL import Image
from verl.utils import hf_processor, hf_tokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset

from verl_cxr.data.datasets import NoSuchSplitError, StudyRLDataset, StudySFTDataset
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


def jsonl_config(tmp_path, stage, **changes):
    return OmegaConf.create(
        {"cache_dir": str(tmp_path / "cache"), "max_prompt_length": 256, "filter_overlong_prompts": False,
         "max_length": 512, "pad_mode": "no_padding", "truncation": "error",
         "studies": {"stage": stage, "data_source": "phantom"}} | changes
    )  # fmt: skip


@pytest.mark.parametrize("split", ["train", "validate"])
def test_jsonl_gives_the_rl_rows_of_the_parquet_files(built, processor, tokenizer, tmp_path, split):
    config = jsonl_config(tmp_path, "grpo")
    stored = RLHFDataset([str(built / f"grpo_{split}.parquet")], tokenizer, config, processor)
    direct = StudyRLDataset([f"{built}/studies.jsonl@{split}"], tokenizer, config, processor)
    same_file = StudyRLDataset([str(built / f"grpo_{split}.parquet")], tokenizer, config, processor)
    assert len(stored) == len(direct) == len(same_file) == {"train": 4, "validate": 2}[split]
    for index in range(len(stored)):
        ours, theirs = direct[index], stored[index]
        assert ours.pop("dummy_tensor") == theirs.pop("dummy_tensor")
        assert ours == theirs  # prompt, images, ground truth, extra_info, data source, all
        images = [StudyRLDataset._process_multi_modal_info(r["raw_prompt"], 16, config)[0][0] for r in (ours, theirs)]
        assert np.array_equal(*map(np.asarray, images))
    direct.resume_dataset_state()  # verl reads the files again after a checkpoint
    assert len(direct) == len(stored)


@pytest.mark.parametrize("stage", ["sft", "cold_start"])
def test_jsonl_gives_the_sft_rows_of_the_parquet_files(built, processor, tokenizer, tmp_path, stage):
    config = jsonl_config(tmp_path, stage)
    stored = MultiTurnSFTDataset(str(built / f"{stage}_train.parquet"), tokenizer, config, processor)
    direct = StudySFTDataset(f"{built}/studies.jsonl@train", tokenizer, config, processor)
    assert len(stored) == len(direct) == 4
    for index in range(4):
        ours, theirs = direct[index], stored[index]
        assert ours.keys() == theirs.keys()
        for key in ("input_ids", "loss_mask", "position_ids"):
            assert torch.equal(ours[key], theirs[key])
        assert torch.equal(ours["multi_modal_inputs"]["pixel_values"], theirs["multi_modal_inputs"]["pixel_values"])


def test_a_file_of_studies_without_a_split_gives_them_all_and_is_read_once(built, tokenizer, processor, tmp_path):
    config = jsonl_config(tmp_path, "grpo")
    (tmp_path / "images").symlink_to(built / "images")
    file = tmp_path / "studies.jsonl"
    file.write_bytes((built / "studies.jsonl").read_bytes())
    assert len(StudyRLDataset(str(file), tokenizer, config, processor)) == 6
    cache = tmp_path / "cache" / "verl-cxr"
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1
    assert len(StudyRLDataset(f"{file}@train", tokenizer, config, processor)) == 4
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:3]))
    assert len(StudyRLDataset(f"{file}@train", tokenizer, config, processor)) == 3
    with pytest.raises(
        NoSuchSplitError, match=r"no grpo row of the split 'validate', but of train: hold some patients"
    ):
        StudyRLDataset(f"{file}@validate", tokenizer, config, processor)
    config.studies.validate_fraction = 0.5
    held = [len(StudyRLDataset(f"{file}@{split}", tokenizer, config, processor)) for split in ("train", "validate")]
    assert sum(held) == 3
    assert min(held) > 0


def test_unknown_options_of_the_studies(built, tokenizer, processor, tmp_path):
    config = jsonl_config(tmp_path, "grpo", studies={"validation_fraction": 0.1})
    with pytest.raises(ValueError, match="no option 'validation_fraction'"):
        StudyRLDataset(f"{built}/studies.jsonl", tokenizer, config, processor)


def test_a_validation_set_smaller_than_a_batch_fills_one(built, tokenizer, processor, tmp_path, capsys):
    """verl drops incomplete validation batches, and the mean of no loss is NaN."""
    train, validate = (str(built / f"sft_{split}.parquet") for split in ("train", "validate"))
    config = jsonl_config(tmp_path, "sft", train_files=train, val_files=validate, train_batch_size=5)
    rows = StudySFTDataset(validate, tokenizer, config, processor)
    assert len(rows) == 6  # 2 rows, three times
    assert torch.equal(rows[0]["input_ids"], rows[4]["input_ids"])
    assert "2 validation rows are fewer than data.train_batch_size=5" in capsys.readouterr().err
    assert len(StudySFTDataset(train, tokenizer, config, processor)) == 4  # what is trained on is left alone
    config.train_batch_size = 2
    assert len(StudySFTDataset(validate, tokenizer, config, processor)) == 2


def test_processed_size_is_what_the_model_sees(tiny, processor):
    sizes = processed_size_of(tiny)
    assert sizes(96, 64) == (96, 64)
    width, height = sizes(1024, 841)  # scaled down to at most 96 x 96 pixels, in multiples of 32
    assert width % 32 == height % 32 == 0
    assert width * height <= 96 * 96
