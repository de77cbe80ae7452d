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
"""A RadGraph of the genuine architecture with random weights, laid out as the real one is: tests and benchmarks use it.

No real weights can be had without network. What is drawn at random here is only the numbers in ``weights.th``: files,
labels, modules and code paths are those of `radgraph` 0.1.18, whose own ``RadGraph`` class loads the folder too. The
heads' last layers are scaled so that a text gets some entities and some relations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from verl_cxr.facts.radgraph_forward import read_alone
from verl_cxr.facts.radgraph_model import RadGraphModel, build_model
from verl_cxr.facts.radgraph_words import split_words
from verl_cxr.facts.weights import RadGraphFiles, locate

XL_NER = (
    "Observation::definitely present",
    "Observation::definitely absent",
    "Observation::uncertain",
    "Anatomy::definitely present",
    "Anatomy::definitely absent",
    "Anatomy::uncertain",
    "Anatomy::measurement::definitely present",
    "Observation::measurement::definitely present",
)
V1_NER = ("OBS-DP", "OBS-DA", "OBS-U", "ANAT-DP")
RELATIONS = ("modify", "located_at", "suggestive_of")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the encoder and the heads; the defaults are for unit tests."""

    hidden: int = 32
    layers: int = 2
    heads: int = 2
    intermediate: int = 64
    feedforward: int = 16
    feature: int = 4
    max_span_width: int = 4
    max_pieces: int = 64
    vocabulary: int = 0
    """Pieces; 0: as many as the words need."""


XL_SIZES = Sizes(768, 12, 12, 3072, 150, 20, 8, 512, 30522)
"""BERT base (CXR-BERT's), and DyGIE++'s own defaults for the heads."""


def build_radgraph(
    root: Path, *, texts: Sequence[str], model_type: str = "radgraph-xl", sizes: Sizes = Sizes(), seed: int = 0
) -> RadGraphFiles:
    """Write ``root/<model type>/`` and give its files.

    Args:
        texts: their words get a word piece of their own, others fall into letters.
    """
    folder = root / model_type
    encoder = folder / "encoder"
    (folder / "vocabulary").mkdir(parents=True)
    encoder.mkdir()
    _write_encoder(encoder, texts, sizes)
    _write_labels(folder / "vocabulary", model_type)
    (folder / "config.json").write_text(json.dumps(_config(sizes, str(encoder))))
    (folder / "weights.th").write_bytes(b"to come")
    files = locate(model_type, root)
    sample = [text for text in texts if len(text.split()) > 2][:24]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        loaded = build_model(files, device=torch.device("cpu"))
        _spread(loaded, sample)
    torch.save(loaded.model.state_dict(), folder / "weights.th")
    return files


def _config(sizes: Sizes, encoder: str) -> dict:
    bert = {"type": "pretrained_transformer_mismatched", "model_name": encoder, "max_length": sizes.max_pieces}
    return {
        "dataset_reader": {"type": "dygie", "token_indexers": {"bert": bert}, "max_span_width": sizes.max_span_width},
        "model": {
            "type": "dygie",
            "embedder": {"token_embedders": {"bert": bert}},
            "initializer": {"regexes": []},
            "module_initializer": {"regexes": []},
            "loss_weights": {"ner": 0.2, "relation": 1.0, "coref": 0.0, "events": 0.0},
            "feature_size": sizes.feature,
            "max_span_width": sizes.max_span_width,
            "target_task": "relation",
            "feedforward_params": {"num_layers": 2, "hidden_dims": sizes.feedforward, "dropout": 0.4},
            "modules": {
                "coref": {"spans_per_word": 0.3, "max_antecedents": 100, "coref_prop": 0},
                "ner": {},
                "relation": {"spans_per_word": 0.5},
                "events": {
                    "trigger_spans_per_word": 0.3,
                    "argument_spans_per_word": 0.8,
                    "loss_weights": {"trigger": 0.2, "arguments": 1.0},
                },
            },
        },
    }


def _write_encoder(folder: Path, texts: Iterable[str], sizes: Sizes) -> None:
    known = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    letters = [chr(code) for code in range(33, 127)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *known]
    pieces = list(dict.fromkeys(pieces))
    pieces += [f"[unused{i}]" for i in range(sizes.vocabulary - len(pieces))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512})
    )
    config = {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "vocab_size": len(pieces),
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.intermediate,
        "max_position_embeddings": max(sizes.max_pieces, 64),
        "type_vocab_size": 2,
        "pad_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config))


def _write_labels(folder: Path, model_type: str) -> None:
    ner = XL_NER if model_type == "radgraph-xl" else V1_NER
    (folder / "non_padded_namespaces.txt").write_text("*labels\n*tags\n")
    (folder / f"{model_type}__ner_labels.txt").write_text("\n".join(["", *ner]) + "\n")
    (folder / f"{model_type}__relation_labels.txt").write_text("\n".join(RELATIONS) + "\n")


@torch.no_grad()
def _spread(loaded: RadGraphModel, sample: list[str]) -> None:
    """Scale the heads' last layers so that scores spread as widely as trained ones, and most are of nothing."""
    model, name = loaded.model, loaded.model_type
    for key, parameter in model.named_parameters():
        if "word_embeddings" in key:
            parameter.mul_(25)
    heads = {
        model._ner._ner_scorers[f"{name}__ner_labels"][-1]._module: 1.9,
        model._relation._relation_scorers[f"{name}__relation_labels"]: 1.2,
    }
    for layer, threshold in heads.items():
        seen: list[torch.Tensor] = []
        hook = layer.register_forward_hook(
            lambda _, __, out, seen=seen: seen.append(out.detach().flatten(0, -2).clone())
        )
        for text in sample:
            read_alone(loaded, split_words(text, model_type=name))
        hook.remove()
        scores = torch.cat(seen)
        spread, middle = scores.std(0), scores.mean(0)
        layer.weight.copy_(3 * layer.weight / spread.unsqueeze(1))
        layer.bias.copy_(3 * ((layer.bias - middle) / spread - threshold))
