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
"""The store gives back what was put in, to every process, and nothing else: not damage, not another file's rows."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading

import pytest

from verl_cxr.facts import Entity, FactGraph, FactServiceError
from verl_cxr.facts import store as module
from verl_cxr.facts.store import FactStore, StoreError


def graph(text: str) -> FactGraph:
    return FactGraph(
        text,
        (
            Entity("1", "effusion", "Observation::definitely present", 1, 1, (("located_at", "2"),)),
            Entity("2", text.split()[0], "Anatomy::definitely present", 0, 0),
        ),
    )


def graphs(count: int, start: int = 0) -> dict[str, FactGraph]:
    return {f"text{i} effusion": graph(f"text{i} effusion") for i in range(start, start + count)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "facts.sqlite"


def opened(path, fingerprint="a" * 64, **options):
    return FactStore(path, fingerprint=fingerprint, name="radgraph-xl", **options)


def test_what_is_put_is_got_in_a_later_process_too(path):
    texts = {**graphs(3), "\u80ba \U0001fac1 'x'": FactGraph("\u80ba"), "": FactGraph("")}
    store = opened(path)
    store.put(texts)
    assert store.get([*texts, "unknown"]) == texts
    store.close()
    assert opened(path).get(list(texts)) == texts


def test_many_texts_in_one_call(path):
    store = opened(path)
    texts = graphs(1500)
    store.put(texts)
    assert store.get(list(texts)) == texts
    assert store.get([]) == {}


def test_another_annotator_sees_none_of_it(path):
    opened(path).put(graphs(3))
    other = opened(path, fingerprint="b" * 64)
    assert other.get(list(graphs(3))) == {}
    other.put({"text0 effusion": FactGraph("another")})
    assert opened(path).get(["text0 effusion"]) == graphs(1)
    models = other.stats().models
    assert [(model.fingerprint[0], model.graphs) for model in models] == [("a", 3), ("b", 1)]


def test_the_first_graph_of_a_text_stays(path):
    store = opened(path)
    store.put(graphs(1))
    store.put({"text0 effusion": FactGraph("another")})
    assert store.get(["text0 effusion"]) == graphs(1)


def _work(path, first, ready, go):
    store = opened(path)
    ready.release()
    go.wait(30)
    for start in range(first, first + 300, 20):
        store.put(graphs(20, start))
        assert store.get(list(graphs(20, start))) == graphs(20, start)
    store.close()


def test_two_processes_on_one_store(path):
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    # they overlap in 200 texts, and the file is made by whoever is first
    workers = [context.Process(target=_work, args=(path, first, ready, go)) for first in (0, 100)]
    for worker in workers:
        worker.start()
    for _ in workers:
        assert ready.acquire(timeout=60)
    go.set()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    store = opened(path)
    assert store.get(list(graphs(400))) == graphs(400)
    assert store.stats().models[0].graphs == 400


def test_threads_share_a_store(path):
    store = opened(path)
    errors = []

    def work(first):
        try:
            for start in range(first, first + 100, 10):
                store.put(graphs(10, start))
                assert store.get(list(graphs(10, start))) == graphs(10, start)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 50, 100, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert store.stats().models[0].graphs == 250


def filled(path):
    store = opened(path)
    store.put(graphs(400))
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")  # all of it in one file


@pytest.mark.parametrize("content", [b"not a database, but a text of some length " * 40, b"\x00" * 8192, b"PK\x03\x04"])
def test_a_file_that_is_something_else_is_refused_and_kept(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"{path} is no fact store.*give another path"):
        opened(path)
    assert path.read_bytes() == content


def test_somebody_elses_database_is_refused_and_kept(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE graphs (key, graph)")
    with pytest.raises(StoreError, match=r"no fact store: give another path"):
        opened(path)
    with pytest.raises(StoreError, match="no fact store"):
        FactStore.read_stats(path)


def test_a_store_of_another_version_is_refused(path):
    filled(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=rf"{path} is of version 99"):
        opened(path)


def test_a_truncated_store_is_refused(path):
    filled(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(StoreError, match=rf"{path} is damaged.*Delete it"):
        opened(path)


def test_garbage_in_the_middle_is_refused(path):
    filled(path)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 6000] = b"\xa5" * 6000
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        opened(path).get(list(graphs(400)))


def test_one_changed_letter_is_noticed(path):
    filled(path)
    data = path.read_bytes()
    assert b"text7 effusion" in data
    path.write_bytes(data.replace(b"definitely present", b"definitely absent ", 1))
    store = opened(path)  # the file as such is sound
    with pytest.raises(StoreError, match=r"a row is wrong.*checksum"):
        store.get(list(graphs(400)))


def test_a_row_under_another_key_is_noticed(path):
    filled(path)
    with sqlite3.connect(path) as db:
        first, second = db.execute("SELECT graph, checksum FROM graphs LIMIT 2").fetchall()
        db.execute("UPDATE graphs SET graph = ?, checksum = ? WHERE graph = ?", (*second, first[0]))
    with pytest.raises(StoreError, match="checksum"):
        opened(path).get(list(graphs(400)))


def test_the_file_is_bounded_and_the_longest_unused_make_room(path):
    bound = 300_000
    store = opened(path, max_bytes=bound)
    store.put(graphs(200))
    kept = list(graphs(50))
    for start in range(200, 3000, 200):
        assert store.get(kept) == graphs(50)  # used again and again
        store.put(graphs(200, start))
        assert store.stats().bytes <= bound
    assert store.get(kept) == graphs(50)
    assert store.get(list(graphs(100, 100))) == {}  # put at the same time, and never asked for
    assert store.get(list(graphs(200, 2800))) == graphs(200, 2800)
    store.close()
    assert path.stat().st_size < 2 * bound


def test_stats(path):
    store = opened(path)
    store.put(graphs(5))
    store.close()
    found = FactStore.read_stats(path)
    assert (found.path, found.models[0].name, found.models[0].graphs) == (path, "radgraph-xl", 5)
    assert found.models[0].last_used > 1.7e9
    assert found.bytes > 4096
    with pytest.raises(StoreError, match="there is no fact store at"):
        FactStore.read_stats(path.with_name("other"))


def test_a_network_file_system_is_refused(path, monkeypatch):
    monkeypatch.setattr(module, "_file_system", lambda _: "nfs4")
    with pytest.raises(StoreError, match=r"nfs4, a network file system: put it on a disk of this machine"):
        opened(path)
    assert not path.exists()


def test_a_store_that_stays_locked_is_an_error_not_a_wait_for_ever(path, monkeypatch):
    monkeypatch.setattr(module, "_WAIT_S", 0.2)
    store = opened(path)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"cannot be used: database is locked"):
            store.put(graphs(1))
        other.execute("ROLLBACK")
    store.put(graphs(1))
    assert isinstance(StoreError("x"), FactServiceError)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be opened"):
        opened(tmp_path / "file" / "facts.sqlite")
