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
"""The phantom generator: exact, seeded, varied, and true to its own words."""

import math
from dataclasses import replace

import numpy as np
import pytest

from verl_cxr.data.phantom import (
    Lesion,
    PhantomOptions,
    iter_phantoms,
    make_phantom,
    mask_box,
    sample_anatomy,
)
from verl_cxr.geometry import pixel_frame

NO_JITTER = (0.0, 0.0, 0.0)
CANVASES = [
    PhantomOptions(),
    PhantomOptions(width=96, height=160),
    PhantomOptions(width=512, height=384),
    PhantomOptions(width=256, height=128, pixel_aspect=2.0),
    PhantomOptions(views=("LATERAL",)),
]


def anatomy(view="PA", **changes):
    body = sample_anatomy(np.random.default_rng(7), view)
    return replace(body, cardiothoracic_ratio=0.42, shift=0.0, tilt=0.0, **changes)


@pytest.fixture(scope="module")
def films():
    return list(iter_phantoms(0, 200, options=PhantomOptions(views=("PA", "AP", "LATERAL"))))


@pytest.mark.parametrize("options", CANVASES, ids=lambda o: f"{o.width}x{o.height}{o.views}")
def test_boxes_are_the_bounds_of_the_masks(options):
    for film in iter_phantoms(3, 20, options=options):
        assert film.image.shape == (options.height, options.width)
        assert film.study.regions
        for region in film.study.regions:
            y, x = np.nonzero(film.masks[region.name])
            box = region.box
            assert (box.x1, box.y1, box.x2, box.y2) == (x.min(), y.min(), x.max() + 1, y.max() + 1)
            assert box.frame == pixel_frame(options.width, options.height)


def test_same_seed_same_bytes_whatever_else_is_drawn():
    first = make_phantom(5, 3)
    among_others = list(iter_phantoms(5, 6))[3]
    assert first.image.tobytes() == among_others.image.tobytes()
    assert first.study == among_others.study
    assert first.truth == among_others.truth


def test_seed_index_and_split_each_change_the_film():
    images = {film.image.tobytes() for film in (make_phantom(0), make_phantom(1), make_phantom(0, 1))}
    images.add(make_phantom(0, split="validate").image.tobytes())
    assert len(images) == 4


def test_right_lung_lies_on_the_left_of_the_image(films):
    for film in films:
        regions = {region.name: region.box for region in film.study.regions}
        if film.study.view == "LATERAL":
            assert set(regions) == {"cardiac silhouette"}  # mediastinum and lungs are not told apart on this view
        else:
            assert set(regions) == {"right lung", "left lung", "cardiac silhouette", "mediastinum"}
            assert regions["right lung"].x1 < regions["left lung"].x1
            assert regions["right lung"].x2 < regions["left lung"].x2


def test_a_finding_other_than_clear_stands_for_a_lesion_in_that_lung(films):
    for film in films:
        findings = {region.name: region.finding for region in film.study.regions}
        for lung in ("right lung", "left lung"):
            if lung not in findings:
                assert lung not in film.lesion_masks
                continue
            assert (findings[lung] == f"The {lung} is clear.") == (lung not in film.lesion_masks)
            kinds = {lesion.kind for lesion in film.truth.lesions if lung.startswith(lesion.side)}
            assert ("effusion" in findings[lung]) == ("pleural effusion" in kinds)
        for lung, mask in film.lesion_masks.items():
            assert mask.any()
            assert not (mask & ~film.masks[lung]).any()


def test_every_lesion_shows_in_the_pixels(films):
    for index, film in enumerate(films[:100]):
        options = PhantomOptions(views=(film.study.view,))
        given = {"options": options, "anatomy": film.truth.anatomy}
        ill = make_phantom(0, index, lesions=film.truth.lesions, **given)
        well = make_phantom(0, index, lesions=(), **given)
        change = ill.image.astype(float) - well.image
        for lesion in film.truth.lesions:
            inside = change[ill.lesion_masks[f"{lesion.side} lung"]].mean()
            assert inside < -15 if lesion.kind == "pneumothorax" else inside > 20


def test_a_heart_is_called_enlarged_when_it_spans_half_of_the_thorax(films):
    frontal = [film for film in films if film.study.view != "LATERAL"]
    assert {film.truth.cardiothoracic_ratio > 0.5 for film in frontal} == {True, False}
    for film in frontal:
        findings = {region.name: region.finding for region in film.study.regions}
        enlarged = film.truth.cardiothoracic_ratio > 0.5
        assert findings["cardiac silhouette"] == (
            "The heart is enlarged." if enlarged else "The heart is normal in size."
        )
        assert ("Cardiomegaly." in film.study.report.impression) == enlarged


@pytest.mark.parametrize("ratio", [0.35, 0.45, 0.55, 0.65])
def test_the_heart_is_as_wide_as_asked_for(ratio):
    film = make_phantom(0, anatomy=replace(anatomy(), cardiothoracic_ratio=ratio), options=PhantomOptions(512, 512))
    assert film.truth.cardiothoracic_ratio == pytest.approx(ratio, abs=0.01)
    heart, lungs = film.masks["cardiac silhouette"], film.masks["right lung"] | film.masks["left lung"]
    assert film.truth.heart_width == mask_box(heart).width
    assert film.truth.thorax_width == mask_box(lungs).width


@pytest.mark.parametrize("asymmetry", [-0.3, 0.3])
def test_asymmetry_and_shift_have_the_sign_they_claim(asymmetry):
    film = make_phantom(0, anatomy=anatomy(asymmetry=asymmetry))
    assert math.copysign(1, film.truth.lung_asymmetry) == math.copysign(1, asymmetry)
    moved = make_phantom(0, anatomy=replace(film.truth.anatomy, shift=0.1))
    before, after = (mask_box(f.masks["cardiac silhouette"]).x1 for f in (film, moved))
    assert after > before + 5  # towards the patient's left, which is the right of the image
    assert "shifted to the left" in moved.study.report.findings


def test_an_anisotropic_film_shows_the_same_body():
    square = make_phantom(0, anatomy=anatomy(), options=PhantomOptions(512, 512))
    flat = make_phantom(0, anatomy=anatomy(), options=PhantomOptions(512, 256, pixel_aspect=2.0))
    assert flat.truth.cardiothoracic_ratio == pytest.approx(square.truth.cardiothoracic_ratio, abs=0.01)
    tall, short = (mask_box(film.masks["left lung"]).height for film in (square, flat))
    assert short == pytest.approx(tall / 2, abs=1.5)


@pytest.mark.parametrize(
    ("lesions", "findings", "impression"),
    [
        ([], "The lungs are clear.", "No acute cardiopulmonary abnormality."),
        (
            [Lesion(side, "pleural effusion", grade, None, NO_JITTER) for side, grade in (("right", 0), ("left", 1))],
            "Bilateral pleural effusions.",
            "Pleural effusion.",
        ),
        (
            [Lesion("right", "opacity", 0, "upper", NO_JITTER), Lesion("left", "opacity", 1, "lower", NO_JITTER)],
            "Bilateral opacities.",
            "Airspace disease.",
        ),
        (
            [Lesion("right", "opacity", 0, "upper", NO_JITTER), Lesion("left", "pneumothorax", 1, None, NO_JITTER)],
            "Mild opacity in the right upper lung. Pneumothorax in the left lung.",
            "Airspace disease. Pneumothorax.",
        ),
        (
            [Lesion("left", "consolidation", 1, "lower", NO_JITTER)],
            "The right lung is clear. Consolidation in the left lower lung.",
            "Airspace disease.",
        ),
    ],
)  # fmt: skip
def test_reports_say_bilateral_things_once(lesions, findings, impression):
    report = make_phantom(0, anatomy=anatomy(), lesions=lesions).study.report
    assert report.findings == f"{findings} The heart is normal in size."
    assert report.impression == impression


def test_regions_are_told_one_by_one_where_the_report_says_bilateral():
    lesions = [Lesion(side, "pleural effusion", 0, None, NO_JITTER) for side in ("right", "left")]
    regions = make_phantom(0, anatomy=anatomy(), lesions=lesions).study.regions
    assert [region.finding for region in regions[:2]] == [
        "Small right pleural effusion.",
        "Small left pleural effusion.",
    ]


def test_no_fixed_box_fits_the_films(films):
    """A policy that ignores the film must not localise well: the best constant box overlaps by about a half."""
    frontal = [film for film in films if film.study.view != "LATERAL"]
    for place in range(4):
        boxes = [film.study.regions[place].box for film in frontal]
        fixed = replace(
            boxes[0], **{k: float(np.median([getattr(b, k) for b in boxes])) for k in ("x1", "y1", "x2", "y2")}
        )
        assert np.mean([fixed.iou(box) for box in boxes]) < 0.6


def test_few_phrases_each_drawn_often(films):
    phrases = [region.finding for film in films for region in film.study.regions]
    assert 20 <= len(set(phrases)) <= 30


def test_more_regions_on_request():
    names = ("trachea", "left clavicle", "spine")
    frontal = make_phantom(0, options=PhantomOptions(regions=names, views=("PA",))).study
    lateral = make_phantom(0, options=PhantomOptions(regions=names, views=("LATERAL",))).study
    assert [region.name for region in frontal.regions] == ["trachea", "left clavicle"]
    assert [region.name for region in lateral.regions] == ["trachea", "spine"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"width": 31}, "at least 32"),
        ({"pixel_aspect": math.nan}, "pixel_aspect"),
        ({"views": ("OBLIQUE",)}, "OBLIQUE"),
        ({"views": ()}, "views"),
        ({"regions": ("left lnug",)}, "left lnug"),
        ({"regions": ()}, "regions"),
    ],
)
def test_impossible_options_are_refused(changes, problem):
    with pytest.raises(ValueError, match=problem):
        PhantomOptions(**changes)


def test_an_empty_mask_has_no_box():
    with pytest.raises(ValueError, match="empty"):
        mask_box(np.zeros((4, 4), dtype=bool))
