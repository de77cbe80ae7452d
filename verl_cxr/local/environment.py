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
"""Environment defaults of a CPU run, set when the plug-in becomes active, so that no command needs an ``export``."""

from __future__ import annotations

import os

__all__ = ["DEFAULTS", "set_defaults"]

DEFAULTS = {
    "VERL_PLATFORM": "cpu",
    # one thread a process unless the process says otherwise: the processes of a run share the same cores
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Ray: no token file in the home folder, no usage report, no log de-duplication
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    # Ray hides accelerators from actors without a share; there is none to hide
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TQ_LOGGING_LEVEL": "ERROR",
    "VERL_LOGGING_LEVEL": "WARN",
}


def set_defaults() -> None:
    """Set each default that the user has not set."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        # an empty list contradicts the logical GPU that stands for the CPU worker in Ray's books
        del os.environ["CUDA_VISIBLE_DEVICES"]
