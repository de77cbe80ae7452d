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
"""Agent-loop workers of a CPU run: verl's own, without preparing the same film again for each rollout of a prompt.

For every rollout verl runs the processor three times, computes M-RoPE positions twice, and calls the reward worker and
the transfer queue. On a GPU that hides behind generation; with a tiny model on two cores it is most of a step.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.utils.tokenizer import get_processor_token_id

from reward_plugins.failure import report_failure
from verl_cxr.local.server import image_key
from verl_cxr.once import Once

__all__ = ["LocalAgentLoopManager", "MemoisedProcessor"]

_REMEMBERED = 512  # answers of a processor; the rollouts of a prompt ask at once, from threads


class _Together:
    """Hands over in one call what arrives within ``wait`` seconds: rollouts of one batch end almost together."""

    def __init__(self, handle: Callable[[list[Any]], Awaitable[Sequence[Any]]], wait: float = 0.02) -> None:
        self._handle = handle
        self._wait = wait
        self._pending: list[tuple[Any, asyncio.Future[Any]]] = []
        self._flushes: set[asyncio.Task[None]] = set()

    async def __call__(self, item: Any) -> Any:
        """What ``handle`` answers for this item; its exception reaches everyone in the call."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append((item, answer))
        if len(self._pending) == 1:
            flush = asyncio.create_task(self._flush())
            self._flushes.add(flush)
            flush.add_done_callback(self._flushes.discard)
        return await answer

    async def _flush(self) -> None:
        await asyncio.sleep(self._wait)
        batch, self._pending = self._pending, []
        try:
            results = await self._handle([item for item, _ in batch])
            answered = list(zip(batch, results, strict=True))
        except Exception as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), result in answered:
            if not answer.done():  # whoever waited may have been cancelled
                answer.set_result(result)


class MemoisedProcessor:
    """A processor that remembers its answers by text and image content; anything else is the processor's own."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._answers: Once[Any, Any] = Once(_REMEMBERED)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_processor":
            raise AttributeError(name)
        return getattr(self._processor, name)

    def __call__(self, *, text: list[str], images: Any = None, videos: Any = None, **options: Any) -> Any:
        if videos:
            return self._processor(text=text, images=images, videos=videos, **options)
        key = (tuple(text), tuple(image_key(image) for image in images or ()), repr(sorted(options.items())))
        return self._answers.get(key, lambda: self._processor(text=text, images=images, **options))


class _LocalWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    processor: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        torch.set_num_threads(1)  # the cores belong to the server and the trainer
        if self.processor is not None:
            self.processor = MemoisedProcessor(self.processor)
        self._image_inputs: Once[Any, Any] = Once(_REMEMBERED)
        self._prefix_positions: Once[Any, Any] = Once(_REMEMBERED)
        self._image_id = get_processor_token_id(self.processor, "image")
        self._video_id = get_processor_token_id(self.processor, "video")
        self._score_together = _Together(self._score_batch)
        self._store_together = {
            partition: _Together(partial(self._store_batch, partition)) for partition in ("train", "val")
        }

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str,
        trace: bool = True,
        **row: Any,
    ) -> Any:
        try:
            if agent_name != "single_turn_agent" or trace:
                return await super()._run_agent_loop(
                    sampling_params, trajectory, agent_name=agent_name, trace=trace, **row
                )
            # this loop keeps nothing between rollouts, so one serves all; Hydra takes longer to make it than it runs
            output = await self._single_turn.run(sampling_params, **row)
            if self.reward_loop_worker_handles is None or self.distillation_enabled:
                return await self._agent_loop_postprocess(output, trajectory["validate"], **row)
            result = await self._score_together((output, row))
            output.reward_score = result["reward_score"]
            output.extra_fields["reward_extra_info"] = result["reward_extra_info"]
            await self._store_together["val" if trajectory["validate"] else "train"]((output, row))
        except Exception as error:
            report_failure(f"a rollout failed: {type(error).__name__}: {error}")
            raise

    async def _score_batch(self, rollouts: list[tuple[AgentLoopOutput, dict[str, Any]]]) -> list[dict[str, Any]]:
        """One call to a reward worker; prompts padded on the left and responses on the right, as managers expect."""
        prompts = _padded([output.prompt_ids for output, _ in rollouts], left=True)
        responses = _padded([output.response_ids for output, _ in rollouts], left=False)
        mask = torch.cat([prompts[1], responses[1]], dim=1)
        tensors = {
            "prompts": prompts[0],
            "responses": responses[0],
            "input_ids": torch.cat([prompts[0], responses[0]], dim=1),
            "attention_mask": mask,
        }
        columns = {name: _objects([row[name] for _, row in rollouts]) for name in rollouts[0][1]}
        columns["__num_turns__"] = np.array([output.num_turns for output, _ in rollouts])
        columns["tool_extra_fields"] = _objects([output.extra_fields for output, _ in rollouts])
        data = DataProto(batch=TensorDict(tensors, batch_size=len(rollouts)), non_tensor_batch=columns)
        worker = random.choice(self.reward_loop_worker_handles)
        return list(await worker.compute_score_batch.remote(data))

    async def _store_batch(self, partition: str, rollouts: list[tuple[AgentLoopOutput, dict[str, Any]]]) -> list[None]:
        """One put of trajectories in verl's form (``verl/trainer/ppo/v1/agent_loop_tq.py``, verl 0.9.1)."""
        keys, fields, tags = [], [], []
        for output, row in rollouts:
            field = output.as_dict() | row
            field.pop("multi_modal_data", None)
            prompt, response = field["prompts"], field["responses"]
            ids = torch.cat([prompt, response])
            field["loss_mask"] = field["response_mask"]
            field["input_ids"] = ids
            field["multi_modal_inputs"] = self._compute_multi_modal_inputs(output, ids)
            field["position_ids"] = self._compute_position_ids(
                ids.unsqueeze(0), torch.ones_like(ids).unsqueeze(0), field["multi_modal_inputs"]
            ).squeeze(0)
            keys.append(f"{row['uid']}_{row['session_id']}_0")
            fields.append(field)
            tags.append(
                {
                    "status": "success",
                    "prompt_len": len(prompt),
                    "response_len": len(response),
                    "seq_len": len(ids),
                    "global_steps": row["global_steps"],
                    "min_global_steps": field["extra_fields"].get("min_global_steps"),
                    "max_global_steps": field["extra_fields"].get("max_global_steps"),
                }
            )
        table = list_of_dict_to_tensordict(fields)
        await transfer_queue.async_kv_batch_put(keys=keys, fields=table, tags=tags, partition_id=partition)
        return [None] * len(rollouts)

    @cached_property
    def _single_turn(self) -> SingleTurnAgentLoop:
        return SingleTurnAgentLoop(
            trainer_config=DictConfigWrap(config=self.config),
            server_manager=self.llm_client,
            tokenizer=self.tokenizer,
            processor=self.processor,
            hf_model_type=self.hf_model_type,
            dataset_cls=self.dataset_cls,
            data_config=DictConfigWrap(self.config.data),
        )

    def _compute_multi_modal_inputs(self, output: Any, input_ids: torch.Tensor) -> dict[str, Any]:
        """Image features depend on the images alone, not on the text around them."""
        media = output.multi_modal_data or {}
        images = media.get("images")
        if self.processor is None or not images or media.get("videos") or media.get("audios"):
            return super()._compute_multi_modal_inputs(output, input_ids)
        key = tuple(image_key(image) for image in images)
        return dict(
            self._image_inputs.get(
                key, lambda: super(_LocalWorker, self)._compute_multi_modal_inputs(output, input_ids)
            )
        )

    def _compute_position_ids(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, multi_modal_inputs: dict[str, Any], *rest: Any
    ) -> torch.Tensor:
        """Positions (1, 4, L): those up to the last image come from verl, once a prompt; text after it counts on."""
        ids = input_ids[0]
        visual = (ids == self._image_id) | (ids == self._video_id)
        if not bool(visual.any()) or not bool(attention_mask.all()):
            return super()._compute_position_ids(input_ids, attention_mask, multi_modal_inputs, *rest)
        end = int(visual.nonzero()[-1]) + 1
        prefix = input_ids[:, :end]
        grids = multi_modal_inputs.get("image_grid_thw")
        key = (tuple(prefix[0].tolist()), None if grids is None else tuple(grids.flatten().tolist()))
        known = self._prefix_positions.get(
            key,
            lambda: super(_LocalWorker, self)._compute_position_ids(
                prefix, attention_mask[:, :end], dict(multi_modal_inputs), *rest
            ),
        )
        multi_modal_inputs.pop("mm_token_type_ids", None)  # as upstream leaves it: only positions are made from it
        ahead = torch.arange(1, len(ids) - end + 1)
        text = known[:, :1, -1:] + ahead
        vision = known[:, 1:].amax(dim=(1, 2), keepdim=True) + ahead
        return torch.cat([known, torch.cat([text, vision.expand(-1, known.shape[1] - 1, -1)], dim=1)], dim=-1)


def _padded(rows: list[list[int]], *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (B, longest) padded with 0, and their mask."""
    tensors = [torch.tensor(row, dtype=torch.int64) for row in rows]
    side = "left" if left else "right"
    ids = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_side=side)
    ones = [torch.ones_like(tensor) for tensor in tensors]
    return ids, torch.nn.utils.rnn.pad_sequence(ones, batch_first=True, padding_side=side)


def _objects(values: list[Any]) -> np.ndarray[Any, Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


class LocalAgentLoopManager(AgentLoopManagerTQ):
    """``actor_rollout_ref.rollout.agent.agent_loop_manager_class`` of ``+scale=local``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(_LocalWorker)
