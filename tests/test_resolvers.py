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
"""The ``cxr.*`` resolvers of the recipes."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import verl.plugin.platform
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from verl_cxr import resolvers
from verl_cxr.local.assets import latest_checkpoint


@pytest.fixture(autouse=True)
def registered() -> None:
    resolvers.register()
    resolvers.register()


def resolve(text: str) -> object:
    return OmegaConf.create({"value": text}).value


@pytest.mark.parametrize(("reference", "kl"), [("initial", True), ("none", False)])
def test_kl(reference: str, kl: bool) -> None:
    assert resolve(f"${{cxr.kl:{reference}}}") is kl


def test_kl_refuses_another_reference() -> None:
    with pytest.raises(InterpolationResolutionError, match=r"'initial' .* or 'none', not 'sft'"):
        resolve("${cxr.kl:sft}")


def test_local_device_is_the_cpu() -> None:
    assert resolve("${cxr.local_device:}") == "cpu"


def test_local_device_on_an_accelerator_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl.plugin.platform, "get_platform", lambda: SimpleNamespace(device_name="cuda"))
    with pytest.raises(InterpolationResolutionError, match=r"'cuda'\. Put VERL_PLATFORM=cpu before the command"):
        resolve("${cxr.local_device:}")


def test_files_of_a_folder_of_shards_and_of_jsonl(tmp_path: Path) -> None:
    def files(split: str, data: object = tmp_path) -> object:
        return resolve(f"${{cxr.files:{data},grpo,{split}}}")

    assert files("train", "/nowhere") == "/nowhere/grpo_train.parquet"  # verl says that it is not there
    assert files("validate", "/nowhere") == "/nowhere/grpo_validate.parquet"
    assert files("train", "mine.jsonl.gz") == "mine.jsonl.gz@train"
    for number in (1, 0):
        (tmp_path / f"grpo_train-0000{number}.parquet").touch()
    (tmp_path / "grpo_train-mine.parquet").touch()
    assert files("train") == [f"{tmp_path}/grpo_train-00000.parquet", f"{tmp_path}/grpo_train-00001.parquet"]
    (tmp_path / "grpo_train.parquet").touch()
    assert files("train") == f"{tmp_path}/grpo_train.parquet"
    with pytest.raises(InterpolationResolutionError, match=r"no grpo_validate\.parquet.*--validate-fraction"):
        files("validate")
    (tmp_path / "grpo_validate.parquet").touch()
    assert files("validate") == f"{tmp_path}/grpo_validate.parquet"


def checkpoint(run: Path, step: int, *, complete: bool = True, below: str = "huggingface") -> Path:
    folder = run / f"global_step_{step}" / below
    folder.mkdir(parents=True)
    (folder / "config.json").touch()
    if complete:
        (folder / "model.safetensors").touch()
    return folder


@pytest.mark.parametrize(("stage", "before"), [("cold_start", "cxr_sft"), ("grpo", "cxr_cold_start")])
def test_local_model_is_the_checkpoint_of_the_stage_before(stage: str, before: str, tmp_path: Path) -> None:
    checkpoint(tmp_path / before, 9)
    newest = checkpoint(tmp_path / before, 10)
    checkpoint(tmp_path / before, 11, complete=False)
    checkpoint(tmp_path / "cxr_grpo", 99)
    assert resolve(f"${{cxr.local_model:{tmp_path},{stage}}}") == str(newest)


def test_a_step_number_in_the_folder_above_does_not_count(tmp_path: Path) -> None:
    run = tmp_path / "global_step_500" / "cxr_sft"
    checkpoint(run, 3)
    newest = checkpoint(run, 20, below="actor/huggingface")
    assert latest_checkpoint(run) == newest
    assert latest_checkpoint(tmp_path / "nothing") is None


def test_local_data_and_model_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl_cxr.data import build

    real, calls = build.build, []

    def small(adapter, options, *args, **kwargs):  # type: ignore[no-untyped-def]
        calls.append(adapter.name)
        return real(adapter, {"count": 8, "validate": 2, "size": 64}, *args, **kwargs)

    monkeypatch.setattr(build, "build", small)
    data = resolve(f"${{cxr.local_data:{tmp_path}}}")
    model = resolve(f"${{cxr.local_model:{tmp_path},grpo}}")
    assert (data, model) == (str(tmp_path / "data"), str(tmp_path / "tiny-model"))
    weights = (tmp_path / "tiny-model" / "model.safetensors").stat().st_mtime_ns
    assert resolve(f"${{cxr.local_model:{tmp_path},sft}}") == model
    assert resolve(f"${{cxr.local_data:{tmp_path}}}") == data
    assert calls == ["phantom"]
    assert (tmp_path / "tiny-model" / "model.safetensors").stat().st_mtime_ns == weights
    assert (tmp_path / "data" / "grpo_train.parquet").exists()
