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
"""Freezes the vision encoder of a Qwen-VL model, for supervised training on verl. Named as ``model.external_lib``.

verl 0.9.1 has a setting ``freeze_vision_tower``, which its FSDP engine does not read. ``external_lib`` is verl's way to
put a model class of one's own in front: here the genuine class, whose weights under ``visual`` take no gradient once
they are loaded. The class keeps its name, so that a saved checkpoint names the genuine one.
"""

from __future__ import annotations

from typing import Any

__all__ = ["FROZEN", "register"]

FROZEN = "visual"
"""Attribute of the inner model that holds the vision encoder with its merger."""

_MODELS = ("Qwen3VL", "Qwen2_5_VL")


def register() -> None:
    """Let the auto class load models whose vision encoder is frozen. Idempotent."""
    import transformers

    for name in _MODELS:
        genuine = getattr(transformers, f"{name}ForConditionalGeneration")
        config = getattr(transformers, f"{name}Config")
        transformers.AutoModelForImageTextToText.register(config, _frozen(genuine), exist_ok=True)


def _frozen(genuine: Any) -> Any:
    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        model = super(frozen, cls).from_pretrained(*args, **kwargs)
        getattr(model.model, FROZEN).requires_grad_(False)
        return model

    frozen: Any = type(
        genuine.__name__,
        (genuine,),
        {"from_pretrained": classmethod(from_pretrained), "__module__": genuine.__module__},
    )
    return frozen


register()
