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
"""Loads a RadGraph model from its files: the `radgraph` package's own modules, on the device that was asked for.

The package's ``RadGraph(...)`` is not used: it would take ``cuda:0`` when nothing is said, download into a folder that
other processes read, and lock the vocabulary's folder, which may be read-only.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_cxr.facts.radgraph_compat import load_package
from verl_cxr.facts.weights import RadGraphFiles, WeightsError

__all__ = ["RadGraphModel", "build_model", "load_model"]


@dataclass(frozen=True, slots=True)
class RadGraphModel:
    """A DyGIE++ span model in inference mode, fp32, and what turns texts into its input.

    Attributes:
        model: ``radgraph.dygie.models.dygie.DyGIE``.
        reader: the package's dataset reader; its `tokenizer` cuts words into the pieces of the BERT encoder.
        device: where `model` is.
        max_span_width: words of the longest span that is scored.
        max_pieces: longest input of the encoder, special tokens included; the package folds longer ones.
        ner_labels, relation_labels: names by index; index 0 of `ner_labels` means no entity.
    """

    model_type: str
    model: Any
    reader: Any
    tokenizer: Any
    device: Any
    max_span_width: int
    max_pieces: int
    ner_labels: tuple[str, ...]
    relation_labels: tuple[str, ...]


def load_model(files: RadGraphFiles, *, device: str) -> RadGraphModel:
    """Build the model that ``config.json`` describes and fill it with ``weights.th``.

    Args:
        files: see `verl_cxr.facts.weights.locate`.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; never guessed.

    Raises:
        WeightsError: the files do not describe a RadGraph model, or the weights are not those of the description.
        FactServiceError: `radgraph` is missing, or the device is.
    """
    import torch

    target = torch.device(device)
    if target.type == "cuda" and not torch.cuda.is_available():
        raise WeightsError(f"device {device!r} was asked for and this process sees no GPU")
    loaded = build_model(files, device=target)
    path = files.folder / "weights.th"
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)  # tensors only: no code is unpickled
    except Exception as error:  # torch raises errors of many kinds for a file that is no checkpoint
        raise WeightsError(f"{path} holds no weights: {error}") from error
    try:
        loaded.model.load_state_dict(state, strict=True)
    except (RuntimeError, AttributeError, TypeError) as error:
        raise WeightsError(f"{path} does not fit {files.folder / 'config.json'}: {error!s:.800}") from error
    loaded.model.to(target)
    return loaded


def build_model(files: RadGraphFiles, *, device: Any) -> RadGraphModel:
    """The model with the weights that its modules draw when they are made, on the CPU; see `load_model`."""
    load_package()
    parts = {
        name: importlib.import_module(f"radgraph.{where}")
        for name, where in {
            "indexers": "allennlp.data.token_indexers",
            "embedders": "allennlp.modules.token_embedders",
            "fields": "allennlp.modules.text_field_embedders",
            "reader": "dygie.data.dataset_readers.dygie",
            "dygie": "dygie.models.dygie",
            "cached": "allennlp.common.cached_transformers",
        }.items()
    }
    encoder = str(files.encoder)
    try:
        settings = dict(files.config["model"])
        reading = files.config["dataset_reader"]
        max_span_width, max_pieces = int(reading["max_span_width"]), reading["token_indexers"]["bert"]["max_length"]
        max_pieces = int(max_pieces)
        for name in ("type", "embedder", "initializer", "module_initializer"):
            settings.pop(name, None)
        vocabulary = _vocabulary(files)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            indexer = parts["indexers"].PretrainedTransformerMismatchedIndexer(
                model_name=encoder, max_length=max_pieces
            )
            reader = parts["reader"].DyGIEReader(max_span_width=max_span_width, token_indexers={"bert": indexer})
            bert = parts["embedders"].PretrainedTransformerMismatchedEmbedder(model_name=encoder, max_length=max_pieces)
            embedder = parts["fields"].BasicTextFieldEmbedder({"bert": bert})
            model = parts["dygie"].DyGIE(vocab=vocabulary, embedder=embedder, **settings)
    except (KeyError, TypeError, ValueError, OSError, AssertionError) as error:
        raise WeightsError(
            f"{files.folder} describes no {files.model_type} model: {type(error).__name__}: {error}"
        ) from error
    parts["cached"]._model_cache.clear()  # the package keeps a second encoder, as large as the first
    model.float().eval().requires_grad_(False)
    return RadGraphModel(
        model_type=files.model_type,
        model=model,
        reader=reader,
        tokenizer=indexer._tokenizer,
        device=device,
        max_span_width=max_span_width,
        max_pieces=max_pieces,
        ner_labels=_labels(vocabulary, files, "ner"),
        relation_labels=_labels(vocabulary, files, "relation"),
    )


def _vocabulary(files: RadGraphFiles) -> Any:
    """The package's vocabulary, read from a copy: it locks the folder that it reads, which may be read-only."""
    vocabulary = importlib.import_module("radgraph.allennlp.data.vocabulary")
    settings = files.config.get("vocabulary") or {}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "vocabulary"
        copy.mkdir()
        for path in (files.folder / "vocabulary").glob("*.txt"):
            shutil.copyfile(path, copy / path.name)
        return vocabulary.Vocabulary.from_files(str(copy), settings.get("padding_token"), settings.get("oov_token"))


def _labels(vocabulary: Any, files: RadGraphFiles, kind: str) -> tuple[str, ...]:
    namespace = f"{files.model_type}__{kind}_labels"
    names = vocabulary.get_index_to_token_vocabulary(namespace)
    if namespace not in vocabulary.get_namespaces() or not names:
        raise WeightsError(
            f"{files.folder / 'vocabulary'} has no labels {namespace}: is it a {files.model_type} folder?"
        )
    return tuple(names[i] for i in range(len(names)))
