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
"""One small data set of the evidence agent and one tiny model for it."""

from pathlib import Path
from typing import Any

import pytest
import torch
import verl  # noqa: F401 - loads the plug-in, which lets torchvision be imported

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def agent_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built folder: 24 demonstrations for training and 8 held out, both stages."""
    from verl_cxr.data.adapters import Adapter, BuildContext
    from verl_cxr.data.build import Plan, build_rows
    from verl_cxr.data.phantom_demonstrations import phantom_demonstrations
    from verl_cxr.data.question_rows import AGENT_STAGES, AgentRows

    out = tmp_path_factory.mktemp("agent") / "agent-data"
    out.mkdir()
    maker = AgentRows(AGENT_STAGES, "phantom", films=out / "films")
    adapter = Adapter("phantom_demonstrations", "", phantom_demonstrations)
    options = {"count": 24, "validate": 8}
    build_rows(adapter, options, BuildContext(out=out, seed=0), maker=maker, plan=Plan(keep_records=True))
    return out


@pytest.fixture(scope="session")
def agent_model(agent_data: Path) -> Path:
    """A tiny model whose tokenizer knows the demonstrations."""
    from verl_cxr.local.agent_assets import _texts
    from verl_cxr.tiny import TinySizes, build_tiny_model

    texts = list(_texts(agent_data / "agent_sft_train.parquet")) * 3
    sizes = TinySizes(hidden=64, layers=2, vision_layers=1, image_size=256)
    return build_tiny_model(agent_data.parent / "model", texts=texts, sizes=sizes, vocab_size=2048)


@pytest.fixture(scope="session")
def processor(agent_model: Path) -> Any:
    """verl's processor of that model."""
    from verl.utils import hf_processor

    return hf_processor(str(agent_model))


@pytest.fixture(scope="session")
def rows(agent_data: Path) -> list[dict[str, Any]]:
    """The rows of held-out questions."""
    import pyarrow.parquet as pq

    return pq.read_table(agent_data / "agent_grpo_validate.parquet").to_pylist()  # type: ignore[no-any-return]
