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
"""verl's own trainers, run for real on this CPU from the installed wheel, each in an empty folder.

A run takes about a minute, so each answers several questions. ``make test`` prints how long they took.
"""

import json
import math
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch

from reward_plugins import cascade
from verl_cxr.facts import make_scorer
from verl_cxr.study import Study
from verl_cxr.trace import TraceFormat

pytestmark = pytest.mark.engine

FILMS = Path(__file__).parents[3] / "shared" / "data" / "organ_masks" / "studies.jsonl"
DIFFERENCE = "training/rollout_probs_diff_max"
SMALL = (  # four prompts of four rollouts, a learning rate that moves every weight, and a gradient without any reward
    "data.train_batch_size=4",
    "data.max_response_length=24",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.entropy_coeff=0.1",
    "cxr.local.lr=1e-2",
    "trainer.val_before_train=false",
)
PATIENCE_S = 900  # of one run, which takes a minute on two idle cores
MEASURED = "algorithm.rollout_correction.bypass_mode=false"  # works out the trainer's own probabilities of each token


@dataclass(frozen=True)
class Run:
    """A finished command."""

    code: int
    log: str
    folder: Path
    metrics: Path

    @cached_property
    def steps(self) -> dict[int, dict[str, float]]:
        """What the trainer logged, by step: training, and on some steps validation in a line of its own."""
        steps: dict[int, dict[str, float]] = {}
        for line in self.metrics.read_text().splitlines():
            row = json.loads(line)
            steps.setdefault(row["step"], {}).update(row["data"])
        return steps

    def rollouts(self, step: int) -> list[dict[str, Any]]:
        lines = (self.folder / f"outputs/local/cxr_grpo/rollouts/{step}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-8000:]


Train = Callable[..., Run]


@pytest.fixture(scope="module")
def train(wheel_python: Path) -> Train:
    """Run a trainer from the wheel: ``train(folder, trainer, *overrides, ranks=None, succeeds=True)``."""

    def run(folder: Path, trainer: str, *overrides: str, ranks: int | None = None, succeeds: bool = True) -> Run:
        number = len(list(folder.glob("run-*.log")))
        log, metrics = folder / f"run-{number}.log", folder / f"metrics-{number}.jsonl"
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
        command = [str(wheel_python), *torchrun, "-m", f"verl.trainer.{trainer}", *overrides, "+scale=local"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with log.open("w") as out:
            try:
                done = subprocess.run(
                    [*command, "trainer.logger=[console,file]"],
                    cwd=folder,
                    env=environment | {"VERL_FILE_LOGGER_PATH": str(metrics)},
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=PATIENCE_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                pytest.fail(f"no end after {PATIENCE_S} s: {log}\n{_tail(log)}")
        assert (done.returncode == 0) is succeeds, _tail(log)
        return Run(done.returncode, log.read_text(errors="replace"), folder, metrics)

    return run


@pytest.fixture(scope="module")
def assets(phantoms: Path, tiny_model: Path) -> tuple[str, str]:
    return f"cxr.data={phantoms}", f"cxr.model={tiny_model}"


# ---- weights, checkpoints, ranks, tools


@pytest.fixture(scope="module")
def two_steps(train: Train, assets: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("two-steps")
    return train(folder, "main_ppo", "+recipe=cxr_grpo", *assets, *SMALL, MEASURED, "trainer.total_training_steps=2")


@pytest.fixture(scope="module")
def two_more(train: Train, assets: tuple[str, str], two_steps: Run) -> Run:
    """The same run taken up again, with a rollout that ignores every weight update but the first."""
    return train(
        two_steps.folder,
        "main_ppo",
        "+recipe=cxr_grpo",
        *assets,
        *SMALL,
        MEASURED,
        "trainer.total_training_steps=4",
        "+actor_rollout_ref.rollout.engine_kwargs.hf.freeze_weights=true",
    )


def test_the_rollout_has_the_trainers_weights_after_an_update(two_steps: Run) -> None:
    assert list(two_steps.steps) == [1, 2]
    assert two_steps.steps[1]["actor/grad_norm"] > 1e-4
    assert two_steps.steps[2]["actor/kl_loss"] > 1e-4  # the update moved the policy
    assert two_steps.steps[1][DIFFERENCE] < 1e-5
    assert two_steps.steps[2][DIFFERENCE] < 1e-5


def test_a_rollout_that_misses_an_update_is_noticed(two_more: Run) -> None:
    """The negative control: without it the test above would prove nothing."""
    assert two_more.steps[4][DIFFERENCE] > 1e-4


def test_a_run_resumes_where_it_ended(two_steps: Run, two_more: Run) -> None:
    assert list(two_more.steps) == [3, 4]
    assert two_more.steps[3]["actor/kl_loss"] > 0.5 * two_steps.steps[2]["actor/kl_loss"]
    assert two_more.steps[3][DIFFERENCE] < 1e-5  # the rollout was given the weights of the checkpoint


def test_a_checkpoint_holds_a_model_that_transformers_loads(two_more: Run, tiny_model: Path) -> None:
    from transformers import Qwen3VLForConditionalGeneration

    folder = two_more.folder / "outputs/local/cxr_grpo/global_step_4/actor/huggingface"
    trained = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).state_dict()
    start = Qwen3VLForConditionalGeneration.from_pretrained(tiny_model, dtype=torch.float32).state_dict()
    assert trained.keys() == start.keys()
    assert any(not torch.equal(trained[name], start[name]) for name in start)


TOOL = '''
from PIL import Image
from verl.tools.function_tool import function_tool
from verl.tools.schemas import ToolResponse

@function_tool
def crop(left: int) -> ToolResponse:
    """Look closer.

    Args:
        left: where the crop begins.
    """
    return ToolResponse(text="a crop", image=[Image.new("RGB", (64 + left, 64), (left, 128, 255 - left))])
'''
CROP = '<tool_call>{"name": "roi_crop", "arguments": {"region": "heart"}}</tool_call><|im_end|>'
CALL = '<tool_call>{"name": "crop", "arguments": {"left": 32}}</tool_call><|im_end|>'


def test_two_ranks_share_rollouts_with_a_tool_that_returns_an_image(
    train: Train, assets: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "crop.py").write_text(TOOL)
    run = train(
        tmp_path,
        "main_ppo",
        "+recipe=cxr_grpo",
        *assets,
        *SMALL,
        MEASURED,
        "trainer.total_training_steps=2",
        "data.max_prompt_length=400",
        "data.max_response_length=160",
        "actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=2",
        f"actor_rollout_ref.rollout.multi_turn.function_tool_path={tmp_path}/crop.py",
        f"+actor_rollout_ref.rollout.engine_kwargs.hf.force_first_turn='{CALL}'",
    )
    assert "LLMServerManager: ['cxr_local_server_0', 'cxr_local_server_1']" in run.log
    for step in (1, 2):
        assert run.steps[step][DIFFERENCE] < 1e-5
        assert run.steps[step]["num_turns/mean"] == 4  # prompt, call, answer of the tool, answer
        assert all("a crop" in row["output"] for row in run.rollouts(step))
    assert run.steps[2]["actor/kl_loss"] > 1e-4


# ---- real films


@pytest.fixture(scope="module")
def films_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 real films with boxes by radiologists, as verl reads them."""
    from verl_cxr.data.adapters import BuildContext, load_adapters
    from verl_cxr.data.build import build
    from verl_cxr.data.prompt import Stage
    from verl_cxr.data.rows import RowOptions

    if not FILMS.parents[1].exists():
        pytest.skip(f"the shared films are not beside this checkout ({FILMS.parents[1]})")
    out = tmp_path_factory.mktemp("films")
    rows = RowOptions(data_source="films")
    made = build(
        load_adapters()["jsonl"], {"root": FILMS}, BuildContext(out=out, seed=0), stages=list(Stage), rows=rows
    )
    assert made["grpo_train.parquet"] == 24
    return out


COLD_START = (
    "+recipe=cxr_cold_start",
    "data.train_batch_size=8",
    "optim.lr_scheduler_type=constant",
    "optim.lr_warmup_steps_ratio=0",
)


@pytest.fixture(scope="module")
def cold_start(train: Train, films_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A fresh tiny model after some supervised steps on the traces of the films: it writes the form, if not always."""
    from verl_cxr.study import read_studies
    from verl_cxr.tiny import TinySizes, build_tiny_model, training_texts

    folder = tmp_path_factory.mktemp("cold-start")
    texts = training_texts(read_studies(FILMS), TraceFormat())
    build_tiny_model(folder / "fresh", texts=texts, sizes=TinySizes(layers=2, vision_layers=1, image_size=64))
    return train(
        folder,
        "sft_trainer",
        *COLD_START,
        f"cxr.data={films_data}",
        f"cxr.model={folder}/fresh",
        f"data.val_files={films_data}/cold_start_train.parquet",
        "trainer.total_epochs=26",
        ranks=1,
    )


@pytest.fixture(scope="module")
def started(cold_start: Run, films_data: Path) -> tuple[str, ...]:
    """Overrides that name the films and the model after its cold start."""
    model = next(cold_start.folder.glob("outputs/local/cxr_cold_start/global_step_*/huggingface"))
    names = f"cxr.data={films_data}", f"cxr.model={model}", f"data.val_files={films_data}/grpo_test.parquet"
    sizes = "data.train_batch_size=8", "data.max_response_length=128", "actor_rollout_ref.rollout.n=4"
    return (*names, *sizes, "actor_rollout_ref.rollout.temperature=0.5")


def test_supervised_training_learns(cold_start: Run) -> None:
    losses = [data["train/loss"] for data in cold_start.steps.values()]
    assert losses[-1] < 0.1 * losses[0]


def test_two_supervised_ranks_on_the_studies_themselves_equal_one_on_parquet(
    train: Train, cold_start: Run, tmp_path: Path
) -> None:
    """And six validation rows, which are no whole batch of eight, have a loss."""
    run = train(
        tmp_path,
        "sft_trainer",
        *COLD_START,
        f"cxr.data={FILMS}",
        f"cxr.model={cold_start.folder}/fresh",
        f"data.val_files={FILMS}@test",
        f"+data.cache_dir={tmp_path}/cache",
        "trainer.total_training_steps=3",
        ranks=2,
    )
    for step in (1, 2, 3):
        assert run.steps[step]["train/loss"] == pytest.approx(cold_start.steps[step]["train/loss"], abs=1e-5)
    assert math.isfinite(run.steps[3]["val/loss"])
    assert "6 validation rows are fewer than data.train_batch_size=8" in run.log


def test_two_steps_on_real_films(train: Train, started: tuple[str, ...], tmp_path: Path) -> None:
    run = train(
        tmp_path,
        "main_ppo",
        "+recipe=cxr_grpo",
        *started,
        "trainer.total_training_steps=2",
        "trainer.val_before_train=false",
    )
    facts = make_scorer("lexicon", level="partial")
    for step in (1, 2):
        data = run.steps[step]
        assert all(math.isfinite(value) for value in data.values())
        assert data["actor/grad_norm"] > 1e-4
        assert data["critic/score/min"] < data["critic/score/max"] <= 2
        assert data["critic/advantages/min"] < 0 < data["critic/advantages/max"]
        records = []
        for row in run.rollouts(step):
            study = Study.from_dict(json.loads(row["gts"]))
            frame = TraceFormat().frame_for(study.width, study.height)
            options = cascade.CascadeOptions()
            records.append(cascade.score(row["output"], study, options=options, frame=frame, facts=facts))
            assert row["score"] == pytest.approx(records[-1].reward, abs=1e-6)
        overlap = [record.spatial or 0.0 for record in records]
        assert len(set(overlap)) > 3
        assert data["reward/spatial/mean"] == pytest.approx(sum(overlap) / len(overlap), abs=1e-6)
        assert data["reward/format/mean"] == pytest.approx(sum(record.format for record in records) / len(records))
    assert run.steps[1]["reward/spatial/mean"] != run.steps[2]["reward/spatial/mean"]
    assert run.steps[1]["actor/grad_norm"] != run.steps[2]["actor/grad_norm"]


def test_a_scorer_that_fails_stops_the_run_with_its_cause(
    train: Train, started: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").touch()
    run = train(
        tmp_path,
        "main_ppo",
        "+recipe=cxr_grpo",
        *started,
        f"cxr.facts.name=precomputed:{tmp_path}/empty.jsonl",
        "trainer.val_before_train=false",
        succeeds=False,
    )
    cause = f"FactServiceError: {tmp_path}/empty.jsonl holds no fact graph for the text"
    assert f"could not be rolled out or scored: CascadeRewardManager could not score a rollout: {cause}" in run.log
    assert not run.metrics.exists() or not run.steps


# ---- the evidence agent


def test_the_evidence_agent_is_paid_for_what_its_log_says(train: Train, tmp_path: Path) -> None:
    """Each rollout crops the heart once; the rewards are those of the trajectories that the agent wrote down."""
    from reward_plugins.accuracy_gate import AccuracyGateOptions, score
    from verl_cxr.data.adapters import Adapter, BuildContext
    from verl_cxr.data.build import Plan, build_rows
    from verl_cxr.data.phantom_demonstrations import phantom_demonstrations
    from verl_cxr.data.question_rows import AGENT_STAGES, AgentRows
    from verl_cxr.question import read_questions
    from verl_cxr.tiny import TinySizes, build_tiny_model
    from verl_cxr.trajectory import read_trajectories

    data = tmp_path / "data"
    data.mkdir()
    build_rows(
        Adapter("phantom_demonstrations", "", phantom_demonstrations),
        {"count": 8, "validate": 4},
        BuildContext(out=data, seed=0),
        maker=AgentRows(AGENT_STAGES, "phantom", films=data / "films"),
        plan=Plan(keep_records=True),
    )
    sizes = TinySizes(hidden=64, layers=2, vision_layers=1, image_size=64)
    build_tiny_model(tmp_path / "model", texts=[CROP, "1. roi_crop: Crop of heart."] * 9, sizes=sizes)
    run = train(
        tmp_path,
        "main_ppo",
        "+recipe=x_ragent_grpo",
        f"cxr.data={data}",
        f"cxr.model={tmp_path}/model",
        *SMALL,
        MEASURED,
        "trainer.total_training_steps=2",
        "data.max_prompt_length=1200",  # of a tokenizer that knows none of these words
        "data.max_response_length=900",
        "cxr.agent.plan_tokens=300",
        f"+actor_rollout_ref.rollout.engine_kwargs.hf.force_first_turn='{CROP}'",
    )
    questions = {question.id: question for question in read_questions(data / "questions.jsonl")}
    for step in (1, 2):
        assert run.steps[step][DIFFERENCE] < 1e-5
        assert run.steps[step]["num_turns/mean"] == 4  # question, plan, observation, answer
        assert run.steps[step]["reward/gate_asked/mean"] == 1
        logged = list(read_trajectories(tmp_path / f"outputs/local/x_ragent_grpo/trajectories/train-{step}.jsonl"))
        assert len(logged) == 16
        assert {(each.calls[0].tool, each.calls[0].refused) for each in logged} == {("roi_crop", None)}
        calls = [len(each.calls) for each in logged]  # a random answer may hold the tag of a call, which counts
        assert run.steps[step]["reward/calls/mean"] == pytest.approx(sum(calls) / len(calls))
        rewards = [score(each, questions[each.id], AccuracyGateOptions()).reward for each in logged]
        assert run.steps[step]["critic/score/mean"] == pytest.approx(sum(rewards) / len(rewards), abs=1e-6)
    assert run.steps[2]["actor/kl_loss"] > 1e-4
