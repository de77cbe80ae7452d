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
"""verl's agent loop ``cxr_evidence_agent``: plan, act, observe, answer (X-Ragent, two turns; more by ``rounds``).

1. The policy reads the film and writes a plan, possibly without a call.
2. The environment executes the plan's calls side by side and, whatever the plan, asks the validity gate about the
   measurement package. What comes of both is put behind the plan as one message, which is no part of the loss.
3. The policy answers.

A response never exceeds ``data.max_response_length``: a turn may write what is left, observations lose pictures until
they fit, and a picture's features enter the batch together with its tokens or not at all. The trajectory goes to the
reward, and to whoever reads the batch, as JSON in ``extra_fields["trajectory"]``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.utils.dataset.vision_utils import process_image

from tool_plugins.case import Case
from tool_plugins.observation import Observation, observe
from tool_plugins.plan import Planned, parse_plan
from tool_plugins.refusal import Refusal
from tool_plugins.toolbox import Answered, Toolbox, refused
from tool_plugins.trajectory_log import append_trajectory
from tool_plugins.verl_tools import ForeignTool
from tool_plugins.workbench import Workbench, workbench_of
from verl_cxr.measure import Evidence
from verl_cxr.trajectory import Call, Trajectory

__all__ = ["EvidenceAgentLoop"]

_FORMAT = "hermes"


@dataclass(slots=True)
class _Rollout:
    """A trajectory as it grows.

    Attributes:
        schemas: of the tools that the prompt offers; None: it offers none.
        ids: prompt and response so far.
        mask: 1 for each token of the response that the policy wrote, 0 for others.
        log_probs: of the response's tokens, 0 where the policy did not write; empty where the server tells none.
        images: those whose tokens are in `ids`, in order.
    """

    messages: list[dict[str, Any]]
    toolbox: Toolbox
    schemas: list[dict[str, Any]] | None
    ids: list[int]
    images: list[Any]
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)
    evidence: Evidence | None = None
    cut: bool = False
    timings: dict[str, float] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)
    preempted: int = 0


@register("cxr_evidence_agent")
class EvidenceAgentLoop(AgentLoopBase):
    """See the module. Reads ``cxr.{agent,masks,view,gate,lookup}`` of the configuration, and a row's ``extra_info``.

    Args:
        tools: verl's, from ``rollout.multi_turn.tool_config_path``; they are offered besides.

    Raises:
        ValueError: an option is wrong, or the rollout expects another format of tool calls.
    """

    def __init__(self, *args: Any, tools: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.rollout_config.multi_turn.format != _FORMAT:
            raise ValueError(
                f"the evidence agent reads tool calls in the format {_FORMAT}, and rollout.multi_turn.format is "
                f"{self.rollout_config.multi_turn.format!r}"
            )
        self.bench: Workbench = workbench_of(_section(self.config))
        self.options = self.bench.options
        self.response_length = int(self.rollout_config.response_length)
        self.foreign = list(tools.tools) if tools is not None else []

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Roll out one question.

        Raises:
            MaskError, ViewError, FilmError: the environment is broken; that ends the run.
        """
        began = time.monotonic()
        info = row.get("extra_info") or {}
        case = Case.from_row(info)
        rollout = await self._begin(row, self._toolbox(row))
        request, rounds = uuid4().hex, self.options.rounds
        for number in range(rounds + 1):
            last = number == rounds
            await self._write_turn(rollout, sampling_params, request, last=last)
            plan = parse_plan(rollout.turns[-1])
            if rollout.cut or last or (number > 0 and not plan):
                self._refuse_late(rollout, plan)
                break
            if not await self._observe(rollout, plan, case):
                rollout.cut = True
                break
        rollout.timings["total"] = time.monotonic() - began
        trajectory = Trajectory(
            id=str(info["id"]),
            turns=tuple(rollout.turns),
            calls=tuple(rollout.calls),
            observations=tuple(rollout.observations),
            evidence=rollout.evidence,
            cut=rollout.cut,
            timings=rollout.timings,
        )
        if self.options.log is not None:
            name = f"{info.get('split') or 'train'}-{row.get('global_steps', 0)}"
            await asyncio.to_thread(append_trajectory, Path(self.options.log), name, trajectory)
        return self._output(rollout, trajectory)

    def _toolbox(self, row: Mapping[str, Any]) -> Toolbox:
        """This rollout's tools."""
        if not self.foreign:
            return self.bench.toolbox
        kwargs, loop = row.get("tools_kwargs") or {}, asyncio.get_running_loop()
        foreign = (
            ForeignTool(tool, loop, (kwargs.get(tool.name) or {}).get("create_kwargs") or {}) for tool in self.foreign
        )
        return Toolbox([*self.bench.toolbox.tools.values(), *foreign], max_calls=self.options.max_calls)

    async def _begin(self, row: Mapping[str, Any], toolbox: Toolbox) -> _Rollout:
        messages = list(row["raw_prompt"])
        media = await self.process_multi_modal_info(messages)
        images = list(media.get("images") or ())
        self._assert_mm_supported(True)  # crops come later, if not films now
        schemas = toolbox.schemas if self.options.routing == "policy" and toolbox.tools else None
        ids = await self.ct_build_initial_tokens(messages, tools=schemas, images=images or None)
        return _Rollout(messages, toolbox, schemas, ids, images)

    async def _write_turn(
        self, rollout: _Rollout, sampling_params: Mapping[str, Any], request: str, *, last: bool
    ) -> None:
        """Let the policy write a turn, which ends the trajectory where it does not end by itself."""
        began = time.monotonic()
        room = self.response_length - len(rollout.mask)
        limit = room if last else min(self.options.plan_tokens, room)
        output = await self.server_manager.generate(
            request_id=request,
            prompt_ids=rollout.ids,
            sampling_params={**sampling_params, "max_tokens": limit},
            image_data=rollout.images or None,
        )
        tokens, log_probs = output.token_ids[:limit], (output.log_probs or [])[:limit]
        rollout.ids = rollout.ids + tokens
        rollout.mask = rollout.mask + [1] * len(tokens)
        rollout.log_probs = rollout.log_probs + log_probs
        rollout.turns.append(
            await self.loop.run_in_executor(None, lambda: self.tokenizer.decode(tokens, skip_special_tokens=True))
        )
        rollout.cut = not tokens or tokens[-1] != self.tokenizer.eos_token_id
        rollout.preempted += output.num_preempted or 0
        for key, value in output.extra_fields.items():
            if key != "min_global_steps" or key not in rollout.server:  # the version at the first turn is the oldest
                rollout.server[key] = value
        rollout.timings[f"turn_{len(rollout.turns) - 1}"] = time.monotonic() - began

    async def _observe(self, rollout: _Rollout, plan: list[Planned], case: Case) -> bool:
        """Act, and put the observation behind the turn; False where it does not fit."""
        turn, began = len(rollout.turns) - 1, time.monotonic()
        answered, (evidence, package) = await asyncio.gather(
            self._act(rollout, plan, case, turn), self._measure(rollout, case)
        )
        rollout.timings[f"tools_{turn}"] = time.monotonic() - began
        if any(each.call.tool == "measure" and not each.call.refused for each in answered) and self.bench.source:
            evidence = (await asyncio.to_thread(self.bench.source.gather, case))[0]
        rollout.evidence = evidence or rollout.evidence
        observation: Observation | None = observe(answered, package)
        while observation is not None:
            if await self._append(rollout, observation):
                rollout.calls += observation.calls
                rollout.observations.append(observation.text)
                return True
            observation = observation.with_fewer_pictures()
        rollout.calls += [each.call for each in answered]
        return False

    async def _act(self, rollout: _Rollout, plan: list[Planned], case: Case, turn: int) -> list[Answered]:
        """Answer the calls of a plan, side by side."""
        toolbox, made = rollout.toolbox, len(rollout.calls)
        if self.options.routing == "none":
            return [refused(each, Refusal.UNKNOWN_TOOL, "There are no tools.", turn=turn) for each in plan]
        if self.options.routing == "all":
            plan = self.options.static_plan() if turn == 0 else []

        async def answer(at: int, planned: Planned) -> Answered:
            refusal = toolbox.check(planned, turn=turn, made=made + at)
            if refusal is not None:
                return refusal
            return self._sized(await asyncio.to_thread(toolbox.execute, planned, case, turn=turn))

        return list(await asyncio.gather(*(answer(at, planned) for at, planned in enumerate(plan))))

    def _sized(self, answered: Answered) -> Answered:
        """The call with its pictures in the sizes that verl's data sets give them before the processor sees them."""
        patch = self.processor.image_processor.patch_size
        pictures = (process_image({"image": image}, image_patch_size=patch) for image in answered.images)
        return replace(answered, images=tuple(pictures))

    async def _measure(self, rollout: _Rollout, case: Case) -> tuple[Evidence | None, str]:
        """The measurement package, once, whether or not the plan has a call."""
        if self.options.measurements != "gate" or self.bench.source is None or rollout.observations:
            return None, ""
        began = time.monotonic()
        found = await asyncio.to_thread(self.bench.source.gather, case)
        rollout.timings["gate"] = time.monotonic() - began
        return found

    async def _append(self, rollout: _Rollout, observation: Observation) -> bool:
        """Append tokens and pictures together, if they leave room for an answer."""
        messages = [*rollout.messages, {"role": "assistant", "content": rollout.turns[-1]}]
        merged, mask, log_probs = await self.ct_merge_context_msg(
            messages,
            [*messages, observation.message()],
            rollout.ids,
            rollout.mask,
            rollout.log_probs or None,
            tools=rollout.schemas,
        )
        if len(mask) + self.options.answer_tokens > self.response_length:
            return False
        rollout.messages = [*messages, observation.message()]
        rollout.ids, rollout.mask, rollout.log_probs = merged.token_ids, mask, log_probs or []
        rollout.images = [*rollout.images, *observation.images]
        return True

    def _refuse_late(self, rollout: _Rollout, plan: list[Planned]) -> None:
        """Calls of a turn after which nothing is executed are counted all the same."""
        turn = len(rollout.turns) - 1
        for planned in plan:
            if planned.problem is not None:
                late = refused(planned, Refusal.MALFORMED, planned.problem, turn=turn)
            else:
                late = refused(planned, Refusal.NO_TURN_LEFT, "No turn was left.", turn=turn)
            rollout.calls.append(late.call)

    def _output(self, rollout: _Rollout, trajectory: Trajectory) -> AgentLoopOutput:
        count = len(rollout.mask)
        timings = rollout.timings
        metrics = AgentLoopMetrics(
            generate_sequences=sum(value for name, value in timings.items() if name.startswith("turn_")),
            tool_calls=sum(value for name, value in timings.items() if name.startswith("tools_")),
            num_preempted=rollout.preempted,
        )
        output = AgentLoopOutput(
            prompt_ids=rollout.ids[: len(rollout.ids) - count],
            response_ids=rollout.ids[len(rollout.ids) - count :],
            response_mask=rollout.mask,
            response_logprobs=rollout.log_probs or None,
            multi_modal_data={"images": rollout.images} if rollout.images else {},
            num_turns=1 + len(rollout.turns) + len(rollout.observations),
            metrics=metrics,
            extra_fields=rollout.server
            | {"turn_scores": [], "tool_rewards": [], "trajectory": json.dumps(trajectory.to_dict())},
        )
        return output


def _section(config: Any) -> dict[str, Any]:
    names = [name for name in ("agent", "masks", "view", "gate", "lookup") if config.cxr.get(name) is not None]
    return {name: OmegaConf.to_container(config.cxr[name], resolve=True) for name in names}
