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
"""The service: one a node, shared by all callers, back after it is killed, and an error when it cannot come back."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray

from verl_cxr.facts import FactServiceError, make_scorer
from verl_cxr.facts import service as module
from verl_cxr.facts.radgraph_options import RadGraphOptions
from verl_cxr.facts.reader import FactReader
from verl_cxr.facts.service import ServiceAnnotator


@pytest.fixture(scope="module", autouse=True)
def session():
    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def options(radgraph_root, tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "facts.sqlite"
    return RadGraphOptions(weights=str(radgraph_root), store=str(store))


@pytest.fixture(scope="module")
def service(options):
    made = ServiceAnnotator(options)
    made([])  # it starts the actor, which then lives as long as this
    return made


def status(service):
    return ray.get(service._find().status.remote(), timeout=30)


def answers(actor):
    try:
        return bool(ray.get(actor.status.remote(), timeout=30))
    except ray.exceptions.RayActorError:
        return False


def crash(service):
    """End the service's process as the system does when memory runs out. It answers nothing after this."""
    os.kill(status(service)["pid"], signal.SIGKILL)


def test_workers_share_one_service_and_read_nothing_twice(service, options, annotator, phrases):
    expected = annotator(phrases[:120])
    others = [ServiceAnnotator(options) for _ in range(8)]  # as the workers of a node have one each
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda other: other(phrases[:120]), others))
    assert answers == [expected] * 8
    assert len({other._find()._actor_id for other in [service, *others]}) == 1
    counts = status(service)
    assert counts["read"] == 120
    assert counts["shared"] + counts["memory"] == 7 * 120
    assert counts["batches"] < 20
    assert service([f" {phrases[3]}\n", ""])[0] == expected[3]
    assert status(service)["read"] == 121  # the blank one


@ray.remote(num_cpus=0)
class Worker:
    """A reward worker in a process of its own."""

    def __init__(self, options):
        self.scorer = make_scorer("radgraph-xl", weights=options.weights, store=options.store)

    def score(self, pairs):
        return type(self.scorer.annotate).__name__, self.scorer.score(pairs)


def test_worker_processes_use_it_where_there_is_a_session(service, options, annotator, phrases):
    pairs = list(zip(phrases[:40], phrases[40:80], strict=True))
    direct = make_scorer("radgraph-xl", weights=options.weights, service=False)
    assert isinstance(direct.annotate, FactReader)
    expected = direct.score(pairs)
    before = status(service)["read"]
    workers = [Worker.remote(options) for _ in range(2)]
    assert (
        ray.get([worker.score.remote(pairs) for worker in workers], timeout=60) == [("ServiceAnnotator", expected)] * 2
    )
    assert status(service)["read"] == before  # known from the first test
    assert len(set(expected)) > 3
    assert make_scorer("radgraph-xl", weights=options.weights).name == "radgraph-xl/partial"


def test_killed_in_the_middle_of_a_batch_it_comes_back_with_the_same_graphs(service, annotator, phrases):
    texts = [f"{a}. {b}" for a in phrases[:60] for b in phrases[60:68]]  # a second's work, in two batches
    expected = annotator(texts)
    service(phrases[:1])
    first = service._find()
    answer: list = []
    caller = threading.Thread(target=lambda: answer.extend(service(texts)))
    caller.start()
    end = time.monotonic() + 30
    while status(service).get("waiting", 0) == 0:  # until it is at work
        assert time.monotonic() < end
        time.sleep(0.005)
    crash(service)
    assert not answer
    caller.join(120)
    assert answer == expected
    assert service._find()._actor_id == first._actor_id  # Ray's restart, not another actor
    counts = status(service)
    assert counts["memory"] == 0  # the process that remembered is gone
    assert counts["read"] + counts["store"] == len(texts)


def test_killed_for_good_another_takes_its_place(service, options, annotator, phrases):
    service(phrases[:4])
    first = service._find()
    ray.kill(first, no_restart=True)
    while answers(first):
        time.sleep(0.01)
    assert service(phrases[:4]) == annotator(phrases[:4])
    assert service._find()._actor_id != first._actor_id
    assert status(service)["store"] == 4  # what the first one had read was kept


def test_when_it_cannot_come_back_the_cause_is_said(radgraph_root, phrases, tmp_path, monkeypatch):
    shutil.copytree(radgraph_root, tmp_path / "weights")
    scorer = make_scorer("radgraph-xl", weights=str(tmp_path / "weights"))
    assert scorer.score([(phrases[0], phrases[0])]) == [1.0]
    shutil.rmtree(tmp_path / "weights")
    crash(scorer.annotate)
    with pytest.raises(FactServiceError, match=r"no radgraph-xl weights in .*weights\.th"):
        scorer.score([(phrases[1], phrases[2])])


def test_one_that_dies_again_and_again_is_an_error(radgraph_root, monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 2)

    class Dying(module.FactService):
        async def annotate(self, texts):
            os._exit(1)

    monkeypatch.setattr(module, "FactService", Dying)
    service = ServiceAnnotator(RadGraphOptions(weights=str(radgraph_root), store_gib=0.5))
    with pytest.raises(FactServiceError, match="died and did not come back in 2 attempts"):
        service(["effusion"])


@ray.remote(num_cpus=0, num_gpus=1)
class Trainer:
    """Holds the node's GPU."""

    def holds(self):
        return True


@pytest.fixture(scope="module")
def trainer():
    made = Trainer.remote()
    assert ray.get(made.holds.remote(), timeout=60)
    return made


@pytest.mark.parametrize("gpus", [8, 0.5], ids=["more than the node has", "more than is free"])
def test_a_service_that_finds_no_room_is_an_error(trainer, radgraph_root, monkeypatch, gpus):
    monkeypatch.setattr(module, "PLACE_S", 1.0)
    crowded = ServiceAnnotator(RadGraphOptions(weights=str(radgraph_root), gpus=gpus))
    with pytest.raises(FactServiceError, match=rf"no room on this node .* needs {gpus} GPU.*cxr\.facts\.gpus"):
        crowded(["effusion"])


def test_a_gpu_needs_a_share_of_one(radgraph_root):
    with pytest.raises(ValueError, match="needs a share of a GPU"):
        make_scorer("radgraph-xl", weights=str(radgraph_root), device="cuda", service=True)


def test_missing_weights_are_said_before_a_run_begins(tmp_path):
    with pytest.raises(FactServiceError, match="verl-cxr facts fetch"):
        make_scorer("radgraph-xl", weights=str(tmp_path))
