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
"""What a tool is: a name, a schema in OpenAI's form, and a function of arguments and case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from PIL import Image

from tool_plugins.case import Case

__all__ = ["Result", "Tool", "function_schema", "harmless"]

_MARKUP = re.compile(r"<(?=\||/?(?:image|video|audio|tool_call|tool_response|think|answer)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a tool found.

    Attributes:
        text: for the policy.
        images: RGB pictures for the policy, in order.
    """

    text: str
    images: tuple[Image.Image, ...] = ()


class Tool(Protocol):
    """A tool. It is called from several threads at once."""

    name: str
    schema: dict[str, Any]
    """In OpenAI's form."""

    def __call__(self, arguments: Mapping[str, Any], case: Case) -> Result:
        """Execute one call.

        Raises:
            RefusedError: the arguments are wrong, or the service behind the tool did not answer; the policy is told.
            Exception: the tool is broken; that ends the run.
        """


def function_schema(name: str, description: str, **properties: tuple[str, str]) -> dict[str, Any]:
    """The schema of a tool in OpenAI's form.

    Args:
        properties: (JSON type, description) of each argument; all of them are optional to the schema, because a tool
            says itself what is missing.
    """
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind, "description": words} for key, (kind, words) in properties.items()},
                "required": [],
            },
        },
    }


def harmless(text: str) -> str:
    """A text whose mark-up cannot be taken for that of the conversation, such as ``<|im_end|>`` or ``<image>``."""
    return _MARKUP.sub("< ", text)
