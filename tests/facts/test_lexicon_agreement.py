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
"""The agreement of the lexicon annotator with public labels stays where docs/facts.md says it is (held-out half)."""

from __future__ import annotations

import measure_lexicon
import pytest

from verl_cxr.facts.lexicon import read_facts

FLOOR = {"definitely present": 0.90, "definitely absent": 0.93, "uncertain": 0.33}


def test_agrees_with_radlabels():
    folder = measure_lexicon.default_folder()
    if folder is None:
        pytest.skip("radlabels is not installed (pip install --no-deps radlabels==0.2.0)")
    reports = measure_lexicon.load(folder, "odd")
    assert len(reports) == 500
    pairs = [(measure_lexicon.findings(read_facts(text)), labels) for _, text, labels in reports]
    f1 = {status: row[2] for status, row in measure_lexicon.agreement(pairs).items()}
    assert all(f1[status] >= floor for status, floor in FLOOR.items()), f1


def test_the_rule_of_the_labels():
    graph = read_facts("Right basal opacity may reflect pneumonia. Possible effusion. No effusion or pneumothorax.")
    assert measure_lexicon.findings(graph) == {
        "lung_opacity": "definitely present",
        "pneumonia": "definitely present",  # through the opacity that suggests it
        "air_space_opacity": "definitely present",
        "pleural_effusion": "uncertain",  # stronger than absent
        "pneumothorax": "definitely absent",
    }


def test_agreement_by_hand():
    ours = {"a": "definitely present", "b": "definitely present", "c": "definitely absent"}
    theirs = {"a": "definitely present", "b": "uncertain", "d": "definitely present"}
    assert measure_lexicon.agreement([(ours, theirs)]) == {
        "definitely present": (0.5, 0.5, 0.5, 2),
        "definitely absent": (0.0, 0.0, 0.0, 0),
        "uncertain": (0.0, 0.0, 0.0, 1),
    }
