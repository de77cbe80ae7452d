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
"""Fact graphs from a file: its layouts, and that a text it lacks is an error and not a zero."""

from __future__ import annotations

import gzip
import json

import pytest

from verl_cxr.facts import FactServiceError, GraphError, make_scorer
from verl_cxr.facts.precomputed import PrecomputedGraphs

PRESENT, ABSENT = "Observation::definitely present", "Observation::definitely absent"


def record(text: str, *entities: tuple[str, str]) -> dict:
    return {
        "text": text,
        "entities": {
            str(i): {"tokens": tokens, "label": label, "start_ix": i, "end_ix": i, "relations": []}
            for i, (tokens, label) in enumerate(entities)
        },
    }


ROWS = [
    record("Effusion and edema.", ("effusion", PRESENT), ("edema", PRESENT)),
    record("No effusion .", ("effusion", ABSENT)),
    record("Film rotated."),
]


def rows(tmp_path, *values: object, name: str = "graphs.jsonl") -> str:
    path = tmp_path / name
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return str(path)


def test_scores_rows(tmp_path):
    scorer = make_scorer(f"precomputed:{rows(tmp_path, *ROWS)}", level="simple")
    pairs = [
        ("Effusion and edema.", "Effusion and edema."),
        ("No effusion.", "Effusion and edema."),
        ("Film rotated.", "No effusion."),
        ("Film rotated.", ""),
    ]
    assert scorer.score(pairs) == [1.0, 0.0, 0.0, None]
    assert scorer.name == "precomputed/simple"


def test_reads_the_packages_own_output(tmp_path):
    whole = tmp_path / "package.json"
    whole.write_text(json.dumps({str(i): row for i, row in enumerate(ROWS)}, indent=1))
    by_row = rows(tmp_path, {"0": ROWS[0]}, {"0": ROWS[1], "1": ROWS[2]})
    packed = tmp_path / "graphs.jsonl.gz"
    packed.write_bytes(gzip.compress("\n\n".join(map(json.dumps, ROWS)).encode()))
    texts = ["Effusion and edema.", "No effusion .", "Film rotated."]
    expected = PrecomputedGraphs(rows(tmp_path, *ROWS, name="rows.jsonl"))(texts)
    assert [len(graph.entities) for graph in expected] == [2, 1, 0]
    for path in (whole, by_row, packed):
        assert PrecomputedGraphs(path)(texts) == expected


def test_white_space_is_not_part_of_a_text(tmp_path):
    graphs = PrecomputedGraphs(rows(tmp_path, record("Opacity ( 3 cm ) .", ("opacity", PRESENT))))
    assert len(graphs(["Opacity (3 cm)."])[0].entities) == 1


def test_a_missing_text_is_an_error_that_names_it(tmp_path):
    scorer = make_scorer(f"precomputed:{rows(tmp_path, *ROWS)}")
    with pytest.raises(FactServiceError, match=r"graphs\.jsonl holds no fact graph for the text 'Nodule\.'"):
        scorer.score([("Nodule.", "No effusion.")])


@pytest.mark.parametrize(
    ("lines", "error", "message"),
    [
        ([ROWS[0], {"text": "x"}], GraphError, r"row 2: the field 'entities' is missing"),
        ([ROWS[0], {"0": ROWS[1], "1": 5}], GraphError, r"row 2, graph '1': a JSON object is needed"),
        (
            [ROWS[0], record("Effusion  and edema.")],
            GraphError,
            r"row 2: the text .* has other entities in an earlier row",
        ),
        ([ROWS[0], "text"], GraphError, r"row 2: a JSON object is needed"),
    ],
)
def test_a_bad_row_is_named(tmp_path, lines, error, message):
    with pytest.raises(error, match=message):
        PrecomputedGraphs(rows(tmp_path, *lines))


def test_a_row_that_is_no_json_is_named(tmp_path):
    path = tmp_path / "graphs.jsonl"
    path.write_text(json.dumps(ROWS[0]) + "\n{oops\n")
    with pytest.raises(GraphError, match=r"graphs\.jsonl, row 2: not JSON"):
        PrecomputedGraphs(path)


def test_a_file_that_cannot_be_read_is_a_failed_service(tmp_path):
    with pytest.raises(FactServiceError, match=r"nowhere\.jsonl cannot be read"):
        make_scorer(f"precomputed:{tmp_path}/nowhere.jsonl")
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(b"{}")[:8])
    with pytest.raises(FactServiceError, match=r"broken\.jsonl\.gz cannot be read"):
        PrecomputedGraphs(broken)
