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
"""The region vocabulary: what is one region, and above all what is not."""

import itertools

import pytest

from verl_cxr.anatomy import load_vocabulary, side

VOCABULARY = load_vocabulary()


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("right lung", "right lung"),
        ("Right Lung", "right lung"),
        ("  right \n lung ", "right lung"),
        ("R lung", "right lung"),
        ("Rt. lung", "right lung"),
        ("right-sided lung", "right lung"),
        ("lung, right", "right lung"),
        ("lung (R)", "right lung"),
        ("right lungs", "right lung"),
        ("the right lung", "right lung"),
        ("right_lung", "right lung"),
        ("ＲＩＧＨＴ lung", "right lung"),  # noqa: RUF001 - full-width letters
        ("LT costophrenic sulcus", "left costophrenic angle"),
        ("left CP angle", "left costophrenic angle"),
        ("left costophrenic angles", "left costophrenic angle"),
        ("apices of the left lung", "left apical zone"),
        ("left hilum", "left hilar structures"),
        ("upper zone of the right lung", "right upper lung zone"),
        ("left lung base", "left lower lung zone"),
        ("right hemi-diaphragm", "right hemidiaphragm"),
        ("heart", "cardiac silhouette"),
        ("left heart border", "left cardiac silhouette"),
        ("superior vena cava", "svc"),
        ("SVC", "svc"),
        ("aortic knob", "aortic arch"),
        ("superior mediastinum", "upper mediastinum"),
        ("right atrium", "right atrium"),
        ("thoracic spine", "spine"),
    ],
)
def test_ways_to_write_one_region(name, canonical):
    assert VOCABULARY.canonical(name) == canonical


@pytest.mark.parametrize("name", ["lung", "lungs", "bilateral lungs", "left and right lung", "left right lung",
                                  "left atrium", "hemidiaphragm", "cardiomediastinal silhouette"])  # fmt: skip
def test_a_name_that_is_not_one_known_region_stays_itself(name):
    assert VOCABULARY.canonical(name) == name
    assert name not in VOCABULARY.regions


def test_an_unknown_name_is_normalised_and_nothing_else():
    assert VOCABULARY.canonical("  Gastric\tBubble ") == "gastric bubble"
    assert VOCABULARY.canonical("") == ""
    assert VOCABULARY.canonical("Right Lung " * 100) == ("right lung " * 100).strip()


def test_no_name_crosses_sides():
    for region in VOCABULARY.regions.values():
        for alias in (region.name, *region.aliases):
            assert side(VOCABULARY.canonical(alias)) == side(alias) == region.side
            swapped = " ".join({"left": "right", "right": "left"}.get(word, word) for word in alias.split())
            if region.side is not None:
                assert VOCABULARY.canonical(swapped) != region.name


def test_every_alias_in_any_word_order_and_case_gives_its_region():
    for region in VOCABULARY.regions.values():
        for alias in (region.name, *region.aliases):
            for words in itertools.permutations(alias.upper().split()):
                assert VOCABULARY.canonical(" ".join(words)) == region.name


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Left lung", "left"), ("R apex", "right"), ("lung, rt", "right"), ("heart", None), ("left and right lung", None),
     ("right-sided", "right"), ("larynx", None), ("", None)],
)  # fmt: skip
def test_side(name, expected):
    assert side(name) == expected


def test_the_counts_of_chest_imagenome():
    regions = VOCABULARY.regions.values()
    assert sum(region.boxed for region in regions) == 36
    assert sum(region.described for region in regions) == 38
    assert sum(region.boxed and region.described for region in regions) == 29
    assert {region.name for region in regions if not region.boxed} == {
        "neck", "left chest wall", "right chest wall", "left shoulder", "right shoulder", "left arm", "right arm",
        "left breast", "right breast",
    }  # fmt: skip


def test_parents_keep_the_side():
    assert VOCABULARY.regions["left apical zone"].parent == "left lung"
    assert all(
        VOCABULARY.regions[region.parent].side in (None, region.side)
        for region in VOCABULARY.regions.values()
        if region.parent
    )


def test_loading_is_cached():
    assert load_vocabulary() is VOCABULARY


def test_a_vocabulary_of_ones_own(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text('regions:\n  - {name: "{side} kidney", aliases: ["{side} ren"]}\n  - name: Bladder\n')
    mine = load_vocabulary(str(path))
    assert mine.name == "mine"
    assert [mine.canonical(name) for name in ("L ren", "Kidneys, right", "BLADDER", "heart")] == [
        "left kidney", "right kidney", "bladder", "heart",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("regions: {}", "list 'regions'"),
        ("- x", "list 'regions'"),
        ("regions: [{aliases: [x]}]", "an entry has a name"),
        ("regions: [{name: x, alias: [y]}]", "an entry has a name"),
        ("regions: [{name: x}, {name: X}]", "listed twice"),
        ("regions: [{name: x, aliases: [z]}, {name: y, aliases: [z]}]", "names 'x' too"),
        ('regions: [{name: "{side} x", aliases: [x]}]', "not on the side"),
        ("regions: [{name: left x, aliases: [right x]}]", "not on the side"),
        ("regions: [{name: x, parent: y}]", "unknown parent"),
    ],
)
def test_a_bad_vocabulary_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_vocabulary(str(path))


def test_a_vocabulary_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="no vocabulary 'nose'"):
        load_vocabulary("nose")
