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
"""OpenCXR's image sorter (PA, AP, lateral, no chest film; rotation; inversion; mirroring) behind a process boundary.

OpenCXR needs TensorFlow 2.11 and NumPy 1.21, so it lives in an environment of its own, and `opencxr_worker.py` speaks
for it. Telling PA from AP is its weak part: the gate's abstention band is made for that. Its mirroring was trained on
lateral films; on a frontal film it can only refuse.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from PIL import Image

from verl_cxr.film import Film
from verl_cxr.measure.view.reading import VIEWS, ViewError, ViewReading

__all__ = ["OpencxrView"]

_WORKER = Path(__file__).with_name("opencxr_worker.py")
_STRAY = 1000  # lines of other text that a process may print before it answers
_TAIL = 20  # lines of its errors that a message quotes
_LONGEST = 1 << 16  # characters of an answer


class OpencxrView:
    """The answers of a process that is started with the first film, and again if it dies.

    Args:
        python: interpreter of OpenCXR's environment, which runs the worker of this package.
        command: a command of one's own instead, which speaks the worker's protocol.
        start_s: seconds that it may take to be ready; it loads a network of 150 MB.
        film_s: seconds that it may take for a film.
        restarts: how often a process that died is started again, in all.

    Raises:
        ValueError: neither or both of `python` and `command`, or an impossible number.
    """

    name = "opencxr"

    def __init__(
        self,
        *,
        python: str | None = None,
        command: Sequence[str] | None = None,
        start_s: float = 300.0,
        film_s: float = 60.0,
        restarts: int = 2,
    ) -> None:
        if (python is None) == (command is None):
            raise ValueError("view=opencxr needs python=INTERPRETER of OpenCXR's environment, or command=[...]")
        if start_s <= 0 or film_s <= 0 or restarts < 0:
            raise ValueError("view=opencxr: start_s and film_s must be above 0, restarts 0 or more")
        self.command = [python, str(_WORKER)] if python is not None else list(command or ())
        self._start_s, self._film_s, self._restarts = start_s, film_s, restarts
        self._process: _Process | None = None
        self._count = 0
        self._lock = threading.Lock()

    def read(self, film: Film) -> ViewReading:
        """See `verl_cxr.measure.view.ViewBackend`."""
        with self._lock, tempfile.TemporaryDirectory(prefix="verl-cxr-view-") as folder:
            path = Path(folder) / "film.png"
            Image.fromarray(film.pixels).save(path, compress_level=1)
            while True:
                try:
                    return _reading(self._ask(str(path)))
                except _DiedError as error:
                    self.close()
                    if self._restarts == 0:
                        raise ViewError(f"view=opencxr: {error}") from None
                    self._restarts -= 1

    def close(self) -> None:
        """End the process; the next film starts another."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _ask(self, image: str) -> Any:
        if self._process is None:
            self._process = _Process(self.command)
            self._process.wait_for(lambda message: message.get("ready") is True, self._start_s, "to be ready")
        self._count += 1
        asked = self._count
        self._process.send({"id": asked, "image": image})
        message = self._process.wait_for(lambda message: message.get("id") == asked, self._film_s, "for a film")
        if "error" in message:
            raise ViewError(f"view=opencxr: the process could not sort a film: {message['error']}")
        return message.get("answer")


class _DiedError(Exception):
    """The process ended, or had to be ended."""


class _Process:
    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise ViewError(f"view=opencxr: cannot start {command[0]}: {error}") from None
        self._lines: queue.Queue[str | None] = queue.Queue(maxsize=_STRAY)
        self._errors: deque[str] = deque(maxlen=_TAIL)
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        for target, stream in ((_read_lines, self._popen.stdout), (_read_errors, self._popen.stderr)):
            held = self._lines if target is _read_lines else self._errors
            threading.Thread(target=target, args=(stream, held), daemon=True).start()
        self.end = weakref.finalize(self, _end, self._popen)  # also when the interpreter exits

    def send(self, message: dict[str, Any]) -> None:
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps(message) + "\n")
            self._popen.stdin.flush()
        except (OSError, ValueError):
            raise _DiedError(self._obituary()) from None

    def wait_for(self, wanted: Any, seconds: float, purpose: str) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        for _ in range(_STRAY):
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise _DiedError(f"the process took more than {seconds:g} s {purpose}") from None
            if line is None:
                raise _DiedError(self._obituary())
            try:
                message = json.loads(line)
            except ValueError:
                continue  # what a library printed
            if isinstance(message, dict) and wanted(message):
                return message
        raise _DiedError(f"the process printed {_STRAY} lines and no answer")

    def _obituary(self) -> str:
        try:
            code: int | None = self._popen.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        said = " | ".join(line.strip() for line in self._errors if line.strip())
        return f"the process ended with code {code}" + (f": {said[-500:]}" if said else "")


def _read_lines(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    while line := stream.readline(_LONGEST):
        lines.put(line)
    lines.put(None)


def _read_errors(stream: IO[str], errors: deque[str]) -> None:
    for line in stream:
        errors.append(line[:500])


def _end(popen: subprocess.Popen[str]) -> None:
    popen.kill()
    popen.wait()
    for stream in (popen.stdin, popen.stdout, popen.stderr):
        if stream is not None:
            with suppress(OSError):  # what was still to be sent to a process that died
                stream.close()


def _reading(answer: Any) -> ViewReading:
    try:
        rotation = answer["Rotation_Probs_0_90_180_270"]
        return ViewReading.from_dict(
            {
                "probabilities": dict(zip(VIEWS, answer["Type_Probs_PA_AP_lateral_notCXR"], strict=True)),
                "rotated": 1 - rotation[0],
                "inverted": answer["Inversion_Probs_No_Yes"][1],
                "flipped": answer["Lateral_Flip_Probs_No_Yes"][1],
            }
        )
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ViewError(f"view=opencxr: the process gave no answer of OpenCXR's form: {error!r}") from None
