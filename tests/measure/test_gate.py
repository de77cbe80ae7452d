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
"""The validity gate: every reason closes it, asymmetry never does, and nothing that it withholds is said."""

from __future__ import annotations

import re

import numpy as np
import pytest
from chests import anatomy, chest, film, film_of, mirrored, outlines
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.data.phantom import Lesion, PhantomOptions, make_phantom
from verl_cxr.measure import (
    MEASUREMENTS,
    TITLES,
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
from verl_cxr.measure.shape import solidity

PA = certain("PA")
DEFAULT = Thresholds()


def judged(masks, *, reading=PA, thresholds=DEFAULT, spacing=None, **kept):
    height, width = next(iter(masks.values())).shape if masks else (400, 400)
    made = outlines(masks, **kept) if masks else outlines({"spine": np.zeros((400, 400), dtype=bool)}, **kept)
    return judge(film(width, height, spacing=spacing), made, reading, thresholds, view_backend="test")


def reasons(evidence):
    return {reason.value for reason in evidence.decision.reasons}


def test_a_good_film_passes():
    evidence = judged(chest())
    assert evidence.decision.open
    assert not evidence.decision.reasons
    assert not evidence.decision.withheld
    assert [measurement.name for measurement in evidence.exposed] == list(MEASUREMENTS)
    assert not evidence.withheld
    assert evidence.backends == {"masks": "precomputed", "view": "test"}


def views(**given):
    rest = (1 - sum(given.values())) / max(1, 4 - len(given))
    return ViewReading({name: given.get(name, rest) for name in ("PA", "AP", "LATERAL", "OTHER")})


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (certain("AP"), "not_pa"),
        (certain("LATERAL"), "not_pa"),
        (certain("OTHER"), "not_chest"),
        (ViewReading(), "view_unknown"),
        (views(PA=0.89), "view_uncertain"),
        (views(PA=0.11), "view_uncertain"),
        (views(AP=0.7, PA=0.3), "view_uncertain"),  # an AP film that might be PA
        (views(PA=0.10), "not_pa"),
        (views(OTHER=0.5, PA=0.5), "not_chest"),
        (ViewReading(PA.probabilities, rotated=0.5), "rotated"),
        (ViewReading(PA.probabilities, inverted=0.9), "inverted"),
        (ViewReading(PA.probabilities, flipped=0.7), "flipped"),
    ],
)
def test_the_view_closes_the_gate(reading, expected):
    evidence = judged(chest(), reading=reading)
    assert reasons(evidence) == {expected}
    assert not evidence.exposed
    assert len(evidence.withheld) == 3


@pytest.mark.parametrize("reading", [views(PA=0.9), ViewReading(PA.probabilities, 0.49, 0.0, 0.49)])
def test_a_view_inside_the_limits_passes(reading):
    assert judged(chest(), reading=reading).decision.open


def fragmented():
    masks = chest()
    masks["right lung"][200:240] = False
    return masks


def overlapping():
    masks = chest()
    masks["left lung"][100:150, 140:300] = True
    return masks


def fringed():
    masks = chest()
    masks["right lung"] &= (np.arange(400)[None, :] % 8 < 4) | (np.arange(400)[:, None] < 70)
    return masks


def turned():
    return {name: np.rot90(mask).copy() for name, mask in chest().items()}


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ({}, {"mask_missing"}),
        ({name: mask for name, mask in chest().items() if name != "left lung"}, {"mask_missing"}),
        (fragmented(), {"mask_fragmented"}),
        (chest(right=(0.44, 0.49), left=(0.51, 0.56), axis=None, heart_x=0.5), {"area_implausible"}),
        (fringed(), {"shape_implausible"}),
        (turned(), {"rotated"}),
        (overlapping(), {"overlap"}),
    ],
)
def test_bad_lungs_close_everything(masks, expected):
    evidence = judged(masks)
    assert reasons(evidence) >= expected
    assert not evidence.decision.open
    assert not evidence.exposed


def torn_heart():
    masks = chest()
    masks["cardiac silhouette"][235:265] = False
    return masks


def spread_heart():
    masks = chest()
    masks["cardiac silhouette"] |= masks["left lung"] & (np.arange(400)[None, :] < 300)
    return masks


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ({name: mask for name, mask in chest().items() if name != "cardiac silhouette"}, "mask_missing"),
        (torn_heart(), "mask_fragmented"),
        (chest(ratio=0.07), "area_implausible"),
        (spread_heart(), "overlap"),
        (chest(heart_y=0.25), "heart_position"),
        (chest(heart_x=0.88), "heart_position"),
        (chest(ratio=0.2), "width_implausible"),
    ],
)
def test_a_bad_heart_closes_the_ratio_or_all_of_it(masks, expected):
    evidence = judged(masks)
    assert evidence.decision.open
    assert expected in {reason.value for reason in evidence.decision.withheld["ctr"]}
    assert "lfa" in {measurement.name for measurement in evidence.exposed}
    assert "ctr" not in {measurement.name for measurement in evidence.exposed}
    strict = judged(masks, thresholds=Thresholds(scope="film"))
    assert not strict.decision.open
    assert expected in reasons(strict)
    assert not strict.exposed


def test_without_a_mediastinum_only_the_shift_is_missing():
    evidence = judged(chest(axis=None))
    assert evidence.unavailable == {"shift": (GateReason.MASK_MISSING,)}


def test_unsure_masks_and_boxes():
    assert reasons(judged(chest(), confidence={"right lung": 0.69})) == {"low_confidence"}
    assert judged(chest(), confidence={"cardiac silhouette": 0.6}).unavailable == {"ctr": (GateReason.LOW_CONFIDENCE,)}
    assert reasons(judged(chest(), degraded=True)) == {"degraded"}
    assert reasons(judged(chest(), sides_assumed=True)) == {"side_unknown"}
    assert judged(chest(), sides_assumed=True, thresholds=Thresholds(assume_sides=True)).decision.open


@pytest.mark.parametrize("relabelled", [False, True])
@pytest.mark.parametrize("index", range(12))
def test_a_flipped_film_is_refused_and_not_corrected(index, relabelled):
    phantom = make_phantom(11, index, options=PhantomOptions(256, 256, views=("PA",)))
    thresholds = load_thresholds("phantom")
    upright = judged(phantom.masks, thresholds=thresholds)
    assert "flipped" not in reasons(upright)
    evidence = judged(mirrored(phantom.masks, relabelled=relabelled), thresholds=thresholds)
    assert "flipped" in reasons(evidence)
    assert not evidence.exposed
    # withheld values are those of the film as it lies, not of one turned back
    before, after = ({m.name: m.value for m in (*e.exposed, *e.withheld)} for e in (upright, evidence))
    assert after["lfa"] == pytest.approx(-before["lfa"] if relabelled else before["lfa"])
    if "shift" in before:
        assert after["shift"] == pytest.approx(-before["shift"], abs=0.005)


def test_sides_that_contradict_the_heart_are_out_of_order():
    swapped = mirrored(mirrored(chest(), relabelled=False), relabelled=True)  # lungs exchanged, the heart where it was
    assert reasons(judged(swapped)) == {"order"}


def test_a_film_with_long_pixels_is_not_taken_for_a_turned_one():
    """Centres of the lungs 0.5 of the width and 0.15 of the height apart, on pixels three times as high as wide."""
    masks = chest(top=0.1, left_bottom=0.45, right_bottom=0.9)
    assert "rotated" not in reasons(judged(masks))
    assert "rotated" in reasons(judged(masks, spacing=(0.9, 0.15)))
    assert "rotated" not in reasons(judged(masks, spacing=(0.15, 0.15)))


@given(
    side=st.sampled_from(["right", "left"]),
    cut=st.floats(0.0, 0.75),
    low=st.booleans(),
    narrow=st.floats(0.0, 0.5),
)
def test_asymmetry_alone_never_closes_the_gate(side, cut, low, narrow):
    """Effusion takes the base of a lung, collapse its apex or its breadth: the gate stays open, the asymmetry large."""
    masks = chest(200, 200)
    lung = masks[f"{side} lung"]
    rows, columns = np.flatnonzero(lung.any(axis=1)), np.flatnonzero(lung.any(axis=0))
    gone = int(cut * rows.size)
    lung[rows[rows.size - gone :] if low else rows[:gone]] = False
    breadth = int(narrow * columns.size)
    lung[:, columns[:breadth] if side == "right" else columns[columns.size - breadth :]] = False
    evidence = judged(masks)
    assert not reasons(evidence)
    assert "lfa" in {measurement.name for measurement in evidence.exposed}


@pytest.mark.parametrize("kind", ["pleural effusion", "pneumothorax", "consolidation"])
@pytest.mark.parametrize("asymmetry", [-1.0, -0.5, 0.5, 1.0])
def test_an_asymmetric_phantom_with_a_lesion_passes(kind, asymmetry):
    lesion = Lesion("left", kind, 1, "lower" if kind == "consolidation" else None, (0.0, 0.0, 0.0))
    body = anatomy(asymmetry=asymmetry, cardiothoracic_ratio=0.42)
    phantom = make_phantom(0, options=PhantomOptions(256, 256), anatomy=body, lesions=(lesion,))
    masks = {name: mask & ~phantom.lesion_masks["left lung"] if name == "left lung" else mask
             for name, mask in phantom.masks.items()}  # fmt: skip
    assert not reasons(judged(masks, thresholds=load_thresholds("phantom")))


def test_a_lateral_film_never_passes_whatever_its_label():
    for index in range(20):
        phantom = make_phantom(2, index, options=PhantomOptions(128, 128, views=("LATERAL",)))
        for reading in (PA, certain("LATERAL"), ViewReading()):
            made = outlines(phantom.masks)
            evidence = judge(film_of(phantom), made, reading, load_thresholds("phantom"), view_backend="test")
            assert not evidence.decision.open
            assert not evidence.exposed


def test_the_gate_can_be_forced_open_and_says_so():
    evidence = judged(chest(), reading=certain("AP"), thresholds=Thresholds(enabled=False))
    assert evidence.decision.open
    assert evidence.decision.forced
    assert reasons(evidence) == {"not_pa"}
    assert len(evidence.exposed) == 3
    assert "Unavailable" not in evidence.observation()


# --- what the policy reads


def test_an_open_gate_gives_names_values_and_units():
    text = judged(chest(1000, 1000, ratio=0.53)).observation()
    assert "cardiothoracic ratio 0.53 (heart width over thorax width; from cardiac silhouette" in text
    assert all(TITLES[name] in text for name in MEASUREMENTS)
    assert "Unavailable" not in text


def test_a_closed_gate_says_what_is_missing_why_and_that_missing_is_not_normal():
    text = judged(chest(), reading=certain("AP")).observation()
    assert all(TITLES[name] in text for name in MEASUREMENTS)
    assert "the film is not a PA projection" in text
    assert "Unavailable does not mean normal" in text


@pytest.mark.parametrize("reason", GateReason)
def test_no_phrase_holds_a_number(reason):
    assert reason.phrase
    assert not re.search(r"\d", reason.phrase)


VALUES = st.floats(-5, 5, allow_nan=False)


@given(
    values=st.tuples(VALUES, VALUES, VALUES),
    film_reasons=st.lists(st.sampled_from(list(GateReason)), max_size=4),
    single=st.dictionaries(
        st.sampled_from(MEASUREMENTS), st.lists(st.sampled_from(list(GateReason)), min_size=1), max_size=3
    ),
    forced=st.booleans(),
)
def test_no_digit_of_a_withheld_value_is_said(values, film_reasons, single, forced):
    """Take the exposed values out of the text: no digit is left, and with a closed gate there is none to begin with."""
    decision = GateDecision(
        open=forced or not film_reasons,
        reasons=tuple(film_reasons),
        withheld={name: tuple(given) for name, given in single.items()},
        forced=forced,
        view="PA",
        details={"ctr": values[0], "tilt degrees": 12.5},
    )
    taken = [
        Measurement(name, value, UNITS[name], ("cardiac silhouette", "right lung", "left lung"))
        for name, value in zip(MEASUREMENTS, values, strict=True)
    ]
    evidence = Evidence(
        decision,
        tuple(m for m in taken if decision.allows(m.name)),
        tuple(m for m in taken if not decision.allows(m.name)),
        {"masks": "network-v2", "view": "opencxr"},
    )
    text = evidence.observation()
    for measurement in evidence.exposed:
        assert measurement.text() in text
        text = text.replace(measurement.text(), "")
    assert not re.search(r"\d", text)
    assert repr(evidence).count("Measurement(") == len(evidence.exposed)  # nor in a message that prints the record
    assert Evidence.from_dict(evidence.to_dict()) == evidence


@given(seed=st.integers(0, 200), view=st.sampled_from(["AP", "LATERAL", "OTHER"]))
def test_no_digit_at_all_is_said_of_a_film_that_is_not_pa(seed, view):
    options = PhantomOptions(96, 96, views=("PA", "AP", "LATERAL"))
    phantom = make_phantom(seed, options=options)
    evidence = judge(
        film_of(phantom), outlines(phantom.masks), certain(view), load_thresholds("phantom"), view_backend="v2"
    )
    assert not re.search(r"\d", evidence.observation())


def test_the_solidity_of_shapes():
    square = np.zeros((60, 60), dtype=bool)
    square[10:50, 10:50] = True
    assert solidity(square) == 1.0
    notched = square.copy()
    notched[20:40, 10:30] = False  # a quarter of it, from the side
    assert solidity(notched) == pytest.approx(0.75)
    assert solidity(notched, beside=square) == 1.0  # the notch is another structure's
    assert solidity(notched, beside=~square) == pytest.approx(0.75)
    stretched = np.repeat(notched, 3, axis=0)
    assert solidity(stretched) == pytest.approx(0.75)
