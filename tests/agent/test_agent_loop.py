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
"""The evidence agent loop with a scripted policy: which tokens train, what is shown, and what happens at the limits."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap, ToolListWrap
from verl.tools.function_tool import FunctionTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from tool_plugins import workbench
from tool_plugins.agent_loop import EvidenceAgentLoop
from tool_plugins.tool import function_schema
from verl_cxr.data.agent_dataset import AgentSFTDataset
from verl_cxr.data.phantom_demonstrations import tiny_options
from verl_cxr.data.phantom_questions import VIEWS
from verl_cxr.measure import MEASUREMENTS, TITLES
from verl_cxr.trajectory import Trajectory, read_trajectories

SEEN = "The film is seen."
ANSWER = "The film is frontal. <answer>frontal</answer>"


def call(name: str, **arguments: Any) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def plan(*calls: str) -> str:
    return "\n".join([SEEN, *calls])


CROP = call("roi_crop", region="cardiac silhouette")


class Policy:
    """Writes what it was told to, turn by turn, and keeps what it was asked."""

    def __init__(self, tokenizer: Any, turns: Sequence[str], *, end: str = "<|im_end|>") -> None:
        self.tokens = [tokenizer.encode(turn + end, add_special_tokens=False) for turn in turns]
        self.asked: list[dict[str, Any]] = []

    async def generate(self, **request: Any) -> TokenOutput:
        tokens = self.tokens[len(self.asked)][: request["sampling_params"]["max_tokens"]]
        self.asked.append(request)
        log_probs = [-0.5 - len(self.asked)] * len(tokens)
        return TokenOutput(token_ids=tokens, log_probs=log_probs, extra_fields={"global_steps": 7})


Roll = Callable[..., tuple[AgentLoopOutput, Trajectory, Policy]]


@pytest.fixture(scope="module")
def section(agent_data: Path) -> dict[str, Any]:
    from dataclasses import asdict

    from verl_cxr.measure import load_thresholds

    agent = asdict(tiny_options()) | {"tools": list(tiny_options().tools), "static_calls": []}
    return {
        "agent": agent,
        "masks": {"name": "phantom", "views": list(VIEWS)},
        "view": {"name": "metadata", "records": str(agent_data / "questions.jsonl")},
        "gate": asdict(load_thresholds("phantom")),
        "lookup": {"name": "knowledge", "statements": 1},
    }


@pytest.fixture
def roll(processor: Any, section: dict[str, Any], rows: list[dict[str, Any]]) -> Roll:
    """Roll out a row: ``roll(turns, row=0, length=400, tools=None, agent options...)``."""

    def run(
        turns: Sequence[str],
        *,
        row: int | None = None,
        length: int = 400,
        end: str = "<|im_end|>",
        tools: Sequence[Any] = (),
        gate: Mapping[str, Any] | None = None,
        **agent: Any,
    ) -> tuple[AgentLoopOutput, Trajectory, Policy]:
        cxr = section | {"agent": section["agent"] | agent, "gate": section["gate"] | dict(gate or {})}
        rollout = {"multi_turn": {"format": "hermes"}, "prompt_length": 400, "response_length": length}
        config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "cxr": cxr})
        policy = Policy(processor.tokenizer, turns, end=end)

        async def go() -> AgentLoopOutput:
            loop = EvidenceAgentLoop(
                trainer_config=DictConfigWrap(config),
                server_manager=policy,
                tokenizer=processor.tokenizer,
                processor=processor,
                dataset_cls=RLHFDataset,
                data_config=DictConfigWrap(OmegaConf.create({})),
                hf_model_type="qwen3_vl",
                tools=ToolListWrap(list(tools)),
            )
            chosen = rows[frontal_pa(rows) if row is None else row]
            content = [{"type": "image", "image": chosen["images"][0]["image"]}]
            content.append({"type": "text", "text": chosen["prompt"][0]["content"].removeprefix("<image>")})
            return await loop.run({}, raw_prompt=[{"role": "user", "content": content}], **chosen)

        output = asyncio.run(go())
        return output, Trajectory.from_dict(json.loads(output.extra_fields["trajectory"])), policy

    return run


def frontal_pa(rows: list[dict[str, Any]], view: str = "PA") -> int:
    return next(at for at, row in enumerate(rows) if row["extra_info"]["view"] == view)


def in_step(output: AgentLoopOutput, processor: Any) -> int:
    """Check that pictures and their tokens agree; returns how many tokens they have."""
    ids = torch.tensor([*output.prompt_ids, *output.response_ids])
    images = output.multi_modal_data["images"]
    grids = processor.image_processor(images=images, return_tensors="pt")["image_grid_thw"]
    tokens = (grids.prod(-1) // processor.image_processor.merge_size**2).tolist()
    pad = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    start = processor.tokenizer.convert_tokens_to_ids("<|vision_start|>")
    begins = (ids == start).nonzero().flatten().tolist()
    found = []
    for begin in begins:
        run = 0
        while ids[begin + 1 + run] == pad:
            run += 1
        found.append(run)
    assert found == tokens  # each picture has its own tokens, in order
    assert int((ids == pad).sum()) == sum(tokens)
    return sum(tokens)


# ---- the protocol


def test_the_loss_is_on_the_policys_tokens_alone(roll: Roll, processor: Any) -> None:
    turns = [plan(CROP), ANSWER]
    output, trajectory, _ = roll(turns)
    tokenizer = processor.tokenizer
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs or [])
    written = [token for token, own in zip(output.response_ids, output.response_mask, strict=True) if own]
    given = [token for token, own in zip(output.response_ids, output.response_mask, strict=True) if not own]
    assert tokenizer.decode(written) == "".join(f"{turn}<|im_end|>" for turn in turns)
    shown = re.sub(r"(<\|image_pad\|>)+", "<|image_pad|>", tokenizer.decode(given))
    told = trajectory.observations[0].replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>")
    assert shown == (
        f"\n<|im_start|>user\n<tool_response>\n{told}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    for own, probability in zip(output.response_mask, output.response_logprobs or [], strict=True):
        assert (probability != 0) == bool(own)
    assert in_step(output, processor) == 16 + 4  # 128 x 128 and 64 x 60 pixels, 32 x 32 a token


def test_what_trains_first_is_what_is_met_later(roll: Roll, processor: Any, agent_data: Path) -> None:
    """Token by token, a demonstration in verl's supervised data set is the rollout of its turns."""
    import pyarrow.parquet as pq

    file = agent_data / "agent_sft_validate.parquet"
    config = OmegaConf.create(
        {"agent_tools": list(tiny_options().tools), "pad_mode": "no_padding", "max_length": 2048, "truncation": "error"}
    )
    data = AgentSFTDataset([str(file)], processor.tokenizer, config, processor)
    demonstrations = pq.read_table(file).to_pylist()
    assert any(len(row["images"]) > 1 for row in demonstrations)
    for at, demonstration in enumerate(demonstrations):
        turns = [message["content"] for message in demonstration["messages"] if message["role"] == "assistant"]
        output, trajectory, _ = roll(turns, row=at)
        assert [trajectory.id] == [demonstration["extra_info"]["id"]]
        item = data[at]
        newline = processor.tokenizer.encode("\n")
        ids = [*output.prompt_ids, *output.response_ids, *newline]
        assert item["input_ids"].tolist() == ids
        trained = [*[0] * len(output.prompt_ids), *output.response_mask, 0]
        own = item["loss_mask"].tolist()
        # upstream trains on the newline behind a turn too, which the template and not the policy writes
        extra = [place for place, (ours, theirs) in enumerate(zip(trained, own, strict=True)) if ours != theirs]
        assert all(ids[place] == newline[0] and ids[place - 1] == processor.tokenizer.eos_token_id for place in extra)
        assert len(extra) == len(turns)


@pytest.mark.parametrize("calls", [0, 1, 5, 7])
def test_the_gate_is_asked_whatever_the_plan(roll: Roll, calls: int) -> None:
    output, trajectory, _ = roll([plan(*[call("region_parse", region="heart")] * calls), ANSWER], plan_tokens=200)
    assert trajectory.evidence is not None
    assert trajectory.evidence.backends == {"masks": "phantom", "view": "metadata"}
    assert trajectory.evidence.observation() in trajectory.observations[0]
    refused = [each.refused for each in trajectory.calls]
    assert refused == [None] * min(calls, 5) + ["over_budget"] * max(0, calls - 5)
    assert output.num_turns == 4
    assert set(trajectory.timings) >= {"turn_0", "turn_1", "tools_0", "gate", "total"}


def test_observations_come_behind_the_actions_and_before_the_answer(roll: Roll, processor: Any) -> None:
    _, trajectory, policy = roll([plan(CROP), ANSWER])
    first, second = (processor.tokenizer.decode(asked["prompt_ids"]) for asked in policy.asked)
    assert "<tool_response>" not in first
    assert "cardiothoracic" not in first
    assert second.startswith(first + plan(CROP))
    assert second.index("roi_crop: Crop") > len(first)
    assert len(policy.asked[0]["image_data"]) == 1
    assert len(policy.asked[1]["image_data"]) == 2
    assert trajectory.observations[0].index("Crop of") < trajectory.observations[0].index("rdiothoracic")


def test_calls_run_side_by_side(roll: Roll, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five calls meet at a barrier that opens for five: one after another they would never pass it."""
    from tool_plugins.roi_crop import RoiCrop
    from tool_plugins.tool import Result

    barrier = threading.Barrier(5, timeout=20)

    def meet(self: RoiCrop, arguments: Mapping[str, Any], case: Any) -> Result:
        return Result(f"number {barrier.wait()}")

    monkeypatch.setattr(RoiCrop, "__call__", meet)
    _, trajectory, _ = roll([plan(*[CROP] * 5), ANSWER], plan_tokens=200)
    assert sorted(each.observation for each in trajectory.calls) == [f"number {at}" for at in range(5)]


def test_rollouts_of_a_film_measure_it_once(roll: Roll, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "_made", {})
    from tool_plugins import evidence_source

    counted: list[Path] = []
    genuine = evidence_source.gather

    def gather(film: Any, **options: Any) -> Any:
        counted.append(film.path)
        return genuine(film, **options)

    monkeypatch.setattr(evidence_source, "gather", gather)
    for _ in range(3):
        roll([SEEN, ANSWER])
    assert len(counted) == 1


# ---- the gate


@pytest.mark.parametrize("view", ["AP", "LATERAL"])
def test_no_number_of_a_withheld_measurement_is_in_any_prompt(
    roll: Roll, rows: list[dict[str, Any]], processor: Any, view: str
) -> None:
    _, trajectory, policy = roll([SEEN, ANSWER], row=frontal_pa(rows, view))
    evidence = trajectory.evidence
    assert evidence is not None
    assert not evidence.decision.open
    assert evidence.exposed == ()
    package = trajectory.observations[0].partition("\n")[2]
    assert not re.search(r"\d", package)
    assert all(TITLES[name] in package for name in MEASUREMENTS)
    assert "nothing follows from" in package
    text = " ".join(processor.tokenizer.decode(asked["prompt_ids"]) for asked in policy.asked)
    for measurement in evidence.withheld:
        assert f"{abs(measurement.value):.2f}" not in text


def test_the_gate_may_be_switched_off(roll: Roll, rows: list[dict[str, Any]]) -> None:
    _, trajectory, _ = roll([SEEN, ANSWER], row=frontal_pa(rows, "AP"), gate={"enabled": False})
    assert trajectory.evidence is not None
    assert trajectory.evidence.decision.forced
    assert len(trajectory.evidence.exposed) == 3


# ---- ablations and rounds


def test_without_tools_the_prompt_offers_none(roll: Roll, processor: Any) -> None:
    output, trajectory, _ = roll([plan(CROP), ANSWER], routing="none")
    assert "roi_crop" not in processor.tokenizer.decode(output.prompt_ids)
    assert [each.refused for each in trajectory.calls] == ["unknown_tool"]
    assert len(output.multi_modal_data["images"]) == 1
    assert trajectory.evidence is not None


def test_without_any_evidence_there_are_two_turns_all_the_same(roll: Roll) -> None:
    _, trajectory, _ = roll([SEEN, ANSWER], routing="none", measurements="none")
    assert trajectory.observations == ("No tool was called.",)
    assert trajectory.evidence is None


def test_everything_may_be_called_whatever_the_plan(roll: Roll, processor: Any) -> None:
    static = [
        {"name": "roi_crop", "arguments": {"region": "left lung"}},
        {"name": "region_parse", "arguments": {"region": "right lung"}},
    ]
    output, trajectory, _ = roll([plan(CROP), ANSWER], routing="all", static_calls=static)
    assert [(each.tool, each.arguments) for each in trajectory.calls] == [
        (item["name"], item["arguments"]) for item in static
    ]
    assert "roi_crop" not in processor.tokenizer.decode(output.prompt_ids)
    in_step(output, processor)


def test_the_policy_may_route_measurements(roll: Roll, processor: Any) -> None:
    output, asked, _ = roll([plan(call("measure")), ANSWER], measurements="policy")
    assert '"name": "measure"' in processor.tokenizer.decode(output.prompt_ids)
    assert asked.evidence is not None
    assert "rdiothoracic ratio" in asked.observations[0]
    assert len(asked.calls) == 1
    _, not_asked, _ = roll([SEEN, ANSWER], measurements="policy")
    assert (not_asked.evidence, not_asked.calls) == (None, ())
    assert "rdiothoracic" not in not_asked.observations[0]


def test_more_rounds_share_one_budget(roll: Roll, processor: Any) -> None:
    turns = [plan(CROP, CROP, CROP), plan(CROP, CROP, CROP), ANSWER]
    output, trajectory, policy = roll(turns, rounds=2)
    assert [(each.turn, each.refused) for each in trajectory.calls] == [
        (0, None), (0, None), (0, None), (1, None), (1, None), (1, "over_budget"),
    ]  # fmt: skip
    assert len(policy.asked) == 3
    assert [text.count("rdiothoracic ratio") for text in trajectory.observations] == [1, 0]  # measured once
    in_step(output, processor)


def test_a_later_turn_without_a_call_is_the_answer(roll: Roll) -> None:
    _, trajectory, policy = roll([plan(CROP), ANSWER, "never written"], rounds=3)
    assert len(policy.asked) == 2
    assert trajectory.answer_text == ANSWER


# ---- limits


def test_calls_in_the_answer_are_counted_and_not_executed(roll: Roll) -> None:
    _, trajectory, _ = roll([SEEN, plan(CROP, "<tool_call>x</tool_call>")])
    assert [(each.turn, each.refused) for each in trajectory.calls] == [(1, "no_turn_left"), (1, "malformed")]


@pytest.mark.parametrize("end", ["", "<|endoftext|>"])
def test_a_plan_that_does_not_end_is_cut(roll: Roll, end: str) -> None:
    output, trajectory, policy = roll([plan(*[CROP] * 20), ANSWER], end=end)
    assert trajectory.cut
    assert len(policy.asked) == 1
    assert len(output.response_ids) == tiny_options().plan_tokens
    assert output.response_mask == [1] * len(output.response_ids)


def test_at_the_exact_limit_pictures_and_tokens_stay_together(roll: Roll, processor: Any) -> None:
    """For each response length around the one that everything just fits into."""
    turns = [plan(CROP, call("roi_crop", region="left lung")), ANSWER]
    full, _, _ = roll(turns, answer_tokens=20, crop_side=256)
    answer = len(processor.tokenizer.encode(ANSWER + "<|im_end|>"))
    needed = len(full.response_ids) - answer + 20
    pictures = []
    for length in range(needed + 1, needed - 150, -1):
        output, trajectory, _ = roll(turns, length=length, answer_tokens=20, crop_side=256)
        assert len(output.response_ids) == len(output.response_mask) <= length
        assert len(output.response_logprobs or []) == len(output.response_ids)
        in_step(output, processor)
        assert len(output.multi_modal_data["images"]) == 1 + sum(len(each.images) for each in trajectory.calls) or (
            trajectory.cut
        )
        pictures.append(len(output.multi_modal_data["images"]) - 1)
        if trajectory.cut and len(trajectory.turns) == 1:
            assert trajectory.observations == ()
    assert pictures[:3] == [2, 2, 1]  # needed + 1, needed, needed - 1
    assert sorted(pictures, reverse=True) == pictures
    assert pictures[-1] == 0


def test_the_server_is_never_asked_for_more_than_fits(roll: Roll) -> None:
    output, _, policy = roll([SEEN, ANSWER], length=200)
    used = sum(1 for own in output.response_mask if not own)
    first, second = (asked["sampling_params"]["max_tokens"] for asked in policy.asked)
    assert first == tiny_options().plan_tokens
    assert second == 200 - used - len(policy.tokens[0])


# ---- tools of others, the log


LAMP = function_schema("lamp", "Light a lamp.", colour=("string", "Of the lamp."))


def test_a_tool_written_for_verl_is_offered_besides(roll: Roll, processor: Any) -> None:
    def lamp(colour: str) -> ToolResponse:
        return ToolResponse(text=f"a {colour} lamp <image>")

    tool = FunctionTool(name="lamp", fn=lamp, tool_schema=OpenAIFunctionToolSchema.model_validate(LAMP))
    output, trajectory, _ = roll([plan(call("lamp", colour="red")), ANSWER], tools=[tool])
    assert '"name": "lamp"' in processor.tokenizer.decode(output.prompt_ids)
    assert trajectory.calls[0].observation == "a red lamp < image>"
    in_step(output, processor)


def test_trajectories_are_logged_by_split_and_step(roll: Roll, tmp_path: Path) -> None:
    for _ in range(2):
        _, trajectory, _ = roll([plan(CROP), ANSWER], log=str(tmp_path / "log"))
    logged = list(read_trajectories(tmp_path / "log" / "validate-0.jsonl"))
    assert [each.turns for each in logged] == [trajectory.turns] * 2
    assert logged[0].calls[0].images == ("roi_crop-0",)


def test_the_reward_reads_what_the_loop_leaves(roll: Roll, rows: list[dict[str, Any]], processor: Any) -> None:
    from reward_plugins.accuracy_options import AccuracyGateOptions
    from reward_plugins.manager import AccuracyGateRewardManager

    at = frontal_pa(rows)
    truth = json.loads(rows[at]["reward_model"]["ground_truth"])
    output, _, _ = roll([plan(CROP), f"It shows. <answer>{truth['answer'][0]}</answer>"], row=at)
    manager = object.__new__(AccuracyGateRewardManager)
    manager.options, manager.tokenizer = AccuracyGateOptions(), processor.tokenizer
    item = SimpleNamespace(
        non_tensor_batch={"reward_model": rows[at]["reward_model"], "tool_extra_fields": output.extra_fields}
    )
    record = manager._record(item)
    assert (record.correct, record.calls, record.gate_asked, record.turns) == (True, 1, True, 2)
    assert record.reward == pytest.approx(0.2 + 1 + 0.5 * record.consistency - 0.05)


def test_another_format_of_calls_is_refused(processor: Any, section: dict[str, Any]) -> None:
    rollout = {"multi_turn": {"format": "gpt-oss"}, "prompt_length": 400, "response_length": 400}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "cxr": section})

    async def make() -> None:
        EvidenceAgentLoop(
            trainer_config=DictConfigWrap(config),
            server_manager=None,
            tokenizer=processor.tokenizer,
            processor=processor,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(OmegaConf.create({})),
            hf_model_type="qwen3_vl",
        )

    with pytest.raises(ValueError, match="hermes"):
        asyncio.run(make())
