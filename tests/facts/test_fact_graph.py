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
"""The JSON format of fact graphs: what is read, and what is refused with a reason."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from verl_cxr.facts import Entity, FactGraph, GraphError

RECORD = {
    "text": "Small left effusion .",
    "entities": {
        "1": {
            "tokens": "Small",
            "label": "Observation::definitely present",
            "start_ix": 0,
            "end_ix": 0,
            "relations": [["modify", "2"]],
        },
        "2": {
            "tokens": "effusion",
            "label": "Observation::definitely present",
            "start_ix": 2,
            "end_ix": 2,
            "relations": [],
        },
    },
    "data_source": None,
}


def test_reads_the_package_format_and_writes_it_back():
    graph = FactGraph.from_dict(RECORD)
    assert graph.entities[0] == Entity("1", "Small", "Observation::definitely present", 0, 0, (("modify", "2"),))
    assert graph.to_dict() == {key: RECORD[key] for key in ("text", "entities")}
    assert FactGraph.from_dict(graph.to_dict()) == graph
    assert hash(graph) == hash(FactGraph.from_dict(RECORD))


def changed(path: str, value: object) -> dict:
    """The record with the field at a dotted path replaced; the value ``...`` removes it."""
    record = copy.deepcopy(RECORD)
    *parents, last = path.split(".")
    inner = record
    for key in parents:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return record


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "row 7: a JSON object is needed, not list"),
        (changed("text", ...), "row 7: the field 'text' is missing"),
        (changed("text", 3), "row 7: 'text' must be of type str, not 3"),
        (changed("entities", []), "row 7: 'entities' must be of type Mapping"),
        (changed("entities.1", None), "row 7, entity '1': a JSON object is needed, not NoneType"),
        (changed("entities.1.tokens", ...), "row 7, entity '1': the field 'tokens' is missing"),
        (changed("entities.1.tokens", ""), "row 7, entity '1': 'tokens' and 'label' must not be empty"),
        (changed("entities.1.start_ix", True), "row 7, entity '1': 'start_ix' must be of type int, not True"),
        (changed("entities.1.start_ix", 1), "row 7, entity '1': 0 <= start_ix <= end_ix does not hold for 1 and 0"),
        (changed("entities.1.relations", None), "row 7, entity '1': 'relations' must be of type list"),
        (changed("entities.1.relations", ["ab"]), r"row 7, entity '1': a relation is \[type, target id\]"),
        (changed("entities.1.relations", [["modify", 2]]), r"row 7, entity '1': a relation is \[type, target id\]"),
        (changed("entities.1.relations", [["modify", "9"]]), "row 7, entity '1': a relation points at '9'"),
    ],
)
def test_an_error_names_the_place_and_the_field(record, message):
    with pytest.raises(GraphError, match=f"^{message}"):
        FactGraph.from_dict(record, where="row 7")


def test_reads_the_documentation_example_of_radgraph_xl():
    path = Path(__file__).parents[3] / "shared" / "data" / "radgraph" / "readme_example.json"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    graph = FactGraph.from_dict(json.loads(path.read_text())["0"])
    assert [e.tokens for e in graph.entities] == ["pneumothorax", "chest", "tube"]
    words = graph.text.split()
    assert all(" ".join(words[e.start_ix : e.end_ix + 1]) == e.tokens for e in graph.entities)
