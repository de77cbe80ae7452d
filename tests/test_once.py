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
"""Values made once: what is kept, what threads wait for, and what an error leaves behind."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from verl_cxr.once import Once


def test_it_forgets_what_was_used_longest_ago() -> None:
    recent = Once[str, str](size=2)
    assert [recent.get(key, lambda key=key: key) for key in "abacab"] == list("abacab")  # type: ignore[misc]
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key

    for key in ("a", "b", "c"):
        recent.get(key, lambda key=key: make(key))  # type: ignore[misc]
    assert made == ["c"]


def test_threads_that_ask_for_one_key_wait_for_the_first() -> None:
    once = Once[str, int]()
    made: list[int] = []

    def make() -> int:
        time.sleep(0.05)
        made.append(1)
        return 7

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: once.get("a", make), range(8))) == {7}
    assert made == [1]


def test_another_key_does_not_wait() -> None:
    once = Once[str, int]()
    held, release = threading.Event(), threading.Event()

    def slow() -> int:
        held.set()
        assert release.wait(5)
        return 1

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(once.get, "a", slow)
        assert held.wait(5)
        assert once.get("b", lambda: 2) == 2
        release.set()
        assert first.result() == 1


def test_an_error_is_raised_and_not_kept() -> None:
    once = Once[str, int]()

    def fail() -> int:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        once.get("a", fail)
    assert once.get("a", lambda: 3) == 3
    assert not once._making
