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
"""verl's reward manager ``cxr_cascade``: decodes a rollout, rebuilds its study and calls the pure cascade."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from reward_plugins import cascade
from reward_plugins.failure import report_failure
from verl_cxr.facts import make_scorer
from verl_cxr.geometry import Frame
from verl_cxr.study import Study
from verl_cxr.trace import TraceFormat

__all__ = ["CascadeRewardManager", "decode_response"]


@register("cxr_cascade")
class CascadeRewardManager(RewardManagerBase):
    """Scores one rollout a call; the fact scorer runs in a thread, so rollouts of a step overlap.

    Reads ``cxr.reward`` (:class:`~reward_plugins.cascade.CascadeOptions`), ``cxr.facts`` and ``cxr.trace`` of the
    configuration. Of a row it reads ``reward_model.ground_truth``, the JSON text of a grounded study record, and
    ``extra_info``: ``box_frame``, which must be that of ``cxr.trace``, and ``processed_size`` for ``pixel_processed``.

    Raises:
        Exception: an option is wrong or the fact scorer cannot be made. It is reported first, as when scoring.
    """

    def __init__(self, config: DictConfig, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        try:
            self.options = cascade.CascadeOptions(**_plain(config.cxr.reward))
            facts = _plain(config.cxr.facts)
            self.facts = make_scorer(facts.pop("name"), **facts)
            self.trace = TraceFormat(**_plain(config.cxr.trace))
        except Exception as error:
            report_failure(f"{type(self).__name__} could not start: {type(error).__name__}: {error}")
            raise

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last item of ``data``: ``{"reward_score": R, "reward_extra_info": fixed numeric keys}``.

        Raises:
            Exception: whatever the fact service raised. It is reported first, so that the run stops with this cause.
        """
        item = data[-1]
        try:
            study = _study(item.non_tensor_batch["reward_model"]["ground_truth"])
            frame = self._frame(study, item.non_tensor_batch.get("extra_info") or {})
            record = await asyncio.to_thread(self._score, decode_response(item, self.tokenizer), study, frame)
        except Exception as error:
            report_failure(f"{type(self).__name__} could not score a rollout: {type(error).__name__}: {error}")
            raise
        return {"reward_score": record.reward, "reward_extra_info": record.numbers()}

    def _frame(self, study: Study, extra_info: Mapping[str, Any]) -> Frame:
        asked = extra_info.get("box_frame") or self.trace.frame
        if asked != self.trace.frame:
            raise ValueError(
                f"the prompt of study {study.id!r} asks for boxes in {asked!r}, but cxr.trace.frame reads them as "
                f"{self.trace.frame!r}: choose trace@cxr.trace={asked}, or build the data again with --frame"
            )
        size = extra_info.get("processed_size")
        return self.trace.frame_for(study.width, study.height, None if size is None else (int(size[0]), int(size[1])))

    def _score(self, response: str, study: Study, frame: Frame) -> cascade.RewardRecord:
        return cascade.score(response, study, options=self.options, frame=frame, facts=self.facts)


def decode_response(item: Any, tokenizer: Any) -> str:
    """Text of a rollout without padding and special tokens, as verl's own managers decode it."""
    ids = item.batch["responses"]
    length = item.non_tensor_batch.get("response_len")
    if length is None:
        length = item.batch["attention_mask"][-ids.shape[-1] :].sum()
    return str(tokenizer.decode(ids[: int(length)], skip_special_tokens=True))


@lru_cache(maxsize=1024)
def _study(ground_truth: str) -> Study:
    """The study of a row; the rollouts of a prompt share it."""
    return Study.from_dict(json.loads(ground_truth))


def _plain(section: DictConfig) -> dict[str, Any]:
    return dict(OmegaConf.to_container(section, resolve=True))  # type: ignore[arg-type]
