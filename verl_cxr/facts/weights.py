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
"""RadGraph's weights: where they are, whether they are whole, and how they get there once.

A folder as the archive ``<model type>.tar.gz`` of the hub repository ``StanfordAIMI/RRG_scorers`` unpacks to, and in it
what the package asks the hub for by name, so that one folder is all that an offline machine needs::

    FOLDER/radgraph-xl/config.json
                       weights.th
                       vocabulary/non_padded_namespaces.txt, radgraph-xl__ner_labels.txt, ...
                       encoder/config.json, vocab.txt, tokenizer.json, tokenizer_config.json   (or in the hub's cache)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_cxr.facts.archive import ArchiveError, unpack
from verl_cxr.facts.radgraph_compat import RADGRAPH_VERSION
from verl_cxr.facts.scorer import FactServiceError

__all__ = ["MODEL_TYPES", "REPOSITORY", "RadGraphFiles", "WeightsError", "check_model_type", "fetch", "locate"]

MODEL_TYPES = ("radgraph-xl", "radgraph")
REPOSITORY = "StanfordAIMI/RRG_scorers"

_FILES = ("config.json", "weights.th")
_VOCABULARY, _ENCODER = "vocabulary", "encoder"
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json")
_REFUSED = {
    "modern-radgraph-xl": "its output was reported wrong after a port to transformers 5, and nothing here can check it",
    "echograph": "it reads echocardiography reports",
}


class WeightsError(FactServiceError):
    """Weights that are missing, incomplete or not what they should be; says what to fetch and where to put it."""


def check_model_type(model_type: str) -> None:
    """Raises:
    ValueError: not a model type that can be trusted here, with the reason.
    """
    if model_type in _REFUSED:
        raise ValueError(f"{model_type} is refused: {_REFUSED[model_type]}. Use {' or '.join(MODEL_TYPES)}")
    if model_type not in MODEL_TYPES:
        raise ValueError(f"unknown RadGraph model {model_type!r}: use {' or '.join(MODEL_TYPES)}")


@dataclass(frozen=True, slots=True)
class RadGraphFiles:
    """Complete files of one model: `folder` holds config, weights and vocabulary, `encoder` config and tokenizer."""

    model_type: str
    folder: Path
    encoder: Path

    @property
    def config(self) -> dict[str, Any]:
        """What ``config.json`` says."""
        return _read_json(self.folder / "config.json")

    def fingerprint(self) -> str:
        """Hash of everything that decides an annotation but the text: weights, configuration, labels, tokenizer."""
        digest = hashlib.sha256(f"{self.model_type}\0radgraph {RADGRAPH_VERSION}".encode())
        labels = sorted(path for path in (self.folder / _VOCABULARY).iterdir() if path.suffix == ".txt")
        tokenizer = [self.encoder / name for name in ("config.json", *_TOKENIZER_FILES)]
        for path in (*(self.folder / name for name in _FILES), *labels, *tokenizer):
            if path.is_file():
                digest.update(f"\0{path.parent.name}/{path.name}\0".encode())
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
        return digest.hexdigest()


def locate(model_type: str, weights: str | os.PathLike[str] | None = None) -> RadGraphFiles:
    """Find the files of a model; reads nothing but ``config.json`` and asks no network.

    Args:
        model_type: one of `MODEL_TYPES`.
        weights: the folder FOLDER above, or FOLDER/<model type> itself; None: the `radgraph` package's cache.

    Raises:
        ValueError: see `check_model_type`.
        WeightsError: a file is missing.
    """
    check_model_type(model_type)
    folder = _folder(_root(weights), model_type)
    missing = _missing(folder)
    if missing:
        raise WeightsError(f"no {model_type} weights in {folder}: {', '.join(missing)} missing. {_advice(model_type)}")
    return RadGraphFiles(model_type, folder, _encoder(model_type, folder))


def fetch(model_type: str, weights: str | os.PathLike[str] | None = None) -> RadGraphFiles:
    """`locate`, after downloading what is missing; many processes may ask at once, one of them downloads.

    The archive is unpacked beside its place and moved there when it is whole, so that no half of it is ever found.

    Raises:
        ValueError, WeightsError: see `locate`; also a download that fails, or an archive that is damaged or unsafe.
    """
    check_model_type(model_type)
    try:
        return locate(model_type, weights)
    except WeightsError:
        pass
    root = _root(weights)
    with _locked(root, model_type):
        folder = _folder(root, model_type)
        if _missing(folder):
            _fetch_weights(model_type, folder)
        try:
            _encoder(model_type, folder)
        except WeightsError:
            _fetch_encoder(model_type, folder)
    return locate(model_type, weights)


def _root(weights: str | os.PathLike[str] | None) -> Path:
    if weights is not None:
        return Path(weights).expanduser().absolute()
    try:
        from appdirs import user_cache_dir  # type: ignore[import-untyped]
    except ImportError:
        raise WeightsError("the radgraph package is not installed: pip install 'verl-cxr[radgraph]'") from None
    return Path(user_cache_dir("radgraph")) / RADGRAPH_VERSION


def _folder(root: Path, model_type: str) -> Path:
    """`root` itself if it is the model's own folder, as some will give it, else the one below."""
    return root if (root / "config.json").is_file() and not (root / model_type).is_dir() else root / model_type


def _advice(model_type: str) -> str:
    return (
        f"On a machine with network, `verl-cxr facts fetch --model {model_type} --out FOLDER` gets {model_type}.tar.gz "
        f"of the hub repository {REPOSITORY} and the encoder's tokenizer; copy FOLDER here and give it as weights "
        "(cxr.facts.weights in a recipe). docs/radgraph.md shows the layout"
    )


def _missing(folder: Path) -> list[str]:
    missing = [name for name in _FILES if not _filled(folder / name)]
    if not _filled(folder / _VOCABULARY / "non_padded_namespaces.txt"):
        missing.append(f"{_VOCABULARY}/")
    return missing


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _encoder(model_type: str, folder: Path) -> Path:
    """The folder of the encoder's configuration and tokenizer: with the weights, at a path, or in the hub's cache."""
    name = _encoder_name(folder)
    for place in (folder / _ENCODER, Path(name), folder / name):
        if place.is_dir():
            break
    else:
        place = _cached(name)
    lacking = [] if _filled(place / "config.json") else ["config.json"]
    if not any(_filled(place / file) for file in _TOKENIZER_FILES[:2]):
        lacking.append(" or ".join(_TOKENIZER_FILES[:2]))
    if lacking:
        raise WeightsError(
            f"the encoder {name} of {folder} is incomplete in {place}: {', '.join(lacking)} missing. Put its "
            f"config.json and tokenizer files (not its weights) into {folder / _ENCODER}. {_advice(model_type)}"
        )
    if _read_json(place / "config.json").get("model_type") == "modernbert":
        raise WeightsError(f"{folder} holds modern-radgraph-xl, which is refused: {_REFUSED['modern-radgraph-xl']}")
    return place


def _encoder_name(folder: Path) -> str:
    config = _read_json(folder / "config.json")
    try:
        model = config["model"]["embedder"]["token_embedders"]["bert"]["model_name"]
        reader = config["dataset_reader"]["token_indexers"]["bert"]["model_name"]
    except (KeyError, TypeError) as error:
        raise WeightsError(f"{folder / 'config.json'} is no RadGraph configuration: {error} is missing") from None
    if not isinstance(model, str) or model != reader:
        raise WeightsError(f"{folder / 'config.json'} names two encoders, {model!r} and {reader!r}: one is needed")
    return model


def _cached(name: str) -> Path:
    """Where the hub's cache has the encoder; its own folder name where it has not, so that an error can show it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        return Path("the hub's cache")
    except HFValidationError:  # a path of another machine
        return Path(name)


def _fetch_weights(model_type: str, folder: Path) -> None:
    from huggingface_hub import hf_hub_download

    file = f"{model_type}.tar.gz"
    try:
        archive = hf_hub_download(repo_id=REPOSITORY, filename=file)
    except Exception as error:  # the hub raises errors of many kinds, requests' among them
        raise WeightsError(f"{file} of {REPOSITORY} could not be downloaded: {error}. {_advice(model_type)}") from error
    with _beside(folder) as fresh:
        try:
            unpack(Path(archive), fresh)
        except (ArchiveError, OSError) as error:
            raise WeightsError(f"{archive} cannot be unpacked: {error}. Delete it and fetch again") from error
        missing = _missing(fresh)
        if missing:
            raise WeightsError(f"{archive} holds no RadGraph weights: {', '.join(missing)} missing")


def _fetch_encoder(model_type: str, folder: Path) -> None:
    from huggingface_hub import snapshot_download

    name = _encoder_name(folder)
    with _beside(folder / _ENCODER) as fresh:
        try:
            found = snapshot_download(name, allow_patterns=["config.json", *_TOKENIZER_FILES])
        except Exception as error:  # as above
            raise WeightsError(f"the encoder {name} could not be downloaded: {error}. {_advice(model_type)}") from error
        for file in ("config.json", *_TOKENIZER_FILES):
            if (Path(found) / file).is_file():
                shutil.copyfile(Path(found) / file, fresh / file)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A fresh folder on the same disk that takes the place of `target`, and of any remains there, if all goes well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        fresh = work / "new"
        fresh.mkdir()
        yield fresh
        if target.exists():
            os.replace(target, work / "old")
        os.replace(fresh, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(root: Path, model_type: str) -> Iterator[None]:
    from filelock import FileLock

    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f".{model_type}.lock"):
        yield


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{path} holds no JSON object")
    return value
