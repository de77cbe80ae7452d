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
"""Frames, conversions and IoU, with values worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.geometry import (
    BOX_FORMATS,
    PERCENT,
    RELATIVE_1000,
    UNIT,
    Box,
    Frame,
    FrameMismatchError,
    box_from_numbers,
    is_number,
    pixel_frame,
)

FILM = pixel_frame(2000, 3000)
anything = st.floats(allow_nan=True, allow_infinity=True)
inside = st.floats(min_value=0, max_value=1000)


def box(x1, y1, x2, y2, frame=FILM):
    return Box(x1, y1, x2, y2, frame)


@pytest.mark.parametrize(
    ("numbers", "fmt"),
    [
        ((200, 300, 1000, 1500), "pixel_xyxy"),
        ((200, 300, 800, 1200), "pixel_xywh"),
        ((0.1, 0.1, 0.5, 0.5), "unit_xyxy"),
        ((10, 10, 50, 50), "percent_xyxy"),
        ((100, 100, 500, 500), "relative_1000_xyxy"),
    ],
)
def test_the_five_conventions_name_one_box(numbers, fmt):
    assert box_from_numbers(numbers, fmt, 2000, 3000) == box(200, 300, 1000, 1500)


def test_every_format_is_covered():
    assert len(BOX_FORMATS) == 5


def test_an_unknown_format_and_a_wrong_count_are_errors():
    with pytest.raises(ValueError, match="pixel_xyxy"):
        box_from_numbers([0, 0, 1, 1], "xyxy", 10, 10)
    with pytest.raises(ValueError, match="4 numbers, not 3"):
        box_from_numbers([0, 0, 1], "pixel_xyxy", 10, 10)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0, 0, 10, 10), (0, 0, 10, 10), 1.0),
        ((0, 0, 10, 10), (5, 0, 15, 10), 1 / 3),
        ((0, 0, 10, 10), (0, 0, 5, 5), 0.25),
        ((0, 0, 10, 10), (5, 5, 15, 15), 25 / 175),
        ((0, 0, 10, 10), (10, 0, 20, 10), 0.0),  # end-exclusive: neighbours share nothing
        ((0, 0, 10, 10), (20, 20, 30, 30), 0.0),
        ((0, 0, 10, 10), (10, 10, 0, 0), 0.0),
        ((0, 0, 10, 10), (5, 0, 5, 10), 0.0),
        ((0, 0, 10, 10), (-math.inf, -math.inf, math.inf, math.inf), 0.0),
        ((0, 0, 10, 10), (0, 0, 10, math.nan), 0.0),
        ((0, 0, 10, 10), (math.nan, 0, 10, 10), 0.0),
        ((-1e308, -1e308, 1e308, 1e308), (-1e308, -1e308, 1e308, 1e308), 0.0),
        ((0, 0, 1e-200, 1e-200), (0, 0, 1e-200, 1e-200), 0.0),
    ],
)
def test_iou(one, other, expected):
    assert box(*one).iou(box(*other)) == pytest.approx(expected)
    assert box(*other).iou(box(*one)) == pytest.approx(expected)


def test_boxes_of_two_frames_never_mix():
    in_pixels, relative = box(0, 0, 10, 10), box(0, 0, 10, 10, RELATIVE_1000)
    with pytest.raises(FrameMismatchError, match=r"convert with \.to"):
        in_pixels.iou(relative)
    with pytest.raises(TypeError):
        in_pixels.union(relative)
    with pytest.raises(FrameMismatchError):  # two films of another size are two frames
        in_pixels.iou(box(0, 0, 10, 10, pixel_frame(2000, 2999)))


def test_conversion_scales_each_side_by_its_own_factor():
    assert box(200, 300, 1000, 1500).to(RELATIVE_1000) == box(100, 100, 500, 500, RELATIVE_1000)
    assert box(100, 100, 500, 500, RELATIVE_1000).to(FILM) == box(200, 300, 1000, 1500)
    assert box(50, 50, 100, 100, PERCENT).to(UNIT) == box(0.5, 0.5, 1, 1, UNIT)


def test_an_equal_frame_is_the_same_frame():
    assert box(1, 2, 3, 4).iou(box(1, 2, 3, 4, Frame("pixel", 2000.0, 3000.0))) == 1.0


@pytest.mark.parametrize(
    ("numbers", "degenerate", "within"),
    [
        ((0, 0, 2000, 3000), False, True),
        ((0, 0, 2001, 3000), False, False),
        ((-1, 0, 5, 5), False, False),
        ((5, 5, 5, 6), True, True),
        ((6, 5, 5, 6), True, True),
        ((0, 0, math.inf, 1), True, False),
        ((math.nan, 0, 1, 1), True, False),
    ],
)
def test_degenerate_and_inside(numbers, degenerate, within):
    assert (box(*numbers).is_degenerate, box(*numbers).is_inside) == (degenerate, within)


def test_area_width_height():
    assert (box(1, 2, 4, 8).width, box(1, 2, 4, 8).height, box(1, 2, 4, 8).area) == (3, 6, 18)
    assert box(4, 8, 1, 2).area == 0.0


def test_clip_keeps_the_part_inside():
    assert box(-5, -5, 5000, 10).clip() == box(0, 0, 2000, 10)
    assert box(3000, 0, 4000, 10).clip().is_degenerate
    whole = box(0, 0, 1, 1)
    assert whole.clip() is whole


def test_rounding_is_to_the_nearest_but_never_loses_the_area():
    assert box(1.4, 1.6, 9.5, 10.5).rounded() == box(1, 2, 10, 10)
    assert box(3.1, 0, 3.3, 10).rounded() == box(3, 0, 4, 10)
    assert box(3, 0, 3, 10).rounded() == box(3, 0, 3, 10)
    with pytest.raises(ValueError, match="cannot round"):
        box(0, 0, math.inf, 1).rounded()


def test_union_is_the_box_around_both():
    assert box(0, 5, 1, 6).union(box(3, 1, 4, 2)) == box(0, 1, 4, 6)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, True), (1.5, True), (-0.0, True), (True, False), ("1", False), (None, False), (math.nan, False),
     (math.inf, False), (10**400, False), (10**300, True), ([1], False)],
)  # fmt: skip
def test_is_number(value, expected):
    assert is_number(value) is expected


@given(st.tuples(anything, anything, anything, anything), st.tuples(anything, anything, anything, anything))
def test_iou_is_a_share_whatever_the_numbers(one, other):
    assert 0.0 <= box(*one).iou(box(*other)) <= 1.0
    assert box(*one).iou(box(*other)) == box(*other).iou(box(*one))


@given(st.tuples(anything, anything, anything, anything))
def test_clipping_never_raises_and_stays_inside(numbers):
    clipped = box(*numbers).clip()
    assert clipped.is_inside or any(math.isnan(number) for number in numbers)


@given(st.tuples(inside, inside, inside, inside), st.tuples(inside, inside, inside, inside))
def test_iou_does_not_depend_on_the_frame(one, other):
    first, second = box(*one, RELATIVE_1000), box(*other, RELATIVE_1000)
    # sides far below a pixel lose their digits in the conversion
    if min(abs(first.width), abs(first.height), abs(second.width), abs(second.height)) > 1e-3:
        assert first.to(FILM).iou(second.to(FILM)) == pytest.approx(first.iou(second), abs=1e-6)
