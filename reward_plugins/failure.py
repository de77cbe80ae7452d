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
"""Carries the cause of a failed reward from the worker that saw it to the trainer that must stop.

verl marks a prompt whose reward raised as failed, pads its place in the batch and goes on; the cause stays in a log. A
reward that cannot be computed must stop the run instead, so the cause is left in Ray's key-value store, where
:class:`reward_plugins.replay.StrictReplayBuffer` finds it.
"""

from __future__ import annotations

import ray
from ray.experimental import internal_kv

__all__ = ["read_failure", "report_failure"]

_NAMESPACE = b"verl_cxr"


def report_failure(cause: str) -> None:
    """Record the first cause of this Ray job; later ones are its echoes. Does nothing outside a Ray session."""
    if internal_kv._internal_kv_initialized():
        internal_kv._internal_kv_put(_key(), cause.encode(), overwrite=False, namespace=_NAMESPACE)


def read_failure() -> str | None:
    """The recorded cause, or None."""
    if not internal_kv._internal_kv_initialized():
        return None
    cause = internal_kv._internal_kv_get(_key(), namespace=_NAMESPACE)
    return None if cause is None else cause.decode()


def _key() -> bytes:
    """A cluster outlives its jobs, and a job's failure must not be read as the next one's."""
    return f"failure:{ray.get_runtime_context().get_job_id()}".encode()
