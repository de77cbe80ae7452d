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
"""verl's reward manager: one key set for every response, a free event loop, and failures that name their cause."""

import asyncio
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto

import hydra_configs
from reward_plugins import cascade, manager
from reward_plugins.manager import CascadeRewardManager, decode_response
from verl_cxr.facts import FactServiceError
from verl_cxr.study import Study
from verl_cxr.trace import TraceFormat, reference_trace, render

RECORD = {
    "id": "one",
    "image": None,
    "width": 200,
    "height": 100,
    "report": {"findings": "Small left effusion.", "impression": None, "notes": None},
    "regions": [
        {"name": "left lung", "box": [100, 10, 180, 90], "frame": "pixel_xyxy", "finding": "Small left effusion."},
        {"name": "right lung", "box": [20, 10, 100, 90], "frame": "pixel_xyxy", "finding": "The right lung is clear."},
    ],
}
STUDY = Study.from_dict(RECORD)
OPTIONS = yaml.safe_load((Path(next(iter(hydra_configs.__path__))) / "reward" / "cascade.yaml").read_text())
PAD = 0


class Letters:
    """A tokenizer whose ids are code points; 0 is a special token."""

    def decode(self, ids: torch.Tensor, skip_special_tokens: bool = False) -> str:
        return "".join(chr(i) for i in ids.tolist() if i or not skip_special_tokens)


def make(*, facts: str = "exact", frame: str = "relative_1000", **reward: Any) -> CascadeRewardManager:
    cxr = {"reward": OPTIONS | reward, "facts": {"name": facts}, "trace": {"frame": frame}}
    return CascadeRewardManager(OmegaConf.create({"cxr": cxr}), Letters(), None, reward_router_address=None)


def rollout(
    response: str, *, extra_info: dict[str, Any] | None = None, padding: int = 0, truth: str | None = None
) -> DataProto:
    """One finished rollout as the agent loop hands it over."""
    prompt, written = [1, 2, 3], [ord(letter) for letter in response] or [PAD]
    ids = torch.tensor([written + [PAD] * padding])
    mask = torch.tensor([[1] * (3 + len(written)) + [0] * padding])
    batch = TensorDict({"prompts": torch.tensor([prompt]), "responses": ids, "attention_mask": mask}, batch_size=1)
    row: dict[str, Any] = {"reward_model": {"style": "rule", "ground_truth": truth or json.dumps(RECORD)}}
    if extra_info is not None:
        row["extra_info"] = extra_info
    columns = {}
    for key, value in row.items():
        columns[key] = np.empty(1, dtype=object)
        columns[key][0] = value
    return DataProto(batch=batch, non_tensor_batch=columns)


def score(reward: CascadeRewardManager, *arguments: Any, **options: Any) -> dict[str, Any]:
    return asyncio.run(reward.run_single(rollout(*arguments, **options)))


def perfect(frame: str = "relative_1000", size: tuple[int, int] | None = None) -> str:
    shape = TraceFormat(frame).frame_for(200, 100, size)  # type: ignore[arg-type]
    return render(reference_trace(STUDY), shape)


HOSTILE = [
    "",
    "\x00\x00",
    "plain text",
    perfect()[:-1],
    perfect().replace("[500", "[1e999"),
    "<think>" + "[" * 5000 + "</think><answer></answer>",
    "<think>[]</think><answer></answer>",
    perfect().replace("left lung", "left lung" * 10_000),
    "\ud800" + perfect(),
]


def test_numbers_are_those_of_the_pure_reward() -> None:
    result = score(make(), perfect())
    frame = TraceFormat().frame_for(200, 100)
    record = cascade.score(perfect(), STUDY, options=cascade.CascadeOptions(), frame=frame, facts=make().facts)
    assert result == {"reward_score": record.reward, "reward_extra_info": record.numbers()}
    assert result["reward_score"] == 2
    assert result["reward_extra_info"]["spatial"] == 1


@pytest.mark.parametrize("response", HOSTILE, ids=range(len(HOSTILE)))
def test_every_response_has_the_same_numeric_keys(response: str) -> None:
    result = score(make(), response)
    assert result["reward_extra_info"].keys() == score(make(), perfect())["reward_extra_info"].keys()
    values = [result["reward_score"], *result["reward_extra_info"].values()]
    assert all(type(value) is float and np.isfinite(value) for value in values)


def test_padding_and_special_tokens_are_no_part_of_the_response() -> None:
    assert score(make(), perfect(), padding=7)["reward_score"] == 2
    assert score(make(), "\x00" + perfect() + "\x00")["reward_score"] == 2


def test_of_several_outputs_the_last_is_read_to_its_own_end() -> None:
    """verl pads the outputs of a rollout to one width, so the tail of the mask does not mark the response."""
    longer = {"responses": torch.tensor([ord("a")] * 9), "attention_mask": torch.tensor([1] * 20)}
    shorter = {
        "responses": torch.tensor([ord("b")] * 4 + [PAD] * 5),
        "attention_mask": torch.tensor([1] * 7 + [0] * 13),
    }
    items = [
        SimpleNamespace(batch=batch, non_tensor_batch={"response_len": length})
        for batch, length in ((longer, 9), (shorter, 4))
    ]
    assert [decode_response(item, Letters()) for item in items] == ["a" * 9, "b" * 4]


def test_options_reach_the_reward() -> None:
    assert score(make(parts="spatial"), perfect())["reward_score"] == 1
    assert score(make(verify="both"), perfect())["reward_score"] == 3


@pytest.mark.parametrize("frame", ["relative_1000", "pixel_original", "pixel_processed"])
@pytest.mark.parametrize("container", [list, tuple, np.array])
def test_boxes_are_read_in_the_frame_of_the_prompt(frame: str, container: Any) -> None:
    size = (64, 32) if frame == "pixel_processed" else None
    extra_info = {"box_frame": frame, "processed_size": None if size is None else container(size)}
    result = score(make(frame=frame), perfect(frame, size), extra_info=extra_info)
    assert result["reward_score"] >= 1.9  # rounded to 64 pixels


def test_a_prompt_that_asks_for_another_frame_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"study 'one' asks for boxes in 'pixel_original'.*trace@cxr\.trace=pixel_ori"):
        score(make(), perfect(), extra_info={"box_frame": "pixel_original"})
    with pytest.raises(ValueError, match="needs the"):
        score(make(frame="pixel_processed"), perfect(), extra_info={"box_frame": "pixel_processed"})


def test_a_study_is_read_once_for_its_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    manager._study.cache_clear()
    reward = make()
    for response in (perfect(), "plain text", perfect()):
        score(reward, response)
    assert manager._study.cache_info().misses == 1
    score(reward, perfect(), truth=json.dumps(RECORD | {"id": "two"}))
    assert manager._study.cache_info().misses == 2


def test_a_slow_scorer_leaves_the_event_loop_free() -> None:
    reward = make()
    started, release = threading.Event(), threading.Event()

    class Slow:
        name = "slow"

        def score(self, pairs: Any) -> list[float | None]:
            started.set()
            assert release.wait(30)
            return [1.0] * len(pairs)

    reward.facts = Slow()

    async def run() -> list[Any]:
        waiting = [asyncio.create_task(reward.run_single(rollout(perfect()))) for _ in range(3)]
        while not started.is_set():
            await asyncio.sleep(0.01)
        begun = time.monotonic()
        await asyncio.sleep(0.01)  # would last as long as the scorer if it held the loop
        assert time.monotonic() - begun < 5
        assert not any(task.done() for task in waiting)
        release.set()
        return await asyncio.gather(*waiting)

    assert [result["reward_score"] for result in asyncio.run(run())] == [2, 2, 2]


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    causes: list[str] = []
    monkeypatch.setattr(manager, "report_failure", causes.append)
    return causes


def test_a_scorer_that_fails_reports_its_cause_and_raises(tmp_path: Path, reported: list[str]) -> None:
    empty = tmp_path / "graphs.jsonl"
    empty.touch()
    reward = make(facts=f"precomputed:{empty}")
    with pytest.raises(FactServiceError, match="holds no fact graph"):
        score(reward, perfect())
    assert len(reported) == 1
    assert reported[0].startswith("CascadeRewardManager could not score a rollout: FactServiceError: ")
    assert "holds no fact graph for the text 'Small left effusion.'" in reported[0]


def test_a_bad_response_is_no_failure(tmp_path: Path, reported: list[str]) -> None:
    (tmp_path / "graphs.jsonl").touch()
    assert score(make(facts=f"precomputed:{tmp_path}/graphs.jsonl"), "plain text")["reward_score"] == 0
    assert reported == []


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"facts": "precomputed:/no/such/file"}, "FactServiceError: the fact graphs of /no/such/file cannot be read"),
        ({"facts": "oracle"}, "ValueError: unknown fact scorer 'oracle'"),
        ({"tau": 7.0}, "ValueError: tau=7.0"),
        ({"frame": "inches"}, "ValueError: unknown trace frame 'inches'"),
        ({"taus": 1}, "TypeError: "),
    ],
)
def test_a_manager_that_cannot_start_reports_its_cause(
    options: dict[str, Any], cause: str, reported: list[str]
) -> None:
    with pytest.raises((ValueError, TypeError, FactServiceError)):
        make(**options)
    assert reported[0].startswith(f"CascadeRewardManager could not start: {cause}")
