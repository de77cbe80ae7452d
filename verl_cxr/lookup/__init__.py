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
"""How a finding looks on a chest film: the evidence that is looked up rather than seen. Backends are chosen by name."""

from __future__ import annotations

from typing import Any

from verl_cxr.backends import make_named
from verl_cxr.lookup.answer import LookupAnswer, LookupBackend, LookupServiceError

__all__ = ["LOOKUP_BACKENDS", "LookupAnswer", "LookupBackend", "LookupServiceError", "make_lookup"]

_CLASSES = {
    "knowledge": "verl_cxr.lookup.knowledge:KnowledgeBase",
    "openai": "verl_cxr.lookup.openai:OpenAILookup",
}
LOOKUP_BACKENDS = tuple(_CLASSES)


def make_lookup(name: str, **options: Any) -> LookupBackend:
    """The look-up of a name.

    Args:
        name: ``knowledge`` (curated statements, each with its citation) or ``openai`` (a language model on any server
            that speaks OpenAI's protocol).
        options: of the backend: :class:`~verl_cxr.lookup.knowledge.KnowledgeBase`,
            :class:`~verl_cxr.lookup.openai.OpenAILookup`.

    Raises:
        ValueError: an unknown name or option, or a file that is no knowledge base.
        FileNotFoundError: no such file.
    """
    backend: LookupBackend = make_named("lookup", "look-up", name, _CLASSES, options)
    return backend
