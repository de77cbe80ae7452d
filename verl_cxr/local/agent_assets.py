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
"""What the evidence agent's recipes run on at ``+scale=local``: demonstrations on phantoms, and a tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from verl_cxr.local.assets import NO_MODEL, made_once

__all__ = ["agent_data_folder", "agent_model_folder"]

_VOCABULARY = 2048  # whole tool schemas are among its words
_IMAGE_SIZE = 64  # the whole film is small, so that a crop shows more than it does
_TEMPLATE_WORDS = (
    '# Tools\n\n<tools>\n</tools>\n\nCall a tool like this:\n<tool_call>\n{"name": <name>, "arguments": <arguments>}\n'
    "</tool_call><|im_end|>\n<|im_start|>system\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
)


def agent_data_folder(assets: str | Path) -> Path:
    """``ASSETS/agent-data``: demonstrations and questions as parquet for both stages. Made once; safe under several
    processes.
    """
    from verl_cxr.data.adapters import Adapter, BuildContext
    from verl_cxr.data.build import Plan, build_rows
    from verl_cxr.data.card import CARD_NAME
    from verl_cxr.data.phantom_demonstrations import phantom_demonstrations
    from verl_cxr.data.question_rows import AGENT_STAGES, AgentRows

    def make(folder: Path) -> None:
        build_rows(
            Adapter("phantom_demonstrations", "Questions about phantoms.", phantom_demonstrations),
            {},
            BuildContext(out=folder, seed=0),
            maker=AgentRows(AGENT_STAGES, "phantom", films=folder / "films"),
            plan=Plan(keep_records=True, restart=True),
            command=["+recipe=x_ragent_sft", "+scale=local"],
        )

    notice = "no data named: making questions about phantom films, and demonstrations,"
    return made_once(Path(assets) / "agent-data", CARD_NAME, notice, make)


def agent_model_folder(assets: str | Path) -> Path:
    """``ASSETS/tiny-agent-model``: a tiny Qwen3-VL with random weights, whose tokenizer knows the demonstrations."""
    from verl_cxr.tiny import TinySizes, build_tiny_model

    def make(folder: Path) -> None:
        texts = _texts(agent_data_folder(assets) / "agent_sft_train.parquet")
        build_tiny_model(folder, texts=texts, seed=0, sizes=TinySizes(image_size=_IMAGE_SIZE), vocab_size=_VOCABULARY)

    return made_once(Path(assets) / "tiny-agent-model", "config.json", NO_MODEL, make)


def _texts(rows: Path) -> Iterator[str]:
    """What the model meets: the messages of the demonstrations, the tools, and the words of the chat template."""
    from tool_plugins.options import TOOLS
    from tool_plugins.schemas import tool_schemas

    schemas = "\n".join(json.dumps(schema) for schema in tool_schemas([*TOOLS, "measure"]))
    for messages in pq.read_table(rows, columns=["messages"])["messages"].to_pylist():
        yield _TEMPLATE_WORDS
        yield schemas
        for message in messages:
            yield message["content"].replace("<image>", "")
