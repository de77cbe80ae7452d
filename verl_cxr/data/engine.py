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
"""Where the parts of a build are made: in this process, in worker processes, or as Ray tasks; the results are the same.

An engine calls one function on many tasks and yields the results in the order of the tasks. It takes no more tasks than
its workers are about to need, so that the memory of a build does not grow with the data set.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import wait
from typing import Any, Protocol, TypeVar

__all__ = ["ENGINES", "Engine", "InProcess", "Processes", "RayTasks", "make_engine"]

Result = TypeVar("Result")
ENGINES = ("local", "ray")
_AHEAD = 2  # tasks waiting a worker: one to start at once when the other is done


class Engine(Protocol):
    """Calls a function on each task, whoever does it."""

    def map(self, function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield `function(*task)` in the order of the tasks; the first exception, in that order, is raised here."""


class InProcess:
    """One task after the other, here."""

    def map(self, function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """See `Engine`."""
        for task in tasks:
            yield function(*task)


class Processes:
    """Worker processes of this machine, which end when this process ends, however it ends."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """See `Engine`. The function and the tasks must pickle."""
        # Started afresh: a fork would copy the threads' locks of the libraries in whatever state they are.
        pool = ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"), initializer=_end_with_parent)
        try:
            yield from _in_order(
                tasks, lambda task: pool.submit(function, *task), lambda done: done.result(), self.workers * _AHEAD
            )
        finally:
            pool.shutdown(cancel_futures=True)


class RayTasks:
    """Tasks of a Ray cluster: the one that `RAY_ADDRESS` names, or one on this machine. All nodes share the folders.

    Args:
        workers: tasks at a time; the CPUs of the cluster if None.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers

    def map(self, function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """See `Engine`. The function and the tasks must pickle."""
        import ray

        started = not ray.is_initialized()
        if started:
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # else Ray writes a token into the home folder
            local = {} if "RAY_ADDRESS" in os.environ else {"include_dashboard": False, "num_cpus": self.workers}
            ray.init(log_to_driver=False, logging_level="ERROR", **local)
        try:
            call = ray.remote(num_cpus=1, max_retries=3)(_call)
            workers = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            yield from _in_order(tasks, lambda task: call.remote(function, *task), _ray_result, workers * _AHEAD)
        finally:
            if started:
                ray.shutdown()


def make_engine(name: str, workers: int | None) -> Engine:
    """The engine of a name in `ENGINES`.

    Args:
        workers: how many tasks run at a time; None is one for `local`, every CPU of the cluster for `ray`.

    Raises:
        ValueError: no such engine.
    """
    if name == "ray":
        return RayTasks(workers)
    if name == "local":
        return Processes(workers) if workers is not None and workers > 1 else InProcess()
    raise ValueError(f"unknown engine {name!r}: use {' or '.join(ENGINES)}")


def _call(function: Callable[..., Result], *task: Any) -> Result:
    return function(*task)  # Ray takes functions, and no bound methods


def _in_order(
    tasks: Iterable[tuple[Any, ...]],
    submit: Callable[[tuple[Any, ...]], Any],
    result: Callable[[Any], Result],
    ahead: int,
) -> Iterator[Result]:
    waiting: deque[Any] = deque()
    for task in tasks:
        waiting.append(submit(task))
        if len(waiting) >= ahead:
            yield result(waiting.popleft())
    while waiting:
        yield result(waiting.popleft())


def _ray_result(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


def _end_with_parent() -> None:
    """A worker of the pool waits for tasks on a pipe that its siblings hold open: it would outlive a killed build."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (wait([sentinel]), os._exit(1)), daemon=True).start()
