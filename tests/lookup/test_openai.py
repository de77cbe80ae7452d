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
"""The look-up by a language model, against a real server on this machine that misbehaves."""

import email.utils
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from verl_cxr.lookup import LookupServiceError
from verl_cxr.lookup.openai import OpenAILookup
from verl_cxr.lookup.retry import seconds_to_wait

GOOD = "A pleural line without vessels beyond it."
Behaviour = Callable[[BaseHTTPRequestHandler], None]


def completion(text: Any = GOOD) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


def reply(body: bytes, status: int = 200, **headers: str) -> Behaviour:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


GOOD_REPLY = reply(completion())


class Server:
    """Answers request after request as its plan says, the last way for ever; keeps what it was asked."""

    def __init__(self) -> None:
        self.plan: list[Behaviour] = [GOOD_REPLY]
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.over = threading.Event()
        self.busy = self.busiest = 0
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with server._lock:
                    place = len(server.asked)
                    server.asked.append(json.loads(body) | {"path": self.path})
                    server.headers.append(dict(self.headers))
                    server.times.append(time.monotonic())
                    server.busy += 1
                    server.busiest = max(server.busiest, server.busy)
                try:
                    server.plan[min(place, len(server.plan) - 1)](self)
                except OSError:
                    pass  # the client hung up
                finally:
                    with server._lock:
                        server.busy -= 1

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    server = Server()
    yield server
    server.close()


def lookup(server: Server, **options: Any) -> OpenAILookup:
    fast: dict[str, Any] = {"timeout": 0.3, "retries": 2, "backoff": 0.01, "max_wait": 0.5}
    return OpenAILookup(**{"url": server.url, "model": "stand-in"} | fast | options)


# ---- the eight ways, and a few more


def stall(server: Server) -> Behaviour:
    def answer(_: BaseHTTPRequestHandler) -> None:
        server.over.wait(10)

    return answer


def trickle(server: Server) -> Behaviour:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not server.over.wait(0.02):
            handler.wfile.write(b" ")

    return answer


def hang_up(_: Server) -> Behaviour:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    return answer


def half(_: Server) -> Behaviour:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(completion()[:20])
        handler.close_connection = True

    return answer


def enormous(server: Server) -> Behaviour:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 40))
        handler.end_headers()
        while not server.over.is_set():
            handler.wfile.write(b"x" * (1 << 20))

    return answer


def always(behaviour: Behaviour) -> Callable[[Server], Behaviour]:
    return lambda _: behaviour


MISBEHAVIOURS: dict[str, tuple[Callable[[Server], Behaviour], str]] = {
    "stall": (stall, "ReadTimeout"),
    "429": (always(reply(b"slow down", 429, Retry_After="0")), "status 429: slow down"),
    "500": (always(reply(b"oops", 500)), "status 500: oops"),
    "closed connection": (hang_up, "RemoteProtocolError|ReadError"),
    "malformed JSON": (always(reply(b'{"choices": [')), "not JSON"),
    "wrong schema": (always(reply(b'{"choices": [{"text": "x"}]}')), r"no text in choices\[0\]"),
    "empty choices": (always(reply(b'{"choices": []}')), "no choices"),
    "enormous body": (enormous, "longer than 1048576 bytes"),
    "trickle": (trickle, "no whole reply within 0.3 s"),
    "half a reply": (half, "RemoteProtocolError|ReadError"),
    "no object": (always(reply(b"[]")), "no choices"),
    "text is null": (always(reply(completion(None))), "no text"),
    "text is empty": (always(reply(completion(" "))), "is empty"),
    "only thoughts": (always(reply(completion("<think>Well,"))), "ends inside its thoughts"),
    "503": (always(reply(b"", 503)), "status 503"),
}


@pytest.mark.parametrize("way", MISBEHAVIOURS)
def test_a_server_that_misbehaves_for_good_is_an_error_in_bounded_time(server: Server, way: str) -> None:
    behaviour, problem = MISBEHAVIOURS[way]
    server.plan = [behaviour(server)]
    begun = time.monotonic()
    with pytest.raises(LookupServiceError, match=problem) as error:
        lookup(server).look_up("pneumothorax")
    assert time.monotonic() - begun < 3 * 2 * 0.3 + 2
    assert len(server.asked) == 3
    assert server.url in str(error.value)


@pytest.mark.parametrize("way", MISBEHAVIOURS)
def test_a_server_that_misbehaves_once_is_asked_again(server: Server, way: str) -> None:
    server.plan = [MISBEHAVIOURS[way][0](server), GOOD_REPLY]
    assert lookup(server).look_up("pneumothorax").text.startswith(GOOD)
    assert len(server.asked) == 2


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422])
def test_another_status_is_final(server: Server, status: int) -> None:
    server.plan = [reply(b"no such model", status)]
    with pytest.raises(LookupServiceError, match=f"status {status}: no such model"):
        lookup(server).look_up("pneumothorax")
    assert len(server.asked) == 1


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(LookupServiceError, match="ConnectError"):
        OpenAILookup(url=f"http://127.0.0.1:{port}/v1", model="m", retries=1, backoff=0.01).look_up("x")


def test_retry_after_is_heeded_up_to_a_limit(server: Server) -> None:
    soon = email.utils.formatdate(time.time() + 2, usegmt=True)  # whole seconds: 1 to 2 s from now
    server.plan = [reply(b"", 429, Retry_After="1"), reply(b"", 429, Retry_After=soon), GOOD_REPLY]
    lookup(server, max_wait=3.0).look_up("pneumothorax")
    first, second, third = server.times
    assert second - first >= 1
    assert third - second >= 0  # a date that the second wait has brought near
    server.plan = [reply(b"", 429, Retry_After="3600")]
    begun = time.monotonic()
    with pytest.raises(LookupServiceError, match="status 429"):
        lookup(server).look_up("cardiomegaly")
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("7", 7.0), (" 7 ", 7.0), ("-7", None), ("soon", None), ("9" * 400, 999999999.0),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 21 Oct 2015 07:28:00 -0000", 0.0), ("", None), ("\u0667", None)],
)  # fmt: skip
def test_what_a_header_asks_for(header: str | None, seconds: float | None) -> None:
    assert seconds_to_wait(header) == seconds


def test_waits_double(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("verl_cxr.lookup.retry.time.sleep", waits.append)
    server.plan = [reply(b"", 500)]
    with pytest.raises(LookupServiceError):
        lookup(server, retries=4, backoff=0.1).look_up("x")
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.5])


# ---- what is asked and answered


def test_the_request_and_the_stamped_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOKUP_KEY", " secret ")
    found = lookup(server, key_env="LOOKUP_KEY", max_tokens=77)
    answer = found.look_up("  tension\n pneumothorax ")
    assert answer.known
    assert answer.text == f"{GOOD} (Unverified: written by stand-in, without a citation.)"
    (asked,) = server.asked
    assert asked["path"] == "/v1/chat/completions"
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("stand-in", 77, 0.0)
    assert asked["messages"][1] == {"role": "user", "content": "tension pneumothorax"}
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert "secret" not in repr(vars(found)["_kept"].__dict__)


def test_no_key_no_header(server: Server) -> None:
    lookup(server).look_up("x")
    assert "Authorization" not in server.headers[0]


def test_thoughts_are_no_answer(server: Server) -> None:
    server.plan = [reply(completion("<think>Hm.</think>\n\nA line.\n"))]
    assert lookup(server).look_up("x").text.startswith("A line. (Unverified")


def test_a_finding_that_the_model_does_not_know(server: Server) -> None:
    server.plan = [reply(completion("UNKNOWN."))]
    answer = lookup(server).look_up("unicorn")
    assert not answer.known
    assert answer.text == "Nothing is known about 'unicorn'; that says nothing about the film."


@pytest.mark.parametrize("finding", ["x" * 10**6, "\ud800", "\x00", ""])
def test_a_hostile_name_is_sent_short_and_whole(server: Server, finding: str) -> None:
    lookup(server).look_up(finding)
    assert len(server.asked[0]["messages"][1]["content"]) <= 120


def test_a_long_answer_is_cut(server: Server) -> None:
    server.plan = [reply(completion("x" * 10_000))]
    assert len(lookup(server).look_up("x").text) < 2200


# ---- what is kept


def test_a_finding_is_asked_for_once(server: Server) -> None:
    found = lookup(server)
    assert {found.look_up(name).text for name in ("Mass", "mass", " MASS ")} == {found.look_up("mass").text}
    assert len(server.asked) == 1


def test_threads_share_one_request(server: Server) -> None:
    found = lookup(server, timeout=5.0)
    with ThreadPoolExecutor(8) as pool:
        assert len({answer.text for answer in pool.map(found.look_up, ["mass"] * 16)}) == 1
    assert len(server.asked) == 1


def test_no_more_requests_at_one_time_than_allowed(server: Server) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.05)
        GOOD_REPLY(handler)

    server.plan = [slow]
    found = lookup(server, timeout=5.0, concurrency=2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(found.look_up, [f"finding {number}" for number in range(8)]))
    assert len(server.asked) == 8
    assert server.busiest == 2


def test_answers_are_kept_between_runs_by_all_that_they_depend_on(server: Server, tmp_path: Path) -> None:
    cache = str(tmp_path / "kept")
    for options in ({}, {}, {"model": "other"}, {"model": "other"}, {"max_tokens": 7}):
        lookup(server, **{"cache": cache} | options).look_up("mass")
    assert [asked["model"] for asked in server.asked] == ["stand-in", "other", "stand-in"]


def test_a_damaged_answer_is_asked_for_again(server: Server, tmp_path: Path) -> None:
    lookup(server, cache=str(tmp_path)).look_up("mass")
    (kept,) = tmp_path.iterdir()
    for damage in (b"", b"{", b"[]", b'{"name": "mass", "text": 7}', b'{"name": "other", "text": "x"}'):
        kept.write_bytes(damage)
        assert lookup(server, cache=str(tmp_path)).look_up("mass").text.startswith(GOOD)
    assert len(server.asked) == 6


def test_an_error_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.plan = [reply(b"", 404), GOOD_REPLY]
    found = lookup(server, cache=str(tmp_path))
    with pytest.raises(LookupServiceError):
        found.look_up("mass")
    assert list(tmp_path.iterdir()) == []
    assert found.look_up("mass").known


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "localhost:8000"}, "give the server's address"),
        ({"timeout": 0}, "timeout=0: use a positive number"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"retries": -1}, "retries=-1: use a number from 0 up"),
        ({"backoff": float("inf")}, "backoff=inf"),
        ({"key_env": "NO_SUCH_VARIABLE"}, "key_env='NO_SUCH_VARIABLE': the environment variable is not set"),
    ],
)
def test_wrong_options(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        OpenAILookup(**{"url": "http://localhost:8000/v1", "model": "m"} | options)
