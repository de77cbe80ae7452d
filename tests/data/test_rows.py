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
"""A study becomes one row a stage, or a reason why not."""

import json
from dataclasses import replace

import pytest
from PIL import Image

from verl_cxr.data.prompt import Stage, prompt_text
from verl_cxr.data.rows import RowOptions, UnusableStudyError, check_film, make_row, split_name
from verl_cxr.geometry import RELATIVE_1000, UNIT, Box, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study
from verl_cxr.trace import TraceFormat, parse

OPTIONS = RowOptions(data_source="mine")


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "film.png"
    Image.new("L", (200, 100)).save(path)
    return Study(
        id="s1",
        image=path,
        width=200,
        height=100,
        view="PA",
        split="train",
        report=Report(findings="The right lung is clear.", impression="Normal."),
        regions=(
            RegionFinding("right lung", Box(20.0, 10.0, 80.0, 90.0, pixel_frame(200, 100)), "The right lung is clear."),
            RegionFinding("left lung", None, "Not seen."),
        ),
    )


def test_sft_row_asks_for_the_report(study):
    row = make_row(Stage.SFT, study, 4, OPTIONS)
    user, assistant = row["messages"]
    assert user["role"] == "user"
    assert assistant == {"role": "assistant", "content": "The right lung is clear. Normal."}
    assert row["images"] == [{"image": str(study.image)}]
    assert row["extra_info"]["index"] == 4
    assert "<think>" not in user["content"]


def test_cold_start_row_answers_with_the_trace(study):
    answer = make_row(Stage.COLD_START, study, 0, OPTIONS)["messages"][1]["content"]
    # x: 20/200 and 80/200, y: 10/100 and 90/100, each of 1000; the region without a box is left out
    assert answer == (
        '<think>[{"region": "right lung", "box": [100, 100, 400, 900], "finding": "The right lung is clear."}]</think>'
        "<answer>The right lung is clear. Normal.</answer>"
    )
    assert parse(answer, RELATIVE_1000).regions[0].box.to(pixel_frame(200, 100)) == study.regions[0].box


def test_grpo_row_carries_the_record_that_the_reward_reads(study):
    row = make_row(Stage.GRPO, study, 0, OPTIONS)
    assert row["data_source"] == "mine"
    assert row["prompt"] == make_row(Stage.COLD_START, study, 0, OPTIONS)["messages"][:1]
    assert row["reward_model"]["style"] == "rule"
    assert Study.from_dict(json.loads(row["reward_model"]["ground_truth"])) == study
    assert row["extra_info"] == {
        "index": 0, "id": "s1", "patient": None, "split": "train", "view": "PA", "stage": "grpo",
        "box_frame": "relative_1000", "processed_size": None,
    }  # fmt: skip


@pytest.mark.parametrize("stage", list(Stage))
def test_as_many_placeholders_as_images(study, stage):
    row = make_row(stage, study, 0, OPTIONS)
    texts = [message["content"] for message in row.get("messages") or row["prompt"]]
    assert sum(text.count("<image>") for text in texts) == len(row["images"]) == 1


def test_pixel_frames_reach_prompt_and_trace(study):
    original = RowOptions("mine", trace=TraceFormat("pixel_original"))
    row = make_row(Stage.COLD_START, study, 0, original)
    assert "pixels of the image, which is 200 wide and 100 high" in row["messages"][0]["content"]
    assert '"box": [20, 10, 80, 90]' in row["messages"][1]["content"]

    processed = RowOptions("mine", trace=TraceFormat("pixel_processed"), processed_size=lambda w, h: (w // 2, h * 2))
    row = make_row(Stage.COLD_START, study, 0, processed)
    assert "100 wide and 200 high" in row["messages"][0]["content"]
    assert '"box": [10, 20, 40, 180]' in row["messages"][1]["content"]
    assert row["extra_info"]["processed_size"] == [100, 200]
    with pytest.raises(ValueError, match="processor"):
        RowOptions("mine", trace=TraceFormat("pixel_processed"))


def test_embedded_images_travel_without_their_path(study):
    row = make_row(Stage.GRPO, study, 0, replace(OPTIONS, embed_images=True))
    assert row["images"] == [{"bytes": study.image.read_bytes()}]
    assert json.loads(row["reward_model"]["ground_truth"])["image"] is None


@pytest.mark.parametrize(
    ("changes", "stages", "reason"),
    [
        (
            {"report": Report(notes="Sent from clinic.")},
            (Stage.SFT, Stage.COLD_START),
            "neither findings nor impression",
        ),
        ({"regions": ()}, (Stage.COLD_START, Stage.GRPO), "no region with a box"),
        (
            {"regions": (RegionFinding("spine", None, "Intact."),)},
            (Stage.COLD_START, Stage.GRPO),
            "no region with a box",
        ),
        ({"image": None}, tuple(Stage), "names no image"),
        ({"report": Report(findings="A <think> tag.")}, (Stage.COLD_START,), "tag of the trace"),
    ],
)
def test_a_study_that_lacks_what_a_stage_needs(study, changes, stages, reason):
    for stage in Stage:
        if stage in stages:
            with pytest.raises(UnusableStudyError, match=reason):
                make_row(stage, replace(study, **changes), 0, OPTIONS)
        else:
            make_row(stage, replace(study, **changes), 0, OPTIONS)


def test_the_film_is_checked_against_the_record(study, tmp_path):
    check_film(study)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    for changes, reason in [
        ({"width": 100}, "size differs"),
        ({"image": tmp_path / "absent.png"}, "missing"),
        ({"image": broken}, "not an image"),
        ({"image": None}, "names no image"),
    ]:
        with pytest.raises(UnusableStudyError, match=reason):
            check_film(replace(study, **changes))


@pytest.mark.parametrize(
    ("given", "expected"),
    [("train", "train"), ("val", "validate"), ("Validation", "validate"), ("test", "test"), (None, "train")],
)
def test_split_names(study, given, expected):
    assert split_name(replace(study, split=given)) == expected


def test_no_prompt_for_a_frame_without_words():
    with pytest.raises(ValueError, match="unit"):
        prompt_text(Stage.GRPO, UNIT)
