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
"""The records of evidence cross disks and processes unchanged, and refuse what they cannot be."""

from __future__ import annotations

import copy

import orjson
import pytest
from chests import chest, film, outlines

from verl_cxr.files import RecordError
from verl_cxr.measure import (
    UNITS,
    Evidence,
    GateDecision,
    GateReason,
    Measurement,
    Thresholds,
    ViewReading,
    certain,
    judge,
    load_thresholds,
)


def evidence():
    return judge(film(400, 400), outlines(chest(axis=None)), certain("PA"), view_backend="metadata")


def test_evidence_survives_json():
    before = evidence()
    assert before.unavailable == {"shift": (GateReason.MASK_MISSING,)}
    assert Evidence.from_dict(orjson.loads(orjson.dumps(before.to_dict()))) == before


def changed(path, value):
    record = copy.deepcopy(evidence().to_dict())
    place = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return record


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (["decision"], None, "decision"),
        (["decision", "open"], 1, "decision.open"),
        (["decision", "reasons"], ["bad_luck"], "decision.reasons"),
        (["decision", "reasons"], "not_pa", "decision.reasons"),
        (["decision", "view"], 3, "decision.view"),
        (["decision", "withheld"], {"ejection": []}, "decision.withheld"),
        (["decision", "details"], [], "decision.details"),
        (["exposed", 0, "name"], "ejection", "exposed[0].name"),
        (["exposed", 0, "value"], float("nan"), "exposed[0].value"),
        (["exposed", 0, "value"], "0.5", "exposed[0].value"),
        (["exposed", 0, "unit"], None, "exposed[0].unit"),
        (["exposed", 0, "structures"], "heart", "exposed[0].structures"),
        (["exposed", 0, "approximate"], 0, "exposed[0].approximate"),
        (["exposed", 0, "lines"], [{"label": "heart", "unit_xyxy": [0, 1]}], "exposed[0].lines[0].unit_xyxy"),
        (["exposed", 0], [], "exposed[0]"),
        (["exposed"], {}, "exposed"),
        (["withheld"], evidence().to_dict()["exposed"], "exposed"),  # one measurement twice
        (["decision", "open"], False, "exposed"),  # exposed behind a closed gate
        (["backends"], ["cxas"], "backends"),
    ],
)
def test_a_record_that_is_no_evidence_names_the_field(path, value, field):
    record = changed(path, value)
    with pytest.raises(RecordError) as error:
        Evidence.from_dict(record)
    assert error.value.field == field


def test_a_number_is_said_to_two_places_and_signed_where_the_sign_means_something():
    made = [Measurement(name, 0.046, UNITS[name], ("right lung",)) for name in ("ctr", "lfa", "shift")]
    assert [text.split(" (")[0] for text in (m.text() for m in made)] == [
        "cardiothoracic ratio 0.05",
        "lung-field asymmetry +0.05",
        "thoracic shift +0.05",
    ]
    assert "+0.00" in Measurement("lfa", -0.001, "", ()).text()  # no negative zero


def test_reasons_of_the_film_hold_for_every_measurement():
    decision = GateDecision(False, (GateReason.NOT_PA,), withheld={"ctr": (GateReason.MASK_MISSING, GateReason.NOT_PA)})
    assert decision.reasons_for("ctr") == (GateReason.NOT_PA, GateReason.MASK_MISSING)
    assert decision.reasons_for("lfa") == (GateReason.NOT_PA,)
    assert not decision.allows("lfa")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pa_accept": 0.2, "pa_reject": 0.3}, "pa_reject"),
        ({"pa_accept": 1.2}, "pa_reject"),
        ({"scope": "patient"}, "scope"),
        ({"fragment": -0.1}, "fragment"),
        ({"fragment": None}, "fragment"),
        ({"fragment": True}, "fragment"),
        ({"ctr": [0.9, 0.2]}, "ctr"),
        ({"ctr": 0.5}, "ctr"),
        ({"enabled": "no"}, "enabled"),
        ({"tilt": 3}, "no threshold 'tilt'"),
    ],
)
def test_impossible_thresholds_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Thresholds.from_mapping(changes)


def test_thresholds_come_from_the_package_or_a_file(tmp_path):
    assert load_thresholds("precomputed") == Thresholds()
    assert load_thresholds("cxas").scope == "film"
    (tmp_path / "mine.yaml").write_text("ctr: [0.3, 0.8]\n")
    mine = load_thresholds(str(tmp_path / "mine.yaml"), {"fragment": 0.1})
    assert (mine.ctr, mine.fragment) == ((0.3, 0.8), 0.1)
    with pytest.raises(FileNotFoundError, match="precomputed"):
        load_thresholds("mine")


@pytest.mark.parametrize(
    "record",
    [
        None,
        {"probabilities": {"PA": 1.0}},
        {"probabilities": {"PA": 0.5, "AP": 0.2, "LATERAL": 0.1, "OTHER": 0.1}},
        {"probabilities": {"PA": 1.5, "AP": -0.5, "LATERAL": 0, "OTHER": 0}},
        {"probabilities": {"PA": float("nan"), "AP": 0, "LATERAL": 0, "OTHER": 1}},
        {"probabilities": None, "rotated": "no"},
    ],
)
def test_a_record_that_is_no_view(record):
    with pytest.raises(ValueError, match=r"a view is an object|probabilit|rotated"):
        ViewReading.from_dict(record)
