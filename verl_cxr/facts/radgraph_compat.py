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
"""The one place that knows how `radgraph` 0.1.18 and transformers 5 fit together.

`radgraph` names no upper bound for transformers and calls two tokenizer methods that version 5 removed. What is changed
here is a function of `radgraph`'s own; transformers stays as it is for everybody else in the process.

==============  =========================================================================================
upstream        radgraph 0.1.18, ``radgraph/allennlp/common/cached_transformers.py``, ``get_tokenizer``
reason          ``allennlp/data/tokenizers/pretrained_transformer_tokenizer.py`` calls ``encode_plus``,
                ``allennlp/data/token_indexers/pretrained_transformer_indexer.py`` calls
                ``build_inputs_with_special_tokens``
applies to      transformers >= 5 (with older ones the tokenizer is handed on unchanged)
ends            when ``tests/facts/test_radgraph_compat.py`` fails: the package runs without it
==============  =========================================================================================

Weights whose encoder is a ModernBERT (``modern-radgraph-xl``) are refused elsewhere: with a port of that model to
transformers 5 its author saw wrong output (pull request 16 of the package's repository), and nothing here can check it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import logging
import warnings
from typing import Any

from verl_cxr.facts.scorer import FactServiceError
from verl_cxr.local import torchvision_shim

__all__ = ["RADGRAPH_VERSION", "load_package"]

RADGRAPH_VERSION = "0.1.18"


@functools.cache
def load_package() -> Any:
    """Import `radgraph`, ready to run on the transformers that is installed.

    Raises:
        FactServiceError: it is not installed, is another version, or does not import.
    """
    try:
        version = importlib.metadata.version("radgraph")
    except importlib.metadata.PackageNotFoundError:
        raise FactServiceError("the radgraph package is not installed: pip install 'verl-cxr[radgraph]'") from None
    if version != RADGRAPH_VERSION:
        raise FactServiceError(
            f"radgraph {version} is installed and {RADGRAPH_VERSION} is needed: pip install 'verl-cxr[radgraph]'"
        )
    torchvision_shim.install()  # transformers imports torchvision, which a CPU build of torch cannot load as it is
    levels = {name: logging.getLogger(name).level for name in ("radgraph", "allennlp")}
    try:
        with warnings.catch_warnings():  # the package changes the filters of the whole process when it is imported
            package = importlib.import_module("radgraph")
            cached: Any = importlib.import_module("radgraph.allennlp.common.cached_transformers")
    except ImportError as error:
        raise FactServiceError(f"radgraph {version} cannot be imported: {error}") from error
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("radgraph").setLevel(logging.ERROR)
    if not hasattr(cached.get_tokenizer, "upstream"):
        cached.get_tokenizer = _complete(cached.get_tokenizer)
    return package


def _complete(upstream: Any) -> Any:
    """``get_tokenizer`` whose tokenizers have the two methods again."""

    @functools.wraps(upstream)
    def get_tokenizer(model_name: str, **kwargs: Any) -> Any:
        tokenizer = upstream(model_name, **kwargs)
        return tokenizer if hasattr(tokenizer, "encode_plus") else _Tokenizer(tokenizer)

    get_tokenizer.upstream = upstream  # type: ignore[attr-defined]
    return get_tokenizer


class _Tokenizer:
    """A tokenizer of transformers 5 with the two methods of version 4 that `radgraph` calls; the rest is handed on."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        around = tokenizer("", add_special_tokens=True)["input_ids"]
        self._before, self._after = around[: len(around) // 2], around[len(around) // 2 :]

    def __getattr__(self, name: str) -> Any:
        if name == "_tokenizer":  # not there yet: a copy in the making must not look for it for ever
            raise AttributeError(name)
        return getattr(self._tokenizer, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._tokenizer(*args, **kwargs)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def encode_plus(self, text: str, text_pair: str | None = None, **kwargs: Any) -> Any:
        """Version 5's ``__call__`` takes the same options."""
        return self._tokenizer(text, text_pair, **kwargs)

    def build_inputs_with_special_tokens(self, ids: list[int]) -> list[int]:
        """The pieces between the special tokens of one sequence."""
        return [*self._before, *ids, *self._after]
