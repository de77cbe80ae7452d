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
"""Gate and measurements on real films: what must hold of them whatever the numbers are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chests import mirrored
from real_films import judged, organ_films, view_films

from verl_cxr.measure import Outlines, ViewReading, certain, judge, load_thresholds
from verl_cxr.measure.drawing import draw_evidence

DATA = Path(__file__).parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not beside this checkout")
ASSUMED = {"assume_sides": True}


@pytest.fixture(scope="module")
def views():
    return list(judged(view_films(DATA), load_thresholds("retrocardiac", ASSUMED)))


def test_only_pa_films_pass_and_all_with_good_masks_do(views):
    passed = [label for label, _, _, evidence in views if evidence.exposed]
    assert passed == ["PA"] * 18
    assert {label for label, *_ in views} == {"PA", "AP", "AP Supine", "L"}


def test_a_lateral_never_passes_even_if_it_is_labelled_pa(views):
    for label, film, outlines, _ in views:
        if label == "L":
            evidence = judge(film, outlines, certain("PA"), load_thresholds("retrocardiac", ASSUMED), view_backend="x")
            assert not evidence.exposed
            assert not re.search(r"\d", evidence.observation())


def test_sides_that_nobody_states_close_the_gate():
    for _, _, outlines, evidence in judged(view_films(DATA), load_thresholds("retrocardiac")):
        assert not evidence.exposed
        assert ("side_unknown" in evidence.decision.reasons) == outlines.sides_assumed


@pytest.fixture(scope="module")
def organs():
    return list(organ_films(DATA, view="PA"))


def test_the_cardiomediastinum_is_not_the_heart(organs):
    for _, _, _, evidence in judged(iter(organs), load_thresholds("retrocardiac")):
        assert "ctr" in evidence.unavailable
        assert all(measurement.name != "ctr" for measurement in (*evidence.exposed, *evidence.withheld))
    cases = judged(iter(organs), load_thresholds("retrocardiac", {"cardiomediastinum": True}))
    found = [taken for *_, evidence in cases for taken in evidence.exposed if taken.name == "ctr"]
    assert len(found) == 29  # one film has one lung
    assert all(measurement.approximate and "approximate" in measurement.text() for measurement in found)
    assert all(0.3 < measurement.value < 0.7 for measurement in found)


def test_a_view_that_is_not_known_closes_the_gate(organs):
    for _, film, outlines, _ in organs[:5]:
        evidence = judge(film, outlines, ViewReading(), load_thresholds("retrocardiac"), view_backend="x")
        assert "view_unknown" in evidence.decision.reasons
        assert not evidence.exposed


@pytest.mark.parametrize("relabelled", [False, True])
def test_every_mirrored_film_is_refused(organs, relabelled):
    """Also where a network has named the lungs by their place: the heart tells."""
    for _, film, outlines, reading in organs:
        if "left lung" in outlines.masks and "right lung" in outlines.masks:
            flipped = Outlines(
                mirrored(dict(outlines.masks), relabelled=relabelled), outlines.width, outlines.height, "precomputed"
            )
            evidence = judge(film, flipped, reading, load_thresholds("retrocardiac"), view_backend="x")
            assert "flipped" in evidence.decision.reasons
            assert not evidence.exposed


def test_a_picture_of_a_real_film(views):
    _, film, outlines, evidence = views[-1]
    picture = draw_evidence(film.pixels, outlines, evidence, title="film", side=400)
    assert picture.width == 640
    assert picture.height > 400 * min(film.pixels.shape) / max(film.pixels.shape)
