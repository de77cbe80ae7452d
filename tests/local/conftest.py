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
"""One small data set and one tiny model for all tests of verl on a CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
import verl  # noqa: F401 - loads the plug-in, which lets torchvision be imported
from PIL import Image

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built data folder: 16 phantom films for training and 4 for validation, all three stages."""
    from verl_cxr.data.adapters import BuildContext, load_adapters
    from verl_cxr.data.build import build
    from verl_cxr.data.prompt import Stage
    from verl_cxr.data.rows import RowOptions

    out = tmp_path_factory.mktemp("phantoms")
    options = {"count": 16, "validate": 4, "size": 64}
    rows = RowOptions(data_source="phantom")
    build(load_adapters()["phantom"], options, BuildContext(out=out, seed=0), stages=list(Stage), rows=rows)
    return out


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, phantoms: Path) -> Path:
    """A Qwen3-VL of half a million parameters, with weights so large that its choices depend on all it has read."""
    from transformers import Qwen3VLForConditionalGeneration

    from verl_cxr.study import read_studies
    from verl_cxr.tiny import TinySizes, build_tiny_model, training_texts
    from verl_cxr.trace import TraceFormat

    out = tmp_path_factory.mktemp("tiny-model")
    texts = training_texts(read_studies(phantoms / "studies.jsonl"), TraceFormat())
    build_tiny_model(out, texts=texts, sizes=TinySizes(hidden=64, layers=2, vision_layers=1, image_size=64))
    model = Qwen3VLForConditionalGeneration.from_pretrained(out, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(5)
    model.save_pretrained(out)
    return out


@pytest.fixture(scope="session")
def processor(tiny_model: Path) -> Any:
    """verl's processor of the tiny model, with its M-RoPE index function."""
    from verl.utils import hf_processor

    return hf_processor(str(tiny_model))


@pytest.fixture(scope="session")
def films(phantoms: Path) -> list[Image.Image]:
    """Three films of three sizes."""
    paths = sorted((phantoms / "images").iterdir())[:3]
    sizes = [(64, 64), (64, 48), (96, 64)]
    return [Image.open(path).convert("RGB").resize(size) for path, size in zip(paths, sizes, strict=True)]
