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
"""verl's reward managers ``cxr_cascade`` and ``cxr_accuracy_gate``: they decode a rollout and call the pure rewards."""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from reward_plugins import accuracy_gate, cascade
from reward_plugins.failure import report_failure
from reward_plugins.relevance import load_table
from verl_cxr.facts import make_scorer
from verl_cxr.geometry import Frame
from verl_cxr.question import Question
from verl_cxr.study import Study
from verl_cxr.trace import TraceFormat
from verl_cxr.trajectory import Trajectory

__all__ = ["AccuracyGateRewardManager", "CascadeRewardManager", "decode_response"]


class _PureRewardManager(RewardManagerBase):
    """Scores one rollout a call, in a thread, so that the rollouts of a step overlap.

    Raises:
        Exception: an option is wrong, or a service is missing. It is reported first, as when scoring.
    """

    def __init__(self, config: DictConfig, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        try:
            self._configure(config.cxr)
        except Exception as error:
            report_failure(f"{type(self).__name__} could not start: {type(error).__name__}: {error}")
            raise

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last item of ``data``: ``{"reward_score": R, "reward_extra_info": fixed numeric keys}``.

        Raises:
            Exception: the reward cannot be computed. It is reported first, so that the run stops with this cause.
        """
        try:
            record = await asyncio.to_thread(self._record, data[-1])
        except Exception as error:
            report_failure(f"{type(self).__name__} could not score a rollout: {type(error).__name__}: {error}")
            raise
        return {"reward_score": record.reward, "reward_extra_info": record.numbers()}

    @abstractmethod
    def _configure(self, cxr: DictConfig) -> None:
        """Read the ``cxr`` section of the configuration."""

    @abstractmethod
    def _record(self, item: Any) -> Any:
        """The record of one item of a ``DataProto``."""


@register("cxr_cascade")
class CascadeRewardManager(_PureRewardManager):
    """The cascade of region-grounded GRPO.

    Reads ``cxr.reward`` (:class:`~reward_plugins.cascade.CascadeOptions`), ``cxr.facts`` and ``cxr.trace`` of the
    configuration. Of a row it reads ``reward_model.ground_truth``, the JSON text of a grounded study record, and
    ``extra_info``: ``box_frame``, which must be that of ``cxr.trace``, and ``processed_size`` for ``pixel_processed``.
    """

    def _configure(self, cxr: DictConfig) -> None:
        self.options = cascade.CascadeOptions(**_plain(cxr.reward))
        facts = _plain(cxr.facts)
        self.facts = make_scorer(facts.pop("name"), **facts)
        self.trace = TraceFormat(**_plain(cxr.trace))

    def _record(self, item: Any) -> cascade.RewardRecord:
        study = _study(item.non_tensor_batch["reward_model"]["ground_truth"])
        frame = self._frame(study, item.non_tensor_batch.get("extra_info") or {})
        response = decode_response(item, self.tokenizer)
        return cascade.score(response, study, options=self.options, frame=frame, facts=self.facts)

    def _frame(self, study: Study, extra_info: Mapping[str, Any]) -> Frame:
        asked = extra_info.get("box_frame") or self.trace.frame
        if asked != self.trace.frame:
            raise ValueError(
                f"the prompt of study {study.id!r} asks for boxes in {asked!r}, but cxr.trace.frame reads them as "
                f"{self.trace.frame!r}: choose trace@cxr.trace={asked}, or build the data again with --frame"
            )
        size = extra_info.get("processed_size")
        return self.trace.frame_for(study.width, study.height, None if size is None else (int(size[0]), int(size[1])))


@register("cxr_accuracy_gate")
class AccuracyGateRewardManager(_PureRewardManager):
    """The accuracy-gated reward of X-Ragent.

    Reads ``cxr.reward`` (:class:`~reward_plugins.accuracy_options.AccuracyGateOptions`) of the configuration. Of a row
    it reads ``reward_model.ground_truth``, the JSON text of a question record, and ``trajectory``, the JSON text of the
    trajectory's record, which the evidence agent loop leaves among the extra fields of its output; verl hands those
    over as ``tool_extra_fields``. A rollout of another agent loop is one turn without calls and without evidence.
    """

    def _configure(self, cxr: DictConfig) -> None:
        section = _plain(cxr.reward)
        section.pop("margin", None)  # a check of the configuration, see accuracy_gate.yaml
        self.options = accuracy_gate.AccuracyGateOptions(**section)
        load_table(self.options.table)

    def _record(self, item: Any) -> accuracy_gate.AccuracyRecord:
        question = _question(item.non_tensor_batch["reward_model"]["ground_truth"])
        written = (item.non_tensor_batch.get("tool_extra_fields") or {}).get("trajectory")
        if written is None:
            trajectory = Trajectory(question.id, (decode_response(item, self.tokenizer),))
        else:
            trajectory = Trajectory.from_dict(json.loads(written))
        if trajectory.id != question.id:
            raise ValueError(f"the trajectory is of question {trajectory.id!r}, and the row of {question.id!r}")
        return accuracy_gate.score(trajectory, question, self.options)


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


@lru_cache(maxsize=4096)
def _question(ground_truth: str) -> Question:
    """The question of a row; the rollouts of a prompt share it."""
    return Question.from_dict(json.loads(ground_truth))


def _plain(section: DictConfig) -> dict[str, Any]:
    return dict(OmegaConf.to_container(section, resolve=True))  # type: ignore[arg-type]
