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
"""What is done to make `radgraph` run on transformers 5: only what is needed, and nothing to transformers itself."""

from __future__ import annotations

import importlib.metadata

import pytest
import transformers

from verl_cxr.facts import FactServiceError
from verl_cxr.facts.radgraph_compat import load_package

METHODS = ("encode_plus", "build_inputs_with_special_tokens")


@pytest.fixture
def tokenizer(radgraph_root):
    return transformers.AutoTokenizer.from_pretrained(str(radgraph_root / "radgraph-xl" / "encoder"))


@pytest.mark.skipif(int(transformers.__version__.split(".")[0]) < 5, reason="transformers 4 has the methods")
@pytest.mark.parametrize("method", METHODS)
def test_the_adapter_is_still_needed(tokenizer, method):
    """When this fails transformers has the method again, or `radgraph` has changed: remove the adapter."""
    load_package()
    assert not hasattr(tokenizer, method)
    assert importlib.metadata.version("radgraph") == "0.1.18"


def test_transformers_is_left_alone(tokenizer):
    package_tokenizer = load_package().radgraph.token_indexers
    assert package_tokenizer is not None
    for owner in (transformers.PreTrainedTokenizerBase, type(tokenizer)):
        assert not any(hasattr(owner, method) for method in METHODS)
    assert transformers.AutoTokenizer.from_pretrained.__func__.__module__.startswith("transformers.")


def test_the_adapter_answers_as_the_methods_did(annotator, tokenizer):
    adapted = annotator._model.tokenizer
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids = tokenizer("small effusion", add_special_tokens=False)["input_ids"]
    assert adapted.build_inputs_with_special_tokens(ids) == [cls, *ids, sep]
    assert adapted.encode_plus("small effusion", add_special_tokens=False)["input_ids"] == ids
    pair = adapted.encode_plus("small", "effusion", add_special_tokens=True, return_token_type_ids=True)
    assert pair["input_ids"] == [cls, ids[0], sep, ids[1], sep]
    assert pair["token_type_ids"] == [0, 0, 0, 1, 1]
    assert adapted.pad_token_id == tokenizer.pad_token_id
    assert len(adapted) == len(tokenizer)


@pytest.mark.parametrize(
    ("found", "message"),
    [(importlib.metadata.PackageNotFoundError("radgraph"), "not installed"), ("0.1.19", "0.1.19 is installed")],
)
def test_another_package_is_refused(monkeypatch, found, message):
    def version(_):
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    load_package.cache_clear()
    try:
        with pytest.raises(FactServiceError, match=message):
            load_package()
    finally:
        load_package.cache_clear()
