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
"""Puts the texts of many concurrent callers together, and never reads one twice at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from verl_cxr.facts.radgraph import Outcome
from verl_cxr.facts.scorer import FactServiceError

__all__ = ["MicroBatcher"]


class MicroBatcher:
    """Collects texts until enough are there or the first has waited long enough, then reads them in one go.

    Lives on one event loop; the reading is done in one thread of its own, so that the loop goes on collecting.

    Args:
        read: reads distinct texts; an error that it raises is the error of each of them.
        words: a batch is read at once when it has this many words, and has no more unless one text does.
        wait: seconds that the first text of a smaller batch waits for company.
        waiting: words that may wait in all; a caller with more is held back until there is room.
    """

    def __init__(
        self,
        read: Callable[[list[str]], Sequence[Outcome]],
        *,
        words: int = 4096,
        wait: float = 0.01,
        waiting: int = 262_144,
    ) -> None:
        self._read = read
        self._words = words
        self._wait = wait
        self._limit = waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="facts")
        self._futures: dict[str, asyncio.Future[Outcome]] = {}  # waiting or being read
        self._queue: dict[str, int] = {}  # waiting: text -> words
        self._queued = 0
        self._since = 0.0
        self._changed = asyncio.Condition()
        self._loop: asyncio.Task[None] | None = None
        self.batches = 0
        self.shared = 0
        """Texts that another caller had asked for already, and that were not yet read."""

    @property
    def waiting(self) -> int:
        """Texts that are waiting or being read."""
        return len(self._futures)

    async def get(self, texts: Sequence[str]) -> list[Outcome]:
        """What became of each of `texts`, in order; as many calls at a time as there may be."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._run())
        wanted = []
        for text in texts:
            future = self._futures.get(text)
            if future is None:
                future = await self._add(text)
            else:
                self.shared += 1
            wanted.append(future)
        if wanted:
            await asyncio.wait(set(wanted))  # not gather: a caller that gives up must not cancel what others wait for
        return [future.result() for future in wanted]

    async def _add(self, text: str) -> asyncio.Future[Outcome]:
        async with self._changed:
            while self._queued >= self._limit:
                await self._changed.wait()
            known = self._futures.get(text)
            if known is not None:  # asked for by another caller while this one was held back
                return known
            future = self._futures[text] = asyncio.get_running_loop().create_future()
            self._queue[text] = size = text.count(" ") + 1
            if not self._queued:
                self._since = time.monotonic()
            self._queued += size
            self._changed.notify_all()
            return future

    async def _run(self) -> None:
        while True:
            batch = await self._next()
            self.batches += 1
            outcomes: Sequence[Outcome]
            try:
                outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, self._read, batch)
                if len(outcomes) != len(batch):
                    raise FactServiceError(f"{len(outcomes)} outcomes came back for {len(batch)} texts")
            except Exception as error:
                outcomes = [_as_service_error(error)] * len(batch)
            for text, outcome in zip(batch, outcomes, strict=True):
                self._futures.pop(text).set_result(outcome)

    async def _next(self) -> list[str]:
        async with self._changed:
            while not self._queue:
                await self._changed.wait()
            while self._queued < self._words:
                left = self._since + self._wait - time.monotonic()
                if left <= 0:
                    break
                try:
                    await asyncio.wait_for(self._changed.wait(), left)
                except asyncio.TimeoutError:
                    break
            batch: list[str] = []
            words = 0
            for text, size in self._queue.items():
                if batch and words + size > self._words:
                    break
                batch.append(text)
                words += size
            for text in batch:
                self._queued -= self._queue.pop(text)
            self._since = time.monotonic()
            self._changed.notify_all()
            return batch


def _as_service_error(error: Exception) -> FactServiceError:
    if isinstance(error, FactServiceError):
        return error
    wrapped = FactServiceError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
