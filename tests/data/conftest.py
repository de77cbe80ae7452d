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
"""One built data set and one tiny model for the tests of rows as verl reads them."""

from pathlib import Path

import pytest

from verl_cxr.data.adapters import BuildContext, load_adapters
from verl_cxr.data.build import build
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions
from verl_cxr.study import read_studies
from verl_cxr.tiny import TinySizes, build_tiny_model, training_texts
from verl_cxr.trace import TraceFormat


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six phantom films of 64 x 96 pixels, all three stages; `built / "embedded"` holds the same rows with bytes."""
    out = tmp_path_factory.mktemp("built")
    options = {"count": 4, "validate": 2, "size": 96, "height": 64}
    phantom = load_adapters()["phantom"]
    for folder, embed in ((out, False), (out / "embedded", True)):
        context = BuildContext(out=folder, seed=0)
        build(phantom, options, context, stages=list(Stage), rows=RowOptions("phantom", embed_images=embed))
    return out


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Path:
    """A tiny checkpoint for those films."""
    texts = training_texts(read_studies(built / "studies.jsonl"), TraceFormat())
    sizes = TinySizes(hidden=64, layers=1, vision_layers=1, image_size=96)
    return build_tiny_model(tmp_path_factory.mktemp("tiny"), texts=texts, sizes=sizes)
