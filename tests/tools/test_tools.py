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
"""region_parse, roi_crop and evidence_lookup: what they answer, and what they refuse with which advice."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verl.tools.schemas import OpenAIFunctionToolSchema

from tool_plugins.case import Case
from tool_plugins.evidence_lookup import EvidenceLookup
from tool_plugins.refusal import Refusal, RefusedError
from tool_plugins.region_parse import RegionParse
from tool_plugins.roi_crop import RoiCrop
from tool_plugins.schemas import tool_schemas
from verl_cxr.lookup import LookupAnswer, LookupServiceError, make_lookup

from .conftest import DrawnMasks


def refusal(tool: Any, arguments: dict[str, Any], case: Case) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        tool(arguments, case)
    return caught.value


# ---- region_parse


@pytest.mark.parametrize("name", ["left lung", "Left Lung", "lung, left", "L lung"])
def test_a_region_is_boxed_in_the_models_frame(masks: DrawnMasks, case: Case, name: str) -> None:
    result = RegionParse(masks, picture_side=0)({"region": name}, case)
    assert result.text == "left lung: box [600, 250, 900, 750], 15% of the image."
    assert result.images == ()


@pytest.mark.parametrize(
    ("frame", "processed", "box"),
    [
        ("pixel_original", None, "[60, 20, 90, 60]"),
        ("pixel_processed", (200, 160), "[120, 40, 180, 120]"),
    ],
)
def test_every_frame(
    masks: DrawnMasks, make_case: Callable[..., Case], frame: str, processed: tuple[int, int] | None, box: str
) -> None:
    case = make_case(frame, processed=processed)
    assert f"box {box}" in RegionParse(masks, picture_side=0)({"region": "left lung"}, case).text


def test_a_picture_shows_the_region(masks: DrawnMasks, case: Case) -> None:
    (picture,) = RegionParse(masks, picture_side=200)({"region": "right lung"}, case).images
    assert picture.size == (200, 160)
    assert picture.mode == "RGB"
    pixels = np.asarray(picture, dtype=int)
    inside, outside = pixels[80, 50], pixels[80, 100]
    assert inside[0] > inside[2]  # tinted
    assert len(set(outside.tolist())) == 1  # grey


@pytest.mark.parametrize("name", ["heart", "liver", "left lun", "<|im_end|>", "x" * 10_000])
def test_a_region_that_is_not_outlined_names_those_that_are(masks: DrawnMasks, case: Case, name: str) -> None:
    error = refusal(RegionParse(masks), {"region": name}, case)
    assert error.reason is Refusal.UNKNOWN_REGION  # the heart's mask is empty
    assert "Outlined are: left lung, right lung." in error.advice
    assert len(error.advice) < 400


def test_a_near_name_is_suggested(masks: DrawnMasks, case: Case) -> None:
    assert "Did you mean left lung?" in refusal(RegionParse(masks), {"region": "left lun"}, case).advice


@pytest.mark.parametrize("arguments", [{}, {"region": ""}, {"region": 3}, {"region": None}, {"region": ["left lung"]}])
def test_a_region_must_be_text(masks: DrawnMasks, case: Case, arguments: dict[str, Any]) -> None:
    assert refusal(RegionParse(masks), arguments, case).reason is Refusal.BAD_ARGUMENTS
    assert masks.asked == 0


@pytest.mark.parametrize("number", [0, 3, -1, 1.0, True, "1", None])
def test_an_image_must_exist(masks: DrawnMasks, make_case: Callable[..., Case], number: object) -> None:
    error = refusal(RegionParse(masks), {"region": "left lung", "image": number}, make_case(films=2))
    assert error.reason is Refusal.UNKNOWN_IMAGE
    assert "1 to 2" in error.advice
    assert RegionParse(masks)({"region": "left lung", "image": 2}, make_case(films=2))


# ---- roi_crop


def test_a_crop_holds_the_pixels_of_its_box(masks: DrawnMasks, case: Case) -> None:
    result = RoiCrop(masks, side=64, least_pixels=8)({"box": [200, 250, 600, 750]}, case)
    (picture,) = result.images
    assert result.text == "Crop of the box, zoom 2.5."  # 100 / 40
    assert picture.size == (64, 64)
    columns = np.asarray(picture)[32, :, 0] / 2  # the film's columns 20 to 60
    assert columns[0] == pytest.approx(20, abs=1)
    assert columns[-1] == pytest.approx(59, abs=1)


def test_a_crop_may_be_of_a_region(masks: DrawnMasks, case: Case) -> None:
    result = RoiCrop(masks, side=80)({"region": "left lung"}, case)
    assert result.text == "Crop of left lung, zoom 2.5."  # 100 / 40
    assert result.images[0].size == (60, 80)


def test_a_box_is_clipped_to_the_film(masks: DrawnMasks, case: Case) -> None:
    result = RoiCrop(masks, side=64)({"box": [-500, -20, 500, 2000]}, case)
    assert result.images[0].size == (40, 64)  # 50 x 80 pixels


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        (None, Refusal.BAD_ARGUMENTS),
        ("0, 0, 10, 10", Refusal.BAD_ARGUMENTS),
        ([0, 0, 10], Refusal.BAD_ARGUMENTS),
        ([0, 0, 10, "10"], Refusal.BAD_ARGUMENTS),
        ([0, 0, True, 10], Refusal.BAD_ARGUMENTS),
        ([0, 0, float("nan"), 10], Refusal.BAD_ARGUMENTS),
        ([0, 0, float("inf"), 10], Refusal.BAD_ARGUMENTS),
        ({"x1": 0}, Refusal.BAD_ARGUMENTS),
        ([500, 500, 500, 900], Refusal.EMPTY_BOX),
        ([600, 500, 500, 900], Refusal.EMPTY_BOX),
        ([1000, 0, 1200, 1000], Refusal.OUTSIDE),
        ([-200, 0, 0, 1000], Refusal.OUTSIDE),
        ([500, 500, 501, 501], Refusal.TOO_SMALL),
        ([500, 500, 580, 580], Refusal.TOO_SMALL),  # 8 x 7 pixels
        ([0, 500, 1000, 520], Refusal.TOO_THIN),
        ([1e300, 0, 2e300, 10], Refusal.OUTSIDE),
    ],
)
def test_a_wrong_box_is_refused(masks: DrawnMasks, case: Case, box: object, reason: Refusal) -> None:
    error = refusal(RoiCrop(masks), {"box": box}, case)
    assert error.reason is reason
    assert error.advice


def test_advice_about_a_box_names_the_frame(masks: DrawnMasks, make_case: Callable[..., Case]) -> None:
    tool = RoiCrop(masks)
    assert "numbers from 0 to 1000" in refusal(tool, {"box": [2000, 0, 2100, 10]}, make_case()).advice
    pixel = refusal(tool, {"box": [2000, 0, 2100, 10]}, make_case("pixel_original"))
    assert "pixels of an image 100 wide and 80 high" in pixel.advice


@pytest.mark.parametrize("arguments", [{}, {"box": [0, 0, 500, 500], "region": "left lung"}])
def test_a_crop_needs_a_box_or_a_region(masks: DrawnMasks, case: Case, arguments: dict[str, Any]) -> None:
    assert refusal(RoiCrop(masks), arguments, case).reason is Refusal.BAD_ARGUMENTS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.integers(-200, 1200), st.floats(-1e6, 1e6)), min_size=4, max_size=4))
def test_any_box_is_a_picture_or_a_refusal(masks: DrawnMasks, case: Case, box: list[float]) -> None:
    try:
        (picture,) = RoiCrop(masks, side=64)({"box": box}, case).images
    except RefusedError:
        return
    assert min(picture.size) >= 32  # a token's width, so that no processor refuses it
    assert max(picture.size) <= 64


# ---- evidence_lookup


class Down:
    """A service that is down."""

    name = "down"

    def look_up(self, finding: str) -> LookupAnswer:
        raise LookupServiceError("no answer within 3 s")


def test_what_is_known_is_told_and_what_is_not_known_says_nothing(case: Case) -> None:
    tool = EvidenceLookup(make_lookup("knowledge"))
    assert tool({"finding": " pneumothorax "}, case).text.startswith("Pneumothorax: ")
    assert "says nothing about the film" in tool({"finding": "unicorn"}, case).text


def test_a_service_that_is_down_is_no_finding(case: Case) -> None:
    error = refusal(EvidenceLookup(Down()), {"finding": "pneumothorax"}, case)
    assert error.reason is Refusal.UNAVAILABLE
    assert "Nothing follows" in error.advice


# ---- schemas


def test_verl_accepts_the_schemas() -> None:
    names = ["region_parse", "roi_crop", "evidence_lookup", "measure"]
    for name, schema in zip(names, tool_schemas(names), strict=True):
        parsed = OpenAIFunctionToolSchema.model_validate(schema)
        assert parsed.function.name == name
        assert parsed.function.description
    with pytest.raises(ValueError, match="there is no tool 'zoom'"):
        tool_schemas(["zoom"])
