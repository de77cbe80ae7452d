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
"""Each monkeypatch: the fault of upstream's own function, and that it is gone with the patch.

A test named ``..._is_still_needed`` fails when upstream has mended its function: then delete the patch.
"""

import importlib.util
import pickle
import socket
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
import verl.utils.distributed
import verl.utils.tensordict_utils
from tensordict import TensorDict

from verl_cxr.local import patches


def unpatched(module: ModuleType) -> ModuleType:
    """The module as upstream wrote it, loaded anew beside the patched one."""
    assert module.__file__ is not None
    spec = importlib.util.spec_from_file_location(f"unpatched_{module.__name__.rpartition('.')[2]}", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    return fresh


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment of the only rank of a job, and no process group afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


OPENERS = ["initialize_global_process_group", "initialize_global_process_group_ray"]


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("name", OPENERS)
def test_process_group_patch_is_still_needed(name: str) -> None:
    with pytest.raises(ValueError, match="Duplicate device type cpu"):
        getattr(unpatched(verl.utils.distributed), name)()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("name", OPENERS)
def test_process_group_opens_with_gloo(name: str) -> None:
    ranks = getattr(verl.utils.distributed, name)()
    assert ranks == (None if name.endswith("_ray") else (0, 0, 1))
    total = torch.ones(3)
    torch.distributed.all_reduce(total)
    assert total.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("one_rank")
def test_a_second_call_in_a_ray_worker_keeps_the_group() -> None:
    verl.utils.distributed.initialize_global_process_group_ray(timeout_second=60)
    verl.utils.distributed.initialize_global_process_group_ray(timeout_second=60)
    assert torch.distributed.get_world_size() == 1


def positions(lengths: list[int], *, ragged: int | None = None) -> tuple[TensorDict, list[torch.Tensor]]:
    """A batch with the four M-RoPE rows of sequences, as it arrives at a worker, and the rows themselves."""
    rows = [torch.arange(4 * length).view(4, length) + 100 * number for number, length in enumerate(lengths)]
    if ragged is None:
        nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    else:
        nested = verl.utils.tensordict_utils.nested_tensor_from_tensor_list(rows, ragged_idx=ragged)
    batch = TensorDict({"position_ids": nested}, batch_size=[len(rows)])
    return pickle.loads(pickle.dumps(batch.consolidate())), rows


def padded(batch: TensorDict, lengths: list[int]) -> torch.Tensor:
    """(B, 4, L), by the call that upstream's engines make."""
    size = (len(lengths), 4, max(lengths))
    return torch.nested.to_padded_tensor(batch["position_ids"], padding=0, output_size=size)


def test_position_ids_patch_is_still_needed() -> None:
    batch, rows = positions([5, 5, 5])
    unpatched(verl.utils.tensordict_utils).maybe_fix_3d_position_ids(batch)
    with pytest.raises((RuntimeError, AssertionError)):
        assert torch.equal(padded(batch, [5, 5, 5]), torch.stack(rows))


@pytest.mark.parametrize("lengths", [[5, 5, 5], [4, 4], [9], [5, 3, 4]], ids=str)
@pytest.mark.parametrize("ragged", [None, 2])
def test_position_ids_survive(lengths: list[int], ragged: int | None) -> None:
    batch, rows = positions(lengths, ragged=ragged)
    verl.utils.tensordict_utils.maybe_fix_3d_position_ids(batch)
    for row, expected, length in zip(padded(batch, lengths), rows, lengths, strict=True):
        assert torch.equal(row[:, :length], expected)


def test_other_batches_are_left_alone() -> None:
    batch = TensorDict({"input_ids": torch.zeros(2, 3)}, batch_size=[2])
    verl.utils.tensordict_utils.maybe_fix_3d_position_ids(batch)
    assert list(batch.keys()) == ["input_ids"]


def test_applying_twice_is_applying_once() -> None:
    before = verl.utils.tensordict_utils.maybe_fix_3d_position_ids
    patches.apply()
    assert verl.utils.tensordict_utils.maybe_fix_3d_position_ids is before
