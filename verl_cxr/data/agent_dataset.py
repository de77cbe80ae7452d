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
"""verl's supervised data set for demonstrations of the evidence agent: the prompt offers the tools that they call.

The schemas come from the tools themselves, not from the rows: a column of schemas would lose its form in parquet, where
all rows share one structure, and could fall behind the tools.
"""

from __future__ import annotations

from typing import Any

from tool_plugins.schemas import tool_schemas
from verl_cxr.data.datasets import StudySFTDataset

__all__ = ["AgentSFTDataset"]


class AgentSFTDataset(StudySFTDataset):
    """`StudySFTDataset` with the tools named by ``data.agent_tools`` in each prompt, as the agent loop offers them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        schemas = tool_schemas(list(self._config.get("agent_tools") or ()))
        self.tools = [schemas] * len(self.messages) if schemas else None
