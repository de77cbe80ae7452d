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
"""Micro-batching: callers share work, batches wait for company but not for long, and nobody is cut off."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from verl_cxr.facts import FactGraph, FactServiceError
from verl_cxr.facts.microbatch import MicroBatcher


class Reader:
    """Remembers what it was asked; may be slow, blocked, or fail."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.batches: list[list[str]] = []
        self.seconds = seconds
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, texts):
        self.batches.append(list(texts))
        self.gate.wait(10)
        time.sleep(self.seconds)
        if "crash" in texts:
            raise OSError("disk full")
        return [FactServiceError("bad text") if text == "bad" else FactGraph(text) for text in texts]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def test_concurrent_callers_share_a_batch_and_its_texts():
    read = Reader()

    async def main():
        batcher = MicroBatcher(read, wait=0.05)
        return batcher, await asyncio.gather(*(batcher.get(["same", f"own {i}", "same"]) for i in range(20)))

    batcher, answers = run(main())
    assert answers == [[FactGraph("same"), FactGraph(f"own {i}"), FactGraph("same")] for i in range(20)]
    assert len(read.batches) == batcher.batches == 1
    assert sorted(read.batches[0]) == sorted(["same", *(f"own {i}" for i in range(20))])
    assert batcher.shared == 39
    assert batcher.waiting == 0


def test_a_text_that_is_being_read_is_not_read_again():
    read = Reader()
    read.gate.clear()

    async def main():
        batcher = MicroBatcher(read, wait=0.0)
        first = asyncio.create_task(batcher.get(["slow"]))
        while not read.batches:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(batcher.get(["slow"]))
        await asyncio.sleep(0.02)
        read.gate.set()
        return await first == await second

    assert run(main())
    assert read.batches == [["slow"]]


def test_a_small_batch_waits_and_a_full_one_does_not():
    read = Reader()

    async def main():
        batcher = MicroBatcher(read, words=10, wait=0.3)
        start = time.monotonic()
        await batcher.get([f"two words{i}" for i in range(5)])
        full = time.monotonic() - start
        start = time.monotonic()
        await batcher.get(["alone"])
        return full, time.monotonic() - start

    full, alone = run(main())
    assert full < 0.25
    assert alone >= 0.29


def test_a_batch_keeps_to_its_words():
    read = Reader()
    texts = [f"{i} b c" for i in range(10)] + ["w " * 50]

    async def main():
        return await MicroBatcher(read, words=8, wait=0.01).get(texts)

    assert [graph.text for graph in run(main())] == texts
    assert [len(batch) for batch in read.batches] == [2, 2, 2, 2, 2, 1]  # the long one by itself


def test_a_caller_is_held_back_while_too_much_waits():
    read = Reader(seconds=0.005)
    most = 0

    async def main():
        nonlocal most
        batcher = MicroBatcher(read, words=10, wait=0.0, waiting=20)

        async def watch():
            nonlocal most
            while True:
                most = max(most, batcher._queued)
                await asyncio.sleep(0)

        watcher = asyncio.create_task(watch())
        answers = await asyncio.gather(*(batcher.get([f"{k} {i}" for i in range(40)]) for k in range(3)))
        watcher.cancel()
        return answers

    answers = run(main())
    assert [[graph.text for graph in answer] for answer in answers] == [
        [f"{k} {i}" for i in range(40)] for k in range(3)
    ]
    assert most <= 21
    assert sum(map(len, read.batches)) == 120


def test_a_bad_text_fails_only_those_who_asked_for_it():
    read = Reader()

    async def main():
        batcher = MicroBatcher(read, wait=0.02)
        return await asyncio.gather(batcher.get(["good"]), batcher.get(["bad", "good"]))

    (good,), (bad, also_good) = run(main())
    assert good == also_good == FactGraph("good")
    assert isinstance(bad, FactServiceError)


def test_a_reader_that_fails_is_an_error_and_the_next_batch_is_read():
    read = Reader()

    async def main():
        batcher = MicroBatcher(read, wait=0.0)
        (failed,) = await batcher.get(["crash"])
        (fine,) = await batcher.get(["fine"])
        return failed, fine

    failed, fine = run(main())
    assert isinstance(failed, FactServiceError)
    assert "OSError: disk full" in str(failed)
    assert fine == FactGraph("fine")


def test_a_caller_that_gives_up_takes_nobody_with_it():
    read = Reader()
    read.gate.clear()

    async def main():
        batcher = MicroBatcher(read, wait=0.0)
        patient = asyncio.create_task(batcher.get(["text"]))
        hasty = asyncio.create_task(batcher.get(["text"]))
        while not read.batches:
            await asyncio.sleep(0.001)
        hasty.cancel()
        await asyncio.sleep(0)
        read.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await hasty
        return await patient

    assert run(main()) == [FactGraph("text")]


def test_nothing_to_read():
    async def main():
        return await MicroBatcher(Reader()).get([])

    assert run(main()) == []
