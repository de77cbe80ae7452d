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
"""Backends that are chosen by name, each imported only when it is chosen."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any

__all__ = ["make_named"]


def make_named(group: str, what: str, name: str, classes: Mapping[str, str], options: Mapping[str, Any]) -> Any:
    """The backend of a name.

    Args:
        group, what: the Hydra group, and what its members are, for messages.
        classes: names, and the class of each as ``module:Class``.
        options: of the class.

    Raises:
        ValueError: an unknown name or option.
    """
    if name not in classes:
        raise ValueError(f"unknown {what} {name!r}: use one of {', '.join(classes)}")
    try:
        return pkgutil.resolve_name(classes[name])(**options)
    except TypeError as error:
        raise ValueError(f"{group}={name}: {error}") from None
