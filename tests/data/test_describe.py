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
"""`verl-cxr data describe`: counts that can be counted by hand, and a sheet with boxes where they belong."""

import json
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.data.describe import Shown, describe
from verl_cxr.data.prompt import Stage
from verl_cxr.data.sheet import contact_sheet
from verl_cxr.files import RecordError
from verl_cxr.geometry import Box, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study, read_studies


def run(*arguments):
    return CliRunner().invoke(app, ["data", "describe", *map(str, arguments)])


@pytest.mark.parametrize("folder", ["", "embedded"])
def test_a_built_folder(built, folder):
    studies = list(read_studies(built / "studies.jsonl"))
    found = describe(built / folder, films=3)
    assert found.source == "grpo rows"
    assert found.files == {f"{stage.value}_{split}.parquet": rows for stage in Stage
                           for split, rows in (("train", 4), ("validate", 2))}  # fmt: skip
    assert found.splits == {"train": 4, "validate": 2}
    views = Counter(study.view for study in studies)
    assert {value: counts.total() for value, counts in found.counts["view"].items()} == views
    assert found.counts["region"]["left lung"] == {"train": 4, "validate": 2}
    assert found.without_patient == 6
    assert len(found.drawn) == 3
    assert [shown.study.id for shown in found.drawn] == sorted(shown.study.id for shown in found.drawn)
    assert all(shown.open().size == (96, 64) for shown in found.drawn)


@pytest.mark.parametrize("stage", list(Stage))
def test_every_stage_counts_what_its_rows_hold(built, stage):
    whole = describe(built / "studies.jsonl")
    found = describe(built, stage=stage, films=6)
    for facet in ("view", "label") if stage is Stage.SFT else ("view", "label", "region"):
        assert found.counts[facet] == whole.counts[facet]
    if stage is Stage.COLD_START:  # boxes of the trace are whole thousandths of the film
        for shown, study in zip(found.drawn, describe(built / "studies.jsonl", films=6).drawn, strict=True):
            for ours, theirs in zip(shown.study.regions, study.study.regions, strict=True):
                assert ours.box.iou(theirs.box) > 0.95


def test_the_sheet_is_drawn_from_the_seed(built):
    first, again, other = (describe(built, films=2, seed=seed).drawn for seed in (0, 0, 3))
    assert [s.study.id for s in first] == [s.study.id for s in again] != [s.study.id for s in other]


def test_boxes_lie_where_they_belong(tmp_path):
    """A white square on black, 400 x 200: its box is drawn around it, scaled and centred."""
    pixels = np.zeros((200, 400), np.uint8)
    pixels[50:150, 100:300] = 255
    Image.fromarray(pixels).save(tmp_path / "film.png")
    frame = pixel_frame(400, 200)
    study = Study("s", tmp_path / "film.png", 400, 200, "PA", None, Report(findings="A square."),
                  (RegionFinding("square", Box(100.0, 50.0, 300.0, 150.0, frame), "White."),))  # fmt: skip
    sheet = np.asarray(contact_sheet([Shown(study, study.image)], side=200)).astype(int)
    tile = sheet[8:208, 8:208]
    coloured = tile.max(axis=2) - tile.min(axis=2) > 60
    rows, columns = np.nonzero(coloured)
    # a scale of 1/2: columns 50 to 150, and rows 25 to 75 below the 50 pixels above the film
    assert (columns.min(), columns.max()) == (50, 150)
    assert (rows.min(), rows.max()) == (75, 125)


def test_a_film_that_is_gone_is_a_tile(tmp_path):
    study = Study("s", tmp_path / "absent.png", 10, 10, None, None, Report(), ())
    assert contact_sheet([Shown(study, study.image), Shown(study, None)], side=100).size == (8 + 2 * 108, 8 + 176)


def test_the_command(built, tmp_path):
    result = run(built, "--sheet", tmp_path / "sheet.png", "--out", tmp_path / "counts.json", "--films", 4, "--top", 2)
    assert result.exit_code == 0, result.output
    assert "grpo_train.parquet" in result.output
    assert "label (lexicon)" in result.output
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (8 + 4 * 392, 8 + 384 + 60 + 16)
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert counts["splits"] == {"train": 4, "validate": 2}
    assert sum(sum(splits.values()) for splits in counts["view"].values()) == 6


def test_what_is_no_data_set(tmp_path):
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "holds no row" in result.output
    (tmp_path / "grpo_train.parquet").write_bytes(b"no parquet")
    assert run(tmp_path).exit_code == 1
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(RecordError, match=r"other\.parquet, row 1: not a row of a build"):
        describe(tmp_path / "other.parquet")
