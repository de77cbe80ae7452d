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
"""One small RadGraph of the genuine architecture for all tests here; built when the first of them needs it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from phrases import step

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def phrases() -> list[str]:
    """Distinct findings of a small step, in a fixed order."""
    return sorted({text for pair in step(prompts=6, rollouts=4) for text in pair})


@pytest.fixture(scope="session")
def radgraph_root(tmp_path_factory: pytest.TempPathFactory, phrases: list[str]) -> Path:
    """A folder with ``radgraph-xl/``, as weights are given."""
    from radgraph_model import build_radgraph

    root = tmp_path_factory.mktemp("radgraph")
    build_radgraph(root, texts=phrases)
    gc.collect()
    gc.freeze()  # else what transformers leaves in memory weighs on tests that compare times
    return root


@pytest.fixture(scope="session")
def annotator(radgraph_root: Path):
    """The annotator of that folder."""
    import torch

    from verl_cxr.facts.radgraph import RadGraphAnnotator
    from verl_cxr.facts.weights import locate

    torch.set_num_threads(1)
    return RadGraphAnnotator(locate("radgraph-xl", radgraph_root))
