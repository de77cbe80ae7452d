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
"""The benchmark's reward: the share of letters in a response. Both trainers call :func:`letters`."""

from __future__ import annotations

from typing import Any

try:
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
except ImportError:  # the TRL process
    RewardManagerBase = object


def letters(text: str) -> float:
    """Share of letters, 0 for an empty text."""
    return sum(character.isalpha() for character in text) / max(1, len(text))


class LetterRewardManager(RewardManagerBase):
    """:func:`letters` for verl."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)

    async def run_single(self, data: Any) -> dict[str, Any]:
        ids = data[-1].batch["responses"]
        return {"reward_score": letters(self.tokenizer.decode(ids, skip_special_tokens=True)), "reward_extra_info": {}}
