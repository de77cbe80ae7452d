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
"""The look-up ``openai``: a language model on any server that speaks OpenAI's chat protocol, such as vLLM.

What a model says has no citation, and its answer is stamped so. The server is not trusted to behave: one attempt has a
time-out, which a trickle of bytes does not extend, and a limit of bytes; attempts are few and further and further
apart; and what fails in the end is a :class:`~verl_cxr.lookup.answer.LookupServiceError`, never an answer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson

from verl_cxr.lookup.answer import LookupAnswer, LookupServiceError
from verl_cxr.lookup.kept import KeptAnswers
from verl_cxr.lookup.retry import Retrying, TransientError

__all__ = ["OpenAILookup"]

_ASKED = 120  # characters of a finding's name that are sent
_TOLD = 2000  # characters of an answer that are passed on
_BYTES = 1 << 20  # of a response
_INSTRUCTION = (
    "You are a reference work on chest radiography. Say in at most three sentences how the finding that the user names "
    "looks on a chest film and what imitates it. Say nothing about a particular patient. If the name is no finding of "
    "a chest film, answer with the one word UNKNOWN."
)


class OpenAILookup:
    """Asks a language model; each finding once, as long as its answer is kept. Threads may share one.

    Args:
        url: of the server, up to ``/v1``.
        model: as the server calls it.
        key_env: environment variable that holds the key; None sends none.
        timeout: seconds without a byte, and seconds after which further bytes are too late.
        retries: further attempts after a time-out, a broken connection, status 408, 429 or 5xx, or a reply that cannot
            be read. Another status is final.
        backoff: seconds before the first further attempt; doubles with each.
        max_wait: longest wait for a server that asks to be left alone for a while; one that asks for more has failed.
        concurrency: requests at one time.
        max_tokens: of an answer.
        cache: folder that keeps answers between runs.

    Raises:
        ValueError: an option outside its range, or no key in ``key_env``.
    """

    def __init__(
        self,
        *,
        url: str,
        model: str,
        key_env: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        backoff: float = 0.5,
        max_wait: float = 20.0,
        concurrency: int = 8,
        max_tokens: int = 300,
        cache: str | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url={url!r}: give the server's address, such as http://localhost:8000/v1")
        for option, value in {"timeout": timeout, "concurrency": concurrency, "max_tokens": max_tokens}.items():
            if not value > 0:
                raise ValueError(f"{option}={value!r}: use a positive number")
        self.name = f"openai/{model}"
        self._url, self._model, self._max_tokens, self._timeout = url.rstrip("/"), model, max_tokens, timeout
        self._retrying = Retrying(retries=retries, backoff=backoff, max_wait=max_wait)
        self._slots = threading.BoundedSemaphore(concurrency)
        stamp = {"url": self._url, "model": model, "max_tokens": max_tokens, "instruction": _INSTRUCTION}
        self._kept = KeptAnswers(None if cache is None else Path(cache), stamp=stamp)
        headers = {} if key_env is None else {"Authorization": f"Bearer {_key(key_env)}"}
        self._client = httpx.Client(headers=headers, timeout=timeout)

    def look_up(self, finding: str) -> LookupAnswer:
        """See :class:`~verl_cxr.lookup.answer.LookupBackend`."""
        asked = " ".join(finding.split())[:_ASKED].encode(errors="replace").decode()
        said = self._kept.get(asked.lower(), lambda: self._ask(asked))
        if said.strip(" .!").upper() == "UNKNOWN":
            return LookupAnswer(
                asked, f"Nothing is known about {asked!r}; that says nothing about the film.", known=False
            )
        return LookupAnswer(asked, f"{said} (Unverified: written by {self._model}, without a citation.)", known=True)

    def _ask(self, asked: str) -> str:
        try:
            return self._retrying.run(lambda: self._attempt(asked))
        except TransientError as error:
            raise LookupServiceError(f"{self._url}: {error}") from error

    def _attempt(self, asked: str) -> str:
        body = {
            "model": self._model,
            "messages": [{"role": "system", "content": _INSTRUCTION}, {"role": "user", "content": asked}],
            "max_tokens": self._max_tokens,
            "temperature": 0.0,
        }
        with self._slots:
            try:
                status, headers, reply = self._post(orjson.dumps(body))
            except httpx.TransportError as error:
                raise TransientError(f"{type(error).__name__}: {error}") from error
        if status == 200:
            return _content(reply)
        told = f"status {status}: {reply[:200].decode(errors='replace')}"
        if status in (408, 429) or status >= 500:
            raise TransientError(told, after=headers.get("retry-after"))
        raise LookupServiceError(f"{self._url}: {told}")

    def _post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Send and read, within the time and the bytes that one attempt may take."""
        deadline = time.monotonic() + self._timeout
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        url = f"{self._url}/chat/completions"
        reply = bytearray()
        with self._client.stream("POST", url, content=body, headers=headers) as response:
            for chunk in response.iter_raw():
                reply += chunk
                if len(reply) > _BYTES:
                    raise TransientError(f"the reply is longer than {_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TransientError(f"no whole reply within {self._timeout:g} s")
        return response.status_code, response.headers, bytes(reply)


def _content(reply: bytes) -> str:
    """The text of a completion; a reply of another form may be a passing fault."""
    try:
        record: Any = orjson.loads(reply)
    except orjson.JSONDecodeError as error:
        raise TransientError(f"the reply is not JSON: {error}") from None
    choices = record.get("choices") if isinstance(record, dict) else None
    if not isinstance(choices, list) or not choices:
        raise TransientError("the reply has no choices")
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, str):
        raise TransientError("the reply has no text in choices[0].message.content")
    content = " ".join(content.rpartition("</think>")[2].split())
    if not content or "<think>" in content:
        raise TransientError("the reply is empty, or ends inside its thoughts: raise max_tokens")
    return content[:_TOLD]


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ValueError(f"key_env={variable!r}: the environment variable is not set")
    return key
