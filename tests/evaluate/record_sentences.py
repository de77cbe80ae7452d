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
"""Writes what RadEval and METEOR 1.5 say about invented sentences into sentences.json, which the tests compare with.

``python tests/evaluate/record_sentences.py`` after a change of the sentences; the first run installs RadEval.
"""

import json
from pathlib import Path

from pycocoevalcap.meteor.meteor import Meteor

from verl_cxr.evaluate.official import score

SENTENCES = Path(__file__).with_name("sentences.json")


def main() -> None:
    pairs = [tuple(pair) for pair in json.loads(SENTENCES.read_text())["pairs"]]
    # the corpus, then each pair as a corpus of its own
    radeval = score([pairs, *([pair] for pair in pairs)], ["bleu2", "bleu4", "rougeL"])
    ids = range(len(pairs))
    one_line = [[" ".join(text.split()) for text in pair] for pair in pairs]
    corpus, samples = Meteor().compute_score({i: [one_line[i][1]] for i in ids}, {i: [one_line[i][0]] for i in ids})
    numbers = {
        "radeval": {key: radeval.values[key] for key in ("bleu", "bleu_2", "rougeL")},
        "radeval_versions": radeval.versions,
        "meteor": [corpus, *samples],
    }
    SENTENCES.write_text(json.dumps({"pairs": pairs, **numbers}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
