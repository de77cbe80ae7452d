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
"""The numbers themselves, against truths that come from formulas and not from masks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from chests import anatomy, chest, outlines, phantom_lfa, phantom_ratio

from verl_cxr.data.phantom import PhantomOptions, make_phantom
from verl_cxr.measure.chest import read_chest
from verl_cxr.measure.ctr import cardiothoracic_ratio
from verl_cxr.measure.lfa import lung_field_asymmetry
from verl_cxr.measure.shift import thoracic_shift

SIZES = [(384, 384), (384, 480), (768, 768), (768, 960), (1536, 1536), (1536, 1920)]
"""Three resolutions, two aspect ratios."""


def drawn(body, width, height, pixel_aspect=1.0):
    options = PhantomOptions(width=width, height=height, pixel_aspect=pixel_aspect)
    phantom = make_phantom(0, options=options, anatomy=body, lesions=())
    return read_chest(outlines(phantom.masks))


@pytest.mark.parametrize("size", SIZES)
def test_the_ratio_of_an_upright_phantom_is_the_one_asked_for(size):
    for ratio in np.arange(0.35, 0.701, 0.05) if size[0] < 1000 else (0.35, 0.52, 0.70):
        found = cardiothoracic_ratio(drawn(anatomy(cardiothoracic_ratio=float(ratio)), *size))
        assert found is not None
        assert found.value == pytest.approx(ratio, abs=0.005)


@pytest.mark.parametrize("tilt", [-0.06, 0.03, 0.06])
@pytest.mark.parametrize("ratio", [0.35, 0.5, 0.7])
def test_the_ratio_of_a_leaning_phantom(tilt, ratio):
    body = anatomy(cardiothoracic_ratio=ratio, tilt=tilt)
    found = cardiothoracic_ratio(drawn(body, 768, 768))
    assert found.value == pytest.approx(phantom_ratio(body), abs=0.005)


def test_without_a_lean_the_formula_gives_the_ratio_asked_for():
    assert phantom_ratio(anatomy(cardiothoracic_ratio=0.61)) == pytest.approx(0.61, abs=1e-12)


@pytest.mark.parametrize("size", SIZES[:4])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"asymmetry": 0.25},
        {"asymmetry": -0.25, "cardiothoracic_ratio": 0.35},
        {"cardiothoracic_ratio": 0.62, "dome_right": 0.22, "dome_left": 0.08},
        {"shift": 0.1, "cardiothoracic_ratio": 0.5, "tilt": 0.05},
        {"shift": -0.1},
    ],
)
def test_the_asymmetry_of_a_phantom(size, changes):
    body = anatomy(**changes)
    assert lung_field_asymmetry(drawn(body, *size)).value == pytest.approx(phantom_lfa(body), abs=0.02)


@pytest.mark.parametrize("pixel_aspect", [0.7, 1.4])
def test_pixels_that_are_not_square_change_nothing(pixel_aspect):
    body = anatomy(half_width=0.3, lung_height=0.55, shift=0.05, asymmetry=0.2)
    chest_ = drawn(body, 900, 900, pixel_aspect)
    assert cardiothoracic_ratio(chest_).value == pytest.approx(0.45, abs=0.005)
    assert lung_field_asymmetry(chest_).value == pytest.approx(phantom_lfa(body), abs=0.02)


@pytest.mark.parametrize(("width", "height"), [(400, 400), (800, 500), (1200, 1500)])
def test_a_chest_of_rectangles(width, height):
    masks = chest(width, height, ratio=0.6, right=(0.1, 0.4), left=(0.65, 0.9), axis=(0.50, 0.56))
    found = read_chest(outlines(masks))
    assert cardiothoracic_ratio(found).value == pytest.approx(0.6, abs=0.005)
    # the middle of the mediastinum, 0.53, from the middle of the thorax, 0.5, over its width, 0.8
    assert thoracic_shift(found).value == pytest.approx(0.03 / 0.8, abs=0.003)


def test_the_asymmetry_of_rectangles_beside_a_small_heart():
    # the heart (half width 0.1, centre 0.5) does not reach the lungs: areas are 0.3 x 0.65 and 0.2 x 0.5
    masks = chest(1000, 800, ratio=0.25, left=(0.7, 0.9), left_bottom=0.65, heart_x=0.55)
    found = lung_field_asymmetry(read_chest(outlines(masks)))
    assert found.value == pytest.approx(math.log(0.3 * 0.65 / (0.2 * 0.5)), abs=0.01)
    assert found.structures == ("right lung", "left lung")


def test_signs_follow_the_patient():
    larger_right = chest(right=(0.05, 0.40), left=(0.70, 0.90))
    assert lung_field_asymmetry(read_chest(outlines(larger_right))).value > 0
    to_the_left = chest(axis=(0.55, 0.65))  # the image's right
    assert thoracic_shift(read_chest(outlines(to_the_left))).value > 0


def test_the_thorax_is_measured_above_the_costophrenic_angles():
    """A spur below the angle of one lung widens the bounds of the masks, and no row that shows both lungs."""
    masks = chest(1000, 1000, ratio=0.5, right_bottom=0.80, left_bottom=0.70)
    masks["right lung"][700:800, 50:150] = True  # outwards, below the left lung's end
    assert cardiothoracic_ratio(read_chest(outlines(masks))).value == pytest.approx(0.5, abs=0.005)
    bounds = np.flatnonzero((masks["right lung"] | masks["left lung"]).any(axis=0))
    assert 0.4 / ((bounds[-1] + 1 - bounds[0]) / 1000) < 0.48  # what the bounds would have given


def test_a_speck_changes_nothing():
    clean, dirty = chest(), chest()
    dirty["cardiac silhouette"][10:12, 10:12] = True
    dirty["right lung"][395:398, 2:4] = True
    for measure in (cardiothoracic_ratio, lung_field_asymmetry):
        assert measure(read_chest(outlines(dirty))).value == measure(read_chest(outlines(clean))).value


def test_the_spine_is_the_midline_where_it_has_a_mask():
    masks = chest(axis=(0.50, 0.60))
    masks["spine"] = np.zeros((400, 400), dtype=bool)
    masks["spine"][:, 212:228] = True  # middle 0.55, as the mediastinum's
    found = thoracic_shift(read_chest(outlines(masks)))
    assert found.value == pytest.approx(0.0, abs=1e-9)
    assert found.structures == ("mediastinum", "spine", "right lung", "left lung")


def test_a_displaced_phantom_is_told_from_a_central_one():
    rng = np.random.default_rng(5)
    for _ in range(12):
        shift = float(rng.choice((-1, 1)) * rng.uniform(0.07, 0.12))
        body = anatomy(
            shift=shift, tilt=float(rng.uniform(-0.06, 0.06)), cardiothoracic_ratio=float(rng.uniform(0.38, 0.55))
        )
        assert math.copysign(1, shift) * thoracic_shift(drawn(body, 256, 256)).value > 0.03


def test_no_shift_is_given_where_the_heart_hides_the_mediastinum():
    masks = chest(heart_y=0.30)
    assert thoracic_shift(read_chest(outlines(masks))) is None


@pytest.mark.parametrize("missing", ["right lung", "left lung", "cardiac silhouette", "mediastinum"])
def test_what_is_not_there_is_not_measured(missing):
    masks = {name: mask for name, mask in chest().items() if name != missing}
    found = read_chest(outlines(masks))
    taken = {
        "ctr": cardiothoracic_ratio(found) is not None,
        "lfa": lung_field_asymmetry(found) is not None,
        "shift": thoracic_shift(found) is not None,
    }
    assert taken == {
        "ctr": missing == "mediastinum",
        "lfa": missing in ("mediastinum", "cardiac silhouette"),
        "shift": missing == "cardiac silhouette",
    }


def test_heart_and_mediastinum_stand_for_the_heart_only_when_asked_and_are_stamped():
    masks = chest(axis=None)
    masks["cardiomediastinum"] = masks.pop("cardiac silhouette")
    assert cardiothoracic_ratio(read_chest(outlines(masks))) is None
    found = cardiothoracic_ratio(read_chest(outlines(masks), cardiomediastinum=True))
    assert found.approximate
    assert "approximate" in found.text()
    assert found.structures[0] == "cardiomediastinum"


def test_the_drawing_lies_on_what_was_measured():
    found = cardiothoracic_ratio(read_chest(outlines(chest(1000, 500, ratio=0.5))))
    by_label = {}
    for line in found.lines:
        by_label.setdefault(line.label, []).append(line)
    (thorax,), heart = by_label["thorax"], by_label["heart"]
    assert (thorax.x1, thorax.x2) == pytest.approx((0.1, 0.9), abs=0.002)
    assert sum(line.x2 - line.x1 for line in heart) / (thorax.x2 - thorax.x1) == pytest.approx(found.value)
    assert all(0 <= number <= 1 for line in found.lines for number in (line.x1, line.y1, line.x2, line.y2))
