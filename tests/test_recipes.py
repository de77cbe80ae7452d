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
"""Every configuration composes, verl accepts it, and the paper's numbers are in it."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import verl  # noqa: F401 - registers the resolvers
import yaml
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf, open_dict
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

import hydra_configs
from reward_plugins.options import CascadeOptions
from tool_plugins.options import TOOLS, AgentOptions
from verl_cxr.data.datasets import StudyOptions
from verl_cxr.data.prompt import Stage

ROOT = Path(next(iter(hydra_configs.__path__)))
RL, SFT = "ppo_trainer", "sft_trainer_engine"
STUDIES = {"cxr_sft": SFT, "cxr_cold_start": SFT, "cxr_grpo": RL}  # recipes that read grounded studies
AGENTS = {"x_ragent_sft": SFT, "x_ragent_grpo": RL}  # recipes that read questions
RECIPES = STUDIES | AGENTS
FIRST = {"cxr_sft", "x_ragent_sft"}  # they know what they start from
SCALES = ("node8", "multinode", "megatron", "local")
GROUPS = ("facts", "trace", "reward")  # chosen below cxr
EVIDENCE = ("masks", "view", "gate", "lookup")  # the same, by the recipes that measure; see tests/measure
DATA = ("cxr.data=/data", "cxr.model=/model")


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / group).glob("*.yaml"))


@pytest.fixture(autouse=True)
def verls_own_configuration() -> Iterator[None]:
    with initialize_config_module("verl.trainer.config", version_base=None):
        yield


def recipe(name: str, *overrides: str, hydra: bool = False) -> DictConfig:
    return compose(RECIPES[name], overrides=[f"+recipe={name}", *overrides, *DATA], return_hydra_config=hydra)


def at(config: DictConfig, **expected: Any) -> None:
    """Check values by their dotted keys, with __ for a dot."""
    found = {key: OmegaConf.select(config, key.replace("__", ".")) for key in expected}
    assert found == expected


def test_the_tables_here_name_every_file() -> None:
    assert sorted(RECIPES) == names("recipe")
    assert sorted(SCALES) == names("scale")
    assert {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("_")} == {
        "recipe",
        "scale",
        "stage",
        "agent",
        "evidence",
        *GROUPS,
        *EVIDENCE,
    }
    assert names("evidence") == ["full", "local", "none"]
    assert names("stage") == ["rl", "sft"]  # each is composed by every recipe of its kind


@pytest.mark.parametrize("group", ["recipe", "scale"])
def test_a_file_opens_with_its_command(group: str) -> None:
    for path in (ROOT / group).glob("*.yaml"):
        package, command = path.read_text().splitlines()[:2]
        assert package == "# @package _global_", path
        assert command.startswith(("# python -m verl.trainer.main_ppo ", "# torchrun ")), path
        assert f"+{group}={path.stem}" in command, path


@pytest.mark.parametrize("scale", [None, *SCALES])
@pytest.mark.parametrize("name", [name for name, trainer in RECIPES.items() if trainer == RL])
def test_verl_accepts_a_reinforcement_learning_recipe(
    name: str, scale: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    config = recipe(name, *([f"+scale={scale}"] if scale else []))
    OmegaConf.to_container(config, resolve=True)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    assert need_reference_policy(config)
    assert not need_critic(config)
    worker = config.actor_rollout_ref
    actor = omega_conf_to_dataclass(worker.actor)
    assert actor.strategy == ("megatron" if scale == "megatron" else "fsdp2")
    rollout = omega_conf_to_dataclass(worker.rollout)
    assert rollout.name == ("hf" if scale == "local" else "vllm")
    assert config.trainer.n_gpus_per_node * config.trainer.nnodes % rollout.tensor_model_parallel_size == 0
    omega_conf_to_dataclass(worker.rollout.checkpoint_engine)
    omega_conf_to_dataclass(config.algorithm)
    OmegaConf.resolve(config)
    with open_dict(worker.ref):  # as its worker does
        for key in [key for key in worker.ref if key.startswith("log_prob_")]:
            worker.ref.pop(key)
        worker.ref.update(ppo_mini_batch_size=1, use_dynamic_bsz=True, ppo_max_token_len_per_gpu=1)
    assert omega_conf_to_dataclass(worker.ref).strategy == actor.strategy


@pytest.mark.parametrize("scale", [None, *SCALES])
@pytest.mark.parametrize("name", [name for name, trainer in RECIPES.items() if trainer == SFT])
def test_verl_accepts_a_supervised_recipe(name: str, scale: str | None) -> None:
    config = recipe(name, *([f"+scale={scale}"] if scale else []))
    OmegaConf.to_container(config, resolve=True)
    engine = omega_conf_to_dataclass(config.engine)
    assert engine.strategy == "fsdp2"
    for section in (config.optim, config.checkpoint, config.profiler):
        omega_conf_to_dataclass(section)
    at(config, data__messages_key="messages", data__train_files=f"/data/{config.cxr.stage}_train.parquet")
    assert config.cxr.stage == ("agent_sft" if name in AGENTS else name.removeprefix("cxr_"))


@pytest.mark.parametrize(("group", "choice"), [(group, choice) for group in GROUPS for choice in names(group)])
def test_a_choice_replaces_its_group(group: str, choice: str) -> None:
    written = yaml.safe_load((ROOT / group / f"{choice}.yaml").read_text())
    config = recipe("cxr_grpo", f"{group}@cxr.{group}={choice}")
    assert OmegaConf.to_container(config.cxr[group]) == written


def test_the_reward_file_holds_every_option_with_its_default() -> None:
    written = yaml.safe_load((ROOT / "reward" / "cascade.yaml").read_text())
    assert list(written.items()) == list(asdict(CascadeOptions()).items())
    assert all("#" in line for line in (ROOT / "reward" / "cascade.yaml").read_text().splitlines())


@pytest.mark.parametrize("name", STUDIES)
def test_studies_may_be_read_from_jsonl(name: str) -> None:
    overrides = ["cxr.data=/mine/studies.jsonl", "data.studies.validate_fraction=0.1"]
    config = compose(RECIPES[name], overrides=[f"+recipe={name}", "cxr.model=/model", *overrides])
    at(config.data, train_files="/mine/studies.jsonl@train", val_files="/mine/studies.jsonl@validate")
    stage = Stage(name.removeprefix("cxr_"))
    options = StudyOptions.from_config(config.data, stage)
    assert options == StudyOptions(stage.value, validate_fraction=0.1)
    assert list(config.data.studies) == [field.name for field in fields(StudyOptions)]


def test_paper_a_reinforcement_learning() -> None:
    """region_grounded GRPO: "Three stages", "GRPO details", "Cascaded reward"; and verl's names for them."""
    config = recipe("cxr_grpo", "+scale=node8")
    at(
        config,
        algorithm__adv_estimator="grpo",
        algorithm__norm_adv_by_std_in_grpo=True,
        algorithm__use_kl_in_reward=False,
        data__train_batch_size=32,
        data__max_response_length=1024,
        trainer__n_gpus_per_node=8,
        trainer__nnodes=1,
        cxr__reward__tau=0.25,
        cxr__reward__parts="joint",
        cxr__reward__verify="reasoning",
        cxr__trace__frame="relative_1000",
    )
    at(
        config.actor_rollout_ref,
        actor__use_kl_loss=True,
        actor__kl_loss_coef=0.04,
        actor__kl_loss_type="low_var_kl",
        actor__clip_ratio_low=0.2,
        actor__clip_ratio_high=0.28,
        actor__entropy_coeff=0,
        actor__ppo_mini_batch_size=32,
        actor__loss_agg_mode="seq-mean-token-mean",
        actor__optim__lr=1e-6,
        actor__optim__lr_warmup_steps_ratio=0.1,
        actor__strategy="fsdp2",
        actor__fsdp_config__reshard_after_forward=True,  # ZeRO-3
        rollout__n=8,
        rollout__dtype="bfloat16",
        rollout__temperature=1.0,
    )
    assert "mixed_precision" not in config.actor_rollout_ref.actor.fsdp_config  # then verl computes in bfloat16


def test_paper_a_supervised_stages() -> None:
    shared = {"optim__optimizer": "AdamW", "optim__lr_scheduler_type": "cosine", "optim__lr_warmup_steps_ratio": 0.1}
    at(recipe("cxr_sft", "+scale=node8"), data__train_batch_size=128, optim__lr=1e-5, trainer__total_epochs=2, **shared)
    cold_start = recipe("cxr_cold_start", "+scale=node8")
    at(cold_start, data__train_batch_size=64, optim__lr=5e-6, trainer__total_epochs=1, **shared)


def test_paper_b_supervised_training() -> None:
    """Agentic SFT: lr 1e-5, batch 16, 8192 tokens, 1 epoch, policy tokens only, vision encoder frozen."""
    at(
        recipe("x_ragent_sft", "+scale=node8"),
        data__train_batch_size=16,
        data__max_length=8192,
        data__custom_cls__name="AgentSFTDataset",
        data__agent_tools=["region_parse", "roi_crop", "evidence_lookup"],
        optim__lr=1e-5,
        trainer__total_epochs=1,
        model__external_lib="verl_cxr.frozen_vision",
    )


def test_paper_b_reinforcement_learning() -> None:
    """GRPO: 300 steps, 16 prompts, G = 4, lr 2e-6, clip 0.2, KL 0.01; lambda 0.5 and 0.05, K_max 5, two turns."""
    config = recipe("x_ragent_grpo", "+scale=node8")
    at(
        config,
        algorithm__adv_estimator="grpo",
        algorithm__norm_adv_by_std_in_grpo=True,
        algorithm__use_kl_in_reward=False,
        data__train_batch_size=16,
        trainer__total_training_steps=300,
        cxr__reward__mode="gated",
        cxr__reward__lambda_m=0.5,
        cxr__reward__lambda_t=0.05,
        cxr__reward__max_calls=5,
        cxr__agent__max_calls=5,
        cxr__agent__rounds=1,
        cxr__agent__routing="policy",
        cxr__agent__measurements="gate",
        cxr__masks__name="cxas",
        cxr__view__name="opencxr",
        cxr__gate__enabled=True,
        reward__reward_manager__name="AccuracyGateRewardManager",
    )
    at(
        config.actor_rollout_ref,
        rollout__n=4,
        actor__optim__lr=2e-6,
        actor__ppo_mini_batch_size=16,
        actor__clip_ratio=0.2,
        actor__clip_ratio_low=0.2,
        actor__clip_ratio_high=0.2,
        actor__use_kl_loss=True,
        actor__kl_loss_coef=0.01,
        rollout__agent__default_agent_loop="cxr_evidence_agent",
    )
    loops = OmegaConf.load(config.actor_rollout_ref.rollout.agent.agent_loop_config_path)
    assert [loop.name for loop in loops] == ["cxr_evidence_agent"]


def test_the_agents_file_holds_every_option_with_its_default() -> None:
    text = (ROOT / "agent" / "two_turn.yaml").read_text()
    defaults = asdict(AgentOptions()) | {"tools": list(TOOLS), "static_calls": []}
    assert list(yaml.safe_load(text).items()) == list(defaults.items())
    assert all("#" in line for line in text.splitlines())


@pytest.mark.parametrize("scale", ["node8", "local"])
@pytest.mark.parametrize(
    "overrides",
    [
        ["cxr.agent.routing=none"],
        ["agent@cxr.agent=call_everything"],
        ["cxr.agent.measurements=policy"],
        ["cxr.gate.enabled=false"],
        ["cxr.agent.rounds=3"],
        ["masks@cxr.masks=precomputed", "cxr.masks.folder=/masks", "gate@cxr.gate=precomputed"],
    ],
)
def test_every_ablation_of_the_agent_is_an_override(scale: str, overrides: list[str]) -> None:
    config = recipe("x_ragent_grpo", f"+scale={scale}", *overrides)
    section = OmegaConf.to_container(config.cxr.agent, resolve=True)
    options = AgentOptions.from_mapping(section)  # type: ignore[arg-type]
    assert len(options.static_plan()) == (5 if "agent@" in overrides[0] else 0)
    for override in overrides:
        key, value = override.split("=")
        if "@" not in key:
            assert str(OmegaConf.select(config, key)).lower() == value
    assert config.cxr.masks.name == (
        "precomputed" if "masks@" in overrides[0] else {"node8": "cxas", "local": "phantom"}[scale]
    )


def test_a_budget_that_breaks_the_rewards_promise_is_refused() -> None:
    config = recipe("x_ragent_grpo", "cxr.agent.max_calls=20")
    assert config.cxr.reward.max_calls == 20
    with pytest.raises(Exception, match="must be less than 1"):
        OmegaConf.to_container(config, resolve=True)


def test_without_a_reference_there_is_no_kl_term() -> None:
    config = recipe("cxr_grpo", "cxr.reference=none")
    assert config.actor_rollout_ref.actor.use_kl_loss is False
    assert not need_reference_policy(config)
    with pytest.raises(Exception, match=r"cxr\.reference is 'initial'"):
        OmegaConf.to_container(recipe("cxr_grpo", "cxr.reference=sft"), resolve=True)


@pytest.mark.parametrize("name", RECIPES)
def test_every_number_can_be_overridden_at_every_scale(name: str) -> None:
    config = recipe(name, "+scale=local", "data.train_batch_size=7", "trainer.total_epochs=3")
    assert (config.data.train_batch_size, config.trainer.total_epochs) == (7, 3)


def test_a_sweep_takes_a_process_a_job() -> None:
    config = recipe("cxr_grpo", "+scale=local", hydra=True)
    assert config.hydra.launcher._target_ == "hydra_plugins.verl_cxr.one_process.OneProcessLauncher"


@pytest.mark.parametrize("name", RECIPES)
def test_data_and_model_must_be_named_on_a_cluster(name: str) -> None:
    """Only a first stage knows what it starts from."""
    config = compose(RECIPES[name], overrides=[f"+recipe={name}", "+scale=node8"])
    missing = {key for key in ("data", "model") if OmegaConf.is_missing(config.cxr, key)}
    assert missing == ({"data"} if name in FIRST else {"data", "model"})
