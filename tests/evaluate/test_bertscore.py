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
"""BERTScore on a small DistilBERT with random weights: everything but the weights is the real thing."""

import pytest
import torch

from verl_cxr.evaluate.metrics.bertscore import BertScore
from verl_cxr.evaluate.metrics.scores import UnavailableError
from verl_cxr.local import torchvision_shim

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "no", "acute", "process", "clear", "lungs", "effusion", "."]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torchvision_shim.install()
    from transformers import BertTokenizerFast, DistilBertConfig, DistilBertModel

    folder = tmp_path_factory.mktemp("distilbert")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    sizes = {"dim": 32, "n_heads": 2, "n_layers": 6, "hidden_dim": 64, "max_position_embeddings": 64}
    torch.manual_seed(0)
    DistilBertModel(DistilBertConfig(vocab_size=len(WORDS), **sizes)).save_pretrained(folder)
    return folder


def test_scores(weights):
    pairs = [("clear lungs.", "clear lungs."), ("no effusion", "no acute process"), ("", "clear lungs"), ("\n", "no")]
    (scores,) = BertScore(str(weights))(pairs)
    same, other, empty, blank = scores.samples
    assert same == pytest.approx(1, abs=1e-5)
    assert other < 1
    assert empty == blank == pytest.approx(-0.6662 / (1 - 0.6662), abs=1e-3)  # raw 0, rescaled with layer 5's baseline
    assert "distilbert-base-uncased, layer 5, rescaled" in scores.made_by
    assert len(BertScore(str(weights))._scorer._model.transformer.layer) == 5


def test_all_predictions_blank(weights):
    (scores,) = BertScore(str(weights))([("", "clear lungs")])
    assert scores.samples[0] < -1


def test_weights_that_are_not_there(tmp_path, monkeypatch):
    with pytest.raises(
        UnavailableError, match=r"incomplete in .*: config.json, tokenizer.json, model.safetensors missing"
    ):
        BertScore(str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnavailableError, match="not in the hub's cache on this machine"):
        BertScore()


def test_without_the_package(monkeypatch):
    monkeypatch.setattr("verl_cxr.evaluate.metrics.bertscore.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'verl-cxr\[eval\]'"):
        BertScore()
