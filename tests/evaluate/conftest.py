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
"""Sentences with recorded scores, and real reports with made-up predictions."""

import gzip
import json
import random
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"
OPENI = next((p for p in (SHARED, SHARED.parents[1] / "shared") if p.is_dir()), SHARED) / "data/reports"


@pytest.fixture(scope="session")
def sentences() -> dict:
    """Invented pairs, with what RadEval and METEOR 1.5 say of the corpus and of each pair (record_sentences.py)."""
    found = json.loads(Path(__file__).with_name("sentences.json").read_text())
    return found | {"pairs": [tuple(pair) for pair in found["pairs"]]}


@pytest.fixture(scope="session")
def open_i() -> list[tuple[str, str]]:
    """(predicted, reference): real reports, predicted as themselves, as others, with words lost or in lower case."""
    path = OPENI / "openi_reports.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    reports = [" ".join(row[key] for key in ("findings", "impression") if row[key]) for row in rows]
    reports = [report for report in reports if report]
    return [(_disturbed(report, reports, random.Random(number)), report) for number, report in enumerate(reports)]


def _disturbed(report: str, others: list[str], chance: random.Random) -> str:
    text = report if chance.random() < 0.4 else chance.choice(others)
    if chance.random() < 0.5:
        text = " ".join(word for word in text.split() if chance.random() > 0.15)
    return text.lower() if chance.random() < 0.1 else text
