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
"""Weights: found whole or refused with what to do; fetched once; unpacked safely; never half there."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import threading
import time
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

from verl_cxr.facts import FactServiceError
from verl_cxr.facts.archive import ArchiveError, unpack
from verl_cxr.facts.radgraph_model import load_model
from verl_cxr.facts.weights import WeightsError, check_model_type, fetch, locate

TYPE = "radgraph-xl"


@pytest.fixture
def copy(radgraph_root, tmp_path):
    """A copy of the weights that a test may break."""
    shutil.copytree(radgraph_root, tmp_path / "weights")
    return tmp_path / "weights"


class Hub:
    """Stands in for the hub: one archive, one encoder."""

    def __init__(self, source: Path, scratch: Path) -> None:
        self.downloads: list[str] = []
        self.encoder = scratch / "encoder"
        shutil.copytree(source / "encoder", self.encoder)
        (self.encoder / "pytorch_model.bin").write_bytes(b"not wanted")
        self.archive = scratch / f"{TYPE}.tar.gz"
        with tarfile.open(self.archive, "w:gz") as tar:
            for name in ("config.json", "weights.th", "vocabulary"):
                tar.add(source / name, f"./{name}")

    def hf_hub_download(self, *, repo_id, filename):
        assert (repo_id, filename) == ("StanfordAIMI/RRG_scorers", f"{TYPE}.tar.gz")
        self.downloads.append(filename)
        time.sleep(0.05)
        return str(self.archive)

    def snapshot_download(self, name, *, local_files_only=False, allow_patterns=None):
        if local_files_only:
            raise LocalEntryNotFoundError("not cached")
        self.downloads.append(name)
        return str(self.encoder)


@pytest.fixture
def hub(radgraph_root, tmp_path, monkeypatch):
    source = tmp_path / "source"
    shutil.copytree(radgraph_root / TYPE, source)
    config = json.loads((source / "config.json").read_text())
    for place in (config["dataset_reader"]["token_indexers"], config["model"]["embedder"]["token_embedders"]):
        place["bert"]["model_name"] = "somebody/their-bert"
    (source / "config.json").write_text(json.dumps(config))
    made = Hub(source, tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", made.hf_hub_download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", made.snapshot_download)
    return made


def test_a_folder_may_be_the_models_own_or_the_one_above(radgraph_root):
    assert locate(TYPE, radgraph_root) == locate(TYPE, radgraph_root / TYPE)
    assert locate(TYPE, str(radgraph_root)).encoder == radgraph_root / TYPE / "encoder"


def test_without_a_folder_it_is_the_packages_cache(radgraph_root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "radgraph" / "0.1.18"
    with pytest.raises(WeightsError, match="verl-cxr facts fetch") as caught:
        locate(TYPE)
    assert str(place / TYPE) in str(caught.value)
    shutil.copytree(radgraph_root, place)
    assert locate(TYPE).folder == place / TYPE


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (["config.json"], ["config.json"]),
        (["weights.th"], ["weights.th"]),
        (["vocabulary"], ["vocabulary/"]),
        (["weights.th", "vocabulary"], ["weights.th", "vocabulary/"]),
        (["encoder/config.json"], ["encoder", "config.json"]),
        (["encoder/vocab.txt"], ["tokenizer.json or vocab.txt"]),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(copy, broken, named):
    for name in broken:
        path = copy / TYPE / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(WeightsError) as caught:
        locate(TYPE, copy)
    for part in (*named, str(copy / TYPE), "StanfordAIMI/RRG_scorers", f"{TYPE}.tar.gz", "cxr.facts.weights"):
        assert part in str(caught.value)
    assert isinstance(caught.value, FactServiceError)


def test_an_empty_file_is_a_missing_one(copy):
    (copy / TYPE / "weights.th").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"weights\.th missing"):
        locate(TYPE, copy)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "no JSON object"),
        ("{}", "no RadGraph configuration"),
        ('{"model": {"embedder": {"token_embedders": {"bert": {"model_name": "a/b"}}}}, '
         '"dataset_reader": {"token_indexers": {"bert": {"model_name": "a/c"}}}}', "two encoders"),
    ],
)  # fmt: skip
def test_a_configuration_of_something_else_is_refused(copy, config, message):
    (copy / TYPE / "config.json").write_text(config)
    with pytest.raises(WeightsError, match=message):
        locate(TYPE, copy)


def test_model_types_that_cannot_be_trusted_are_refused():
    with pytest.raises(ValueError, match="modern-radgraph-xl is refused: its output was reported wrong"):
        check_model_type("modern-radgraph-xl")
    with pytest.raises(ValueError, match="echocardiography"):
        locate("echograph")
    with pytest.raises(ValueError, match="use radgraph-xl or radgraph"):
        fetch("chexbert")


def test_the_refused_model_is_recognised_under_another_name(copy):
    path = copy / TYPE / "encoder" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "modernbert"}))
    with pytest.raises(WeightsError, match="holds modern-radgraph-xl"):
        locate(TYPE, copy)


def test_a_read_only_folder_will_do(copy, monkeypatch):
    for path in [copy / TYPE, *(copy / TYPE).rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(path.relative_to(copy) for path in copy.rglob("*"))
    load_model(locate(TYPE, copy), device="cpu")
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == before  # nor a lock file
    for path in [copy / TYPE, *(copy / TYPE).rglob("*")]:
        path.chmod(0o755)


@pytest.mark.parametrize("name", ["weights.th", "vocabulary/radgraph-xl__ner_labels.txt", "encoder/vocab.txt"])
def test_the_fingerprint_knows_every_file_that_decides(copy, name):
    before = locate(TYPE, copy).fingerprint()
    assert locate(TYPE, copy).fingerprint() == before
    with (copy / TYPE / name).open("ab") as file:
        file.write(b"x")
    assert locate(TYPE, copy).fingerprint() != before


def test_weights_of_another_shape_are_refused(copy):
    path = copy / TYPE / "weights.th"
    state = torch.load(path, weights_only=True)
    torch.save(dict(list(state.items())[:-1]), path)
    with pytest.raises(WeightsError, match="does not fit"):
        load_model(locate(TYPE, copy), device="cpu")


class Evil:
    """Unpickling this would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_code_in_a_checkpoint_is_not_run(copy, tmp_path):
    torch.save(Evil(tmp_path / "ran"), copy / TYPE / "weights.th")
    with pytest.raises(WeightsError, match="holds no weights"):
        load_model(locate(TYPE, copy), device="cpu")
    assert not (tmp_path / "ran").exists()


def test_labels_of_another_model_are_refused(copy):
    (copy / TYPE).rename(copy / "radgraph")
    with pytest.raises(WeightsError, match="no labels radgraph__ner_labels"):
        load_model(locate("radgraph", copy), device="cpu")


def test_fetch_gets_all_that_is_needed_once(hub, tmp_path):
    out = tmp_path / "out"
    files = fetch(TYPE, out)
    assert files.folder == out / TYPE
    assert files.encoder == out / TYPE / "encoder"
    assert sorted(path.name for path in files.encoder.iterdir()) == [
        "config.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    load_model(files, device="cpu")
    assert hub.downloads == [f"{TYPE}.tar.gz", "somebody/their-bert"]
    assert fetch(TYPE, out) == files
    assert len(hub.downloads) == 2


def test_of_many_that_fetch_one_downloads(hub, tmp_path):
    out, found = tmp_path / "out", []
    threads = [threading.Thread(target=lambda: found.append(fetch(TYPE, out))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 6
    assert len(set(found)) == 1
    assert hub.downloads == [f"{TYPE}.tar.gz", "somebody/their-bert"]


def test_a_half_extracted_folder_is_replaced(hub, tmp_path):
    out = tmp_path / "out"
    (out / TYPE).mkdir(parents=True)
    (out / TYPE / "config.json").write_text("{}")
    (out / TYPE / "leftover").write_text("x")
    files = fetch(TYPE, out)
    assert not (files.folder / "leftover").exists()
    load_model(files, device="cpu")


@pytest.mark.parametrize("damage", ["truncated", "text", "incomplete"])
def test_a_bad_archive_leaves_nothing_behind(hub, tmp_path, damage):
    if damage == "truncated":
        hub.archive.write_bytes(hub.archive.read_bytes()[:-4000])
    elif damage == "text":
        hub.archive.write_text("<html>rate limited</html>")
    else:
        with tarfile.open(hub.archive, "w:gz") as tar:
            tar.add(hub.encoder / "config.json", "config.json")
    with pytest.raises(WeightsError, match=str(hub.archive)):
        fetch(TYPE, tmp_path / "out")
    assert [path for path in (tmp_path / "out").iterdir() if not path.name.endswith(".lock")] == []


def test_a_hub_that_cannot_be_reached_is_said(hub, tmp_path, monkeypatch):
    def unreachable(**_):
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unreachable)
    with pytest.raises(WeightsError, match=r"could not be downloaded: no route\. On a machine with network"):
        fetch(TYPE, tmp_path / "out")


def test_the_encoder_may_be_in_the_hubs_cache(hub, tmp_path, monkeypatch):
    files = fetch(TYPE, tmp_path / "out")
    shutil.rmtree(files.folder / "encoder")
    with pytest.raises(WeightsError, match="somebody/their-bert"):
        locate(TYPE, tmp_path / "out")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: str(hub.encoder))
    assert locate(TYPE, tmp_path / "out").encoder == hub.encoder


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "member",
    [
        _member("../outside"),
        _member("a/../../outside"),
        _member("/tmp/outside"),
        _member("..\\outside"),
        _member("C:outside"),
        _member("link", tarfile.SYMTYPE, "/etc/passwd"),
        _member("link", tarfile.LNKTYPE, "../outside"),
        _member("device", tarfile.CHRTYPE),
        _member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name} {member.type.decode()}",
)
def test_an_archive_cannot_leave_its_folder(tmp_path, member):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.addfile(member, io.BytesIO(b""))
    with pytest.raises(ArchiveError, match=r"outside|neither"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "in")
    assert [path.name for path in tmp_path.iterdir() if path.name != "in"] == ["a.tar.gz"]
    assert list((tmp_path / "in").rglob("*")) == []


def test_a_file_twice_or_too_large_is_refused(tmp_path):
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz") as tar:
        info = _member("zeros")
        info.size = 1 << 20
        tar.addfile(info, io.BytesIO(bytes(1 << 20)))
    with pytest.raises(ArchiveError, match="more than 1,000 bytes"):
        unpack(tmp_path / "bomb.tar.gz", tmp_path / "in", max_bytes=1000)
    with tarfile.open(tmp_path / "twice.tar.gz", "w:gz") as tar:
        tar.addfile(_member("same"), io.BytesIO(b""))
        tar.addfile(_member("same"), io.BytesIO(b""))
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "twice.tar.gz", tmp_path / "in2")
