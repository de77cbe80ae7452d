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
"""How removal of mentions of earlier examinations agrees with labelled sentences of Open-i.

`python tests/reports/prior_agreement.py` prints the numbers of docs/data.md, and every disagreement. The texts stay in
the shared data: a label names report, section and characters, and what the sentence should become, as its words by
number::

    {"report": "CXR9", "section": "findings", "start": 119, "end": 217, "expected": ["0 +is 7-14", "7-14"]}

The first file was labelled before the rules met its sentences and then used to mend them; the held-out one was labelled
and measured after that (docs/data.md has both first measurements). `keep` is a sentence without a mention, `drop` one
of which nothing is left; `+is` is a word put in. Any of several expected texts is right. Two texts are the same if
their words are, without articles, and "are" counts as "is".
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from verl_cxr.reports.prior import without_priors

LABELS = sorted(Path(__file__).parent.glob("prior_labels*.jsonl"))
SHARED = Path(__file__).parents[2] / "shared"
REPORTS = next((p for p in (SHARED, SHARED.parents[1] / "shared") if p.is_dir()), SHARED) / "data" / "reports"


@dataclass
class Agreement:
    """Sentences with a mention that were changed and were not, those without that were changed and were not."""

    hit: int = 0
    missed: int = 0
    false: int = 0
    kept: int = 0
    exact: int = 0
    disagreements: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        return self.hit / (self.hit + self.false)

    @property
    def recall(self) -> float:
        return self.hit / (self.hit + self.missed)


def agreement(labels: Path) -> Agreement:
    """Compare with the labels of one file."""
    with gzip.open(REPORTS / "openi_reports.jsonl.gz", "rt", encoding="utf-8") as file:
        reports = {row["uid"]: row for row in map(json.loads, file)}
    out = Agreement()
    for line in labels.read_text().splitlines():
        label = json.loads(line)
        text = " ".join(reports[label["report"]][label["section"]].split())
        sentence = text[label["start"] : label["end"]]
        result, mention = without_priors(sentence), label["expected"] != ["keep"]
        if result == sentence:
            out.missed += mention
            out.kept += not mention
            if mention:
                out.disagreements.append(f"missed: {sentence}")
            continue
        out.hit += mention
        out.false += not mention
        right = mention and _same(result) in [_same(_expected(sentence, code)) for code in label["expected"]]
        out.exact += right
        if not right:
            out.disagreements.append(f"{sentence}\n    became {result}")
    return out


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_]+", text.lower())


def _same(text: str) -> list[str]:
    return ["is" if word == "are" else word for word in _words(text) if word not in ("a", "an", "the")]


def _expected(sentence: str, code: str) -> str:
    words, out = _words(sentence), []
    for part in [] if code == "drop" else code.split():
        if part.startswith("+"):
            out.append(part[1:])
        else:
            first, _, last = part.partition("-")
            out += words[int(first) : int(last or first) + 1]
    return " ".join(out)


if __name__ == "__main__":
    for path in LABELS:
        found = agreement(path)
        print(f"{path.name}: precision {found.precision:.3f}, recall {found.recall:.3f},", end=" ")
        print(f"rewritten as labelled {found.exact} of {found.hit}, kept {found.kept} of {found.kept + found.false}")
        print("\n".join(found.disagreements))
