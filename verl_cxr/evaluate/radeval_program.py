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
"""Runs inside RadEval's environment: ``python radeval_program.py PAIRS.jsonl OUT.json METRIC...``.

Rows ``{"file": 0, "prediction": ..., "reference": ...}`` in; ``{"values", "skipped", "versions"}`` out, see
`verl_cxr.evaluate.official.OfficialScores`. It imports nothing of verl-cxr, which is not installed there.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["main"]


def main(rows: str, out: str, names: list[str]) -> None:
    """Compute each metric for each file; a metric that fails is reported with its cause."""
    files = _read(Path(rows))
    radeval = _import_radeval()
    values: dict[str, list[float]] = {}
    skipped: dict[str, str] = {}
    for name in names:
        try:
            metric = radeval.RadEval(metrics=[name], detailed=True, show_progress=False)
            found = [metric(refs=refs, hyps=hyps) for hyps, refs in files]
        except Exception as error:  # whatever it is, the other metrics are to be computed
            skipped[name] = f"{type(error).__name__}: {error}"[:500]
            continue
        for key, value in found[0].items():
            if isinstance(value, (int, float)):
                values[key] = [float(scores[key]) for scores in found]
    versions = {name: version(name) for name in ("radeval", "torch", "transformers", "rouge_score", "numpy")}
    result = {"values": values, "skipped": skipped, "versions": {"python": sys.version.split()[0], **versions}}
    Path(out).write_text(json.dumps(result), encoding="utf-8")


def _read(path: Path) -> list[tuple[list[str], list[str]]]:
    files: dict[int, tuple[list[str], list[str]]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            hyps, refs = files.setdefault(row["file"], ([], []))
            hyps.append(row["prediction"])
            refs.append(row["reference"])
    return [files[number] for number in sorted(files)]


def _import_radeval() -> Any:
    """RadEval 2.2.1, with what it needs to work on a machine without a GPU or a case-blind disk."""
    import nltk

    nltk.download = lambda *_, **__: False  # it downloads at import what no metric here uses
    import radeval

    # its RadGraph imports itself as `RadEval`, which is another package where file names have a case
    sys.modules["RadEval"] = radeval
    try:
        import torch
        from radeval.metrics.f1chexbert.f1chexbert import F1CheXbert

        if not torch.cuda.is_available():
            F1CheXbert.__init__.__kwdefaults__["device"] = "cpu"  # its default is "cuda"
    except ImportError:  # then the metric fails by itself, and says why
        pass
    return radeval


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
