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
"""One annotator for all reward workers of a node: a named Ray actor, and what calls it from a worker.

The workers of a step ask for the same phrases at the same time. The service reads each of them once, in batches of all
that is asked for at the moment, and keeps what it has read. Ray starts it again when it dies; a worker whose call was
lost asks again, and gets the same graphs. When that does not help the worker gets an error that says why: a run stops,
it never goes on with a reward of 0.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from verl_cxr.facts.graph import FactGraph
from verl_cxr.facts.microbatch import MicroBatcher
from verl_cxr.facts.radgraph import Outcome, all_or_raise
from verl_cxr.facts.radgraph_options import RadGraphOptions
from verl_cxr.facts.radgraph_words import collapse
from verl_cxr.facts.reader import FactReader, open_reader
from verl_cxr.facts.scorer import FactServiceError

__all__ = ["FactService", "ServiceAnnotator"]

RESTARTS = 4
ATTEMPTS = 7
"""Of one call, with pauses of 0.5, 1, 2, ... seconds: half a minute in all, when a restart takes some ten seconds."""
PLACE_S = 120.0
"""Seconds in which Ray must have found room for the service."""
ANSWER_S = 1800.0
"""Seconds in which a call must be answered; a step's worth of new phrases takes about two minutes of one core."""


class FactService:
    """The actor. Loads when it is first asked, so that what is wrong with the weights reaches the one who asks."""

    def __init__(self, options: RadGraphOptions) -> None:
        self._options = options
        self._loading: asyncio.Task[FactReader] | None = None
        self._batcher: MicroBatcher | None = None

    async def annotate(self, texts: Sequence[str]) -> list[FactGraph]:
        """One graph a text, in order.

        Raises:
            FactServiceError: the weights, the store or one of these texts cannot be read.
        """
        reader = await self._load()
        if self._batcher is None:
            self._batcher = MicroBatcher(reader.read)
        graphs: dict[str, Outcome | None] = {text: reader.remembered(text) for text in map(collapse, texts)}
        unknown = [text for text, graph in graphs.items() if graph is None]
        graphs.update(zip(unknown, await self._batcher.get(unknown), strict=True))
        return all_or_raise(graphs[collapse(text)] for text in texts)  # type: ignore[misc]

    async def status(self) -> dict[str, int]:
        """Counts since the start: texts from memory, from the store, read by the model; batches; texts shared."""
        if self._batcher is None:
            return {"pid": os.getpid()}
        reader = await self._load()
        return asdict(reader.counts) | {
            "pid": os.getpid(),
            "batches": self._batcher.batches,
            "shared": self._batcher.shared,
            "waiting": self._batcher.waiting,
        }

    async def _load(self) -> FactReader:
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._open))
        return await asyncio.shield(self._loading)

    def _open(self) -> FactReader:
        import torch

        torch.set_num_threads(self._options.threads)
        return open_reader(self._options)


class ServiceAnnotator:
    """Calls the service of this node, and starts it if nobody has; threads may share one.

    Args:
        options: services of the same options are one service.

    Raises:
        ValueError: a GPU is asked for without a share of one: Ray would give the trainer's.
    """

    def __init__(self, options: RadGraphOptions) -> None:
        if options.device != "cpu" and not options.gpus:
            raise ValueError(
                f"device={options.device}: the service needs a share of a GPU, such as gpus=0.1, or device=cpu"
            )
        self._options = options
        self._lock = threading.Lock()
        self._service: Any = None

    def __call__(self, texts: Sequence[str]) -> list[FactGraph]:
        """One graph a text, in order; waits for the answer.

        Raises:
            FactServiceError: the service failed, and could not be brought back.
        """
        import ray
        from ray import exceptions

        lost = (exceptions.RayActorError, exceptions.WorkerCrashedError, exceptions.ObjectLostError)
        cause: Exception | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(0.5 * 2 ** (attempt - 1))
            try:
                graphs: list[FactGraph] = ray.get(self._find().annotate.remote(list(texts)), timeout=ANSWER_S)
                return graphs
            except lost as error:
                cause = error
                self._service = None
            except exceptions.GetTimeoutError as error:
                raise FactServiceError(f"the fact service did not answer in {ANSWER_S:.0f} s") from error
            except exceptions.RayTaskError as error:  # raised by the service itself; with its class too
                inner = error.cause if isinstance(error.cause, Exception) else error
                raise FactServiceError(f"the fact service failed: {inner}") from inner
            except exceptions.RayError as error:
                raise FactServiceError(f"the fact service cannot be reached: {error}") from error
        raise FactServiceError(
            f"the fact service died and did not come back in {ATTEMPTS} attempts: {cause}"
        ) from cause

    def _find(self) -> Any:
        """The actor, alive when it was last asked."""
        with self._lock:
            if self._service is None:
                self._service = _start(self._options)
            return self._service


def _start(options: RadGraphOptions) -> Any:
    """The actor of this node with these options; a new one if there is none.

    It ends with the job, and with the worker that started it; the others then start another.
    """
    import ray
    from ray.exceptions import ActorUnschedulableError, GetTimeoutError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = ray.get_runtime_context().get_node_id()
    digest = hashlib.sha256(repr(options).encode()).hexdigest()
    service = (
        ray.remote(FactService)
        .options(
            name=f"verl_cxr_facts_{digest[:12]}_{node[:12]}",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=options.gpus,
            max_restarts=RESTARTS,
            max_concurrency=1000,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        .remote(options)
    )
    try:
        ray.get(service.status.remote(), timeout=PLACE_S)
    except (GetTimeoutError, ActorUnschedulableError) as error:
        raise FactServiceError(
            f"the fact service found no room on this node in {PLACE_S:.0f} s: it needs "
            f"{options.gpus:g} GPU that no other worker holds. Lower cxr.facts.gpus, or set cxr.facts.device=cpu"
        ) from error
    return service
