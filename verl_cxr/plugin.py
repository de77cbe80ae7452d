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
"""Entry point of verl's plug-in group: makes every name that the recipes use known to verl, in every process.

``import verl`` loads this module (``verl.plugins`` in ``pyproject.toml``) in the driver, in each Ray worker and in each
torchrun rank. verl logs the failure of a plug-in at DEBUG level only, so it is printed here, where people see it.

On a machine without an accelerator, or with ``VERL_PLATFORM=cpu``, verl's CPU platform of :mod:`verl_cxr.local` is
registered as well. On any other machine nothing of verl changes apart from the added names.
"""

from __future__ import annotations

import importlib.metadata
import sys
import traceback

VERL_VERSION = "0.9.1"

__all__ = ["VERL_VERSION", "UnsupportedVerlError", "register"]


class UnsupportedVerlError(RuntimeError):
    """The installed verl is not the version that this plug-in was written and tested against."""


def register() -> None:
    """Register the configuration resolvers, and the CPU platform where it applies.

    Raises:
        UnsupportedVerlError: verl's version differs from :data:`VERL_VERSION`.
    """
    found = importlib.metadata.version("verl")
    if found != VERL_VERSION:
        raise UnsupportedVerlError(
            f"verl-cxr {importlib.metadata.version('verl-cxr')} works with verl {VERL_VERSION}, but verl {found} is "
            f'installed. Run: pip install "verl=={VERL_VERSION}"'
        )
    from verl_cxr import local, resolvers

    resolvers.register()
    if local.wanted():
        local.activate()


try:
    register()
except Exception:
    print("verl-cxr: the plug-in did not load; recipes that name it will fail. The cause:", file=sys.stderr)
    traceback.print_exc()
    raise
