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
"""verl on a CPU: platform, FSDP2 engine, rollout server and agent-loop workers, by verl's own registries.

Nothing here is imported on a machine with an accelerator, unless ``VERL_PLATFORM=cpu`` asks for it.
"""

from __future__ import annotations

import logging
import os
import warnings

from verl_cxr.local.environment import set_defaults

__all__ = ["activate", "wanted"]


def wanted() -> bool:
    """Whether this process should run verl on the CPU.

    ``VERL_PLATFORM`` decides when it is set. Otherwise the CPU is wanted in a driver process that sees no accelerator;
    a Ray worker follows its driver (which sets ``VERL_PLATFORM`` for its children), because an actor without a share of
    a GPU sees none either, whatever the cluster holds.
    """
    choice = os.environ.get("VERL_PLATFORM", "").strip().lower()
    if choice:
        return choice == "cpu"
    import ray
    from verl.plugin.platform import PlatformRegistry

    if ray.is_initialized():
        return False
    platforms = (PlatformRegistry.get(name) for name in PlatformRegistry.registered_names())
    return not any(platform().is_platform_available(use_smi_check=True) for platform in platforms if platform)


def activate() -> None:
    """Make the CPU verl's platform in this process and, through the environment, in its children."""
    set_defaults()
    # the one logger that verl made before it could read the default above
    logging.getLogger("verl.plugin.platform.platform_manager").setLevel(os.environ["VERL_LOGGING_LEVEL"])
    # verl tells each process about each engine that is not installed
    warnings.filterwarnings("ignore", message=".* engine is not available", module=r"verl\.workers\.engine")
    from verl_cxr.local import torchvision_shim

    torchvision_shim.install()
    from verl_cxr.local import platform

    platform.register()  # first: verl asks for the platform while its other modules are imported
    from verl_cxr.local import patches

    patches.apply()
