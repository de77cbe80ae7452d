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
"""verl's manager of the accuracy-gated reward, on rollouts as the agent loop hands them over."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls

import hydra_configs
from reward_plugins import manager
from reward_plugins.accuracy_gate import AccuracyGateOptions, score
from reward_plugins.manager import AccuracyGateRewardManager
from tests.rewards.trajectories import HEART, RIGHT, WRONG, rollout
from verl_cxr import resolvers
from verl_cxr.trajectory import Trajectory

OPTIONS = yaml.safe_load((Path(next(iter(hydra_configs.__path__))) / "reward" / "accuracy_gate.yaml").read_text())
TRUTH = json.dumps(HEART.to_dict())


class Letters:
    """A tokenizer whose ids are code points; 0 is a special token."""

    def decode(self, ids: torch.Tensor, skip_special_tokens: bool = False) -> str:
        return "".join(chr(i) for i in ids.tolist() if i or not skip_special_tokens)


def make(**reward: Any) -> AccuracyGateRewardManager:
    resolvers.register()
    config = OmegaConf.create({"cxr": {"reward": OPTIONS | reward}})
    return AccuracyGateRewardManager(config, Letters(), None, reward_router_address=None)


def finished(made: Trajectory | None, *, text: str = RIGHT, truth: str = TRUTH, **fields: Any) -> DataProto:
    """One finished rollout, with the agent loop's extra fields as verl 0.9.1 passes them on."""
    ids = torch.tensor([[ord(letter) for letter in text] or [0]])
    mask = torch.ones(1, 3 + ids.shape[1], dtype=torch.long)
    batch = TensorDict({"prompts": torch.ones(1, 3), "responses": ids, "attention_mask": mask}, batch_size=1)
    if made is not None:
        fields["trajectory"] = json.dumps(made.to_dict())
    return DataProto(
        batch=batch,
        non_tensor_batch={
            "reward_model": np.array([{"style": "rule", "ground_truth": truth}]),
            "tool_extra_fields": np.array([fields], dtype=object),
        },
    )


def run(reward: AccuracyGateRewardManager, data: DataProto) -> dict[str, Any]:
    return asyncio.run(reward.run_single(data))


@pytest.mark.parametrize(
    "trajectory",
    [
        rollout(RIGHT, calls=2, shown={"ctr": 0.58}),
        rollout(WRONG, calls=7, withheld={"ctr": 0.58}),
        rollout(""),
        rollout("\x00\U0001f600", cut=True),
    ],
)
def test_numbers_are_those_of_the_pure_reward(trajectory: Trajectory) -> None:
    record = score(trajectory, HEART, AccuracyGateOptions())
    result = run(make(), finished(trajectory, text="what was decoded does not matter"))
    assert result == {"reward_score": record.reward, "reward_extra_info": record.numbers()}
    assert result["reward_extra_info"].keys() == run(make(), finished(rollout()))["reward_extra_info"].keys()


def test_options_reach_the_reward() -> None:
    data = finished(rollout(RIGHT, calls=2, shown={"ctr": 0.58}))
    assert run(make(), data)["reward_score"] == pytest.approx(1.6)
    assert run(make(mode="accuracy", format_weight=0.0), data)["reward_score"] == 1.0


def test_a_rollout_of_another_agent_loop_is_one_turn() -> None:
    result = run(make(), finished(None, text=RIGHT))
    assert result["reward_score"] == pytest.approx(1.2)
    assert result["reward_extra_info"]["turns"] == 1
    assert result["reward_extra_info"]["gate_asked"] == 0


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    causes: list[str] = []
    monkeypatch.setattr(manager, "report_failure", causes.append)
    return causes


def test_what_is_not_a_matter_of_the_response_stops_the_run(reported: list[str]) -> None:
    other = rollout(question=HEART.__class__.from_dict(HEART.to_dict() | {"id": "lung"}))
    with pytest.raises(ValueError, match="the trajectory is of question 'lung', and the row of 'heart'"):
        run(make(), finished(other))
    with pytest.raises(ValueError, match="turns"):
        run(make(), finished(None, trajectory='{"id": "heart"}'))
    with pytest.raises(ValueError, match="field 'kind': missing"):
        run(make(), finished(rollout(), truth='{"id": "heart"}'))
    assert len(reported) == 3
    assert all(cause.startswith("AccuracyGateRewardManager could not score a rollout: ") for cause in reported)


@pytest.mark.parametrize(
    "options", [{"lambda_t": 0.2}, {"max_calls": 20}, {"mode": "soft"}, {"table": "/no/such.yaml"}, {"lambda": 1}]
)
def test_a_manager_that_cannot_start_reports_its_cause(options: dict[str, Any], reported: list[str]) -> None:
    with pytest.raises(Exception, match=r"."):
        make(**options)
    assert reported[0].startswith("AccuracyGateRewardManager could not start: ")


def test_verl_knows_it_by_name() -> None:
    assert get_reward_manager_cls("cxr_accuracy_gate") is AccuracyGateRewardManager
