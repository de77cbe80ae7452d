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
"""RadEval's own numbers, computed by RadEval in an environment of its own: what papers report, beside ours.

RadEval 2.2.1 does not live with a trainer: unpinned it pulls a CUDA build of torch, and torchvision and spaCy, which no
metric here needs, break imports. So it is installed without its requirements, those of the five metrics beside it, and
`verl_cxr.evaluate.radeval_program` runs there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_cxr.evaluate import radeval_program
from verl_cxr.evaluate.metrics.scores import Pair

__all__ = ["KEYS", "METRICS", "RADEVAL", "OfficialError", "OfficialScores", "default_folder", "ensure", "find", "score"]

RADEVAL = "2.2.1"
METRICS: Mapping[str, str] = {
    "bleu2": "bleu",
    "bleu4": "bleu",
    "rougeL": "rouge",
    "bertscore": "bertscore",
    "facts": "radgraph",
    "chexbert": "f1chexbert",
}
"""RadEval's metric for one of ours; it has no METEOR."""
KEYS: Mapping[str, str] = {
    "bleu2": "bleu_2",
    "bleu4": "bleu",
    "rougeL": "rougeL",
    "bertscore": "bertscore",
    "facts_simple": "radgraph_simple",
    "facts_partial": "radgraph_partial",
    "facts_complete": "radgraph_complete",
}
"""RadEval's number that answers to one of ours (to the fact scores only where RadGraph made them)."""

_WITH_WEIGHTS = frozenset({"bertscore", "radgraph", "f1chexbert"})
_PYTHON = (3, 11)  # RadEval's least
_TORCH = "torch==2.13.0"
_REQUIREMENTS = (
    *("appdirs", "dotmap", "filelock", "h5py", "huggingface_hub>=1.0", "jsonpickle", "nltk", "numpy<3", "pandas"),
    *("pyyaml", "requests", "rich", "rouge_score", "scikit-learn>=1.8.0", "sentencepiece", "six", "transformers>=5,<6"),
)
_STAMP = "complete.json"


class OfficialError(RuntimeError):
    """RadEval could not be installed or run; the message says why."""


@dataclass(frozen=True, slots=True)
class OfficialScores:
    """RadEval's numbers, rounded by it to 4 decimals.

    Attributes:
        values: for each of its numbers, one value a file.
        skipped: its metrics that failed, with the cause.
        versions: of what ran.
    """

    values: dict[str, list[float]]
    skipped: dict[str, str]
    versions: dict[str, str]


def default_folder() -> Path:
    """The environment's folder below the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "verl-cxr" / f"radeval-{RADEVAL}"


def find(folder: Path | None = None) -> Path | None:
    """The Python of a complete environment, or None."""
    folder = folder or default_folder()
    try:
        complete = json.loads((folder / _STAMP).read_text(encoding="utf-8")) == _recipe()
    except (OSError, ValueError):
        return None
    return _python(folder) if complete and _python(folder).exists() else None


def ensure(folder: Path | None = None) -> Path:
    """The Python of the environment; if it is not there, pip makes it first (minutes, more than 1 GB).

    Raises:
        OfficialError: this Python is too old for RadEval, or pip failed.
    """
    from filelock import FileLock

    folder = folder or default_folder()
    if sys.version_info < _PYTHON:
        raise OfficialError(f"RadEval {RADEVAL} needs Python {_PYTHON[0]}.{_PYTHON[1]} or later")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if python := find(folder):
            return python
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(_python(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, _TORCH, *_REQUIREMENTS])
        _run([*pip, "--no-deps", f"radeval=={RADEVAL}"])
        (folder / _STAMP).write_text(json.dumps(_recipe()), encoding="utf-8")
    return _python(folder)


def score(files: Sequence[Sequence[Pair]], metrics: Sequence[str], *, folder: Path | None = None) -> OfficialScores:
    """What RadEval says about the pairs of each file.

    Args:
        files: (predicted, reference) pairs.
        metrics: ours, see `METRICS`; those that RadEval does not have are passed over.

    Raises:
        OfficialError: see `ensure`; or RadEval as a whole failed. A single metric that fails is `skipped`.
    """
    names = list(dict.fromkeys(METRICS[name] for name in metrics if name in METRICS))
    python = ensure(folder)
    with tempfile.TemporaryDirectory(prefix="verl-cxr-radeval-") as work:
        rows, out = Path(work, "pairs.jsonl"), Path(work, "scores.json")
        with rows.open("w", encoding="utf-8") as file:
            for number, pairs in enumerate(files):
                for predicted, reference in pairs:
                    row = {"file": number, "prediction": predicted, "reference": reference}
                    file.write(json.dumps(row) + "\n")
        # offline, each file that the hub is asked for costs half a minute of retries
        offline = {"HF_HUB_OFFLINE": "1"} if _WITH_WEIGHTS.intersection(names) and not _hub_answers() else {}
        _run([str(python), radeval_program.__file__, str(rows), str(out), *names], cwd=work, extra=offline)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return OfficialScores(**found)


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _recipe() -> list[str]:
    return [f"radeval=={RADEVAL}", _TORCH, *_REQUIREMENTS]


def _hub_answers() -> bool:
    from huggingface_hub.constants import ENDPOINT

    try:
        with urllib.request.urlopen(ENDPOINT, timeout=10):
            return True
    except urllib.error.HTTPError:  # an answer all the same
        return True
    except OSError:
        return False


def _run(command: Sequence[str], *, cwd: str | None = None, extra: Mapping[str, str] | None = None) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | dict(
        extra or {}
    )
    done = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        problem = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise OfficialError(f"`{' '.join(command[:4])} ...` failed ({done.returncode}): {problem}")
