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
"""What the options of a build do to its rows and films."""

import json
from io import BytesIO

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.geometry import Box, pixel_frame
from verl_cxr.study import Study, read_studies

COUNT = 48


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """48 studies of 24 patients on films of 60 x 40 pixels; two thirds PA, one in six with an effusion."""
    folder = tmp_path_factory.mktemp("mine")
    rows = []
    for number in range(COUNT):
        pixels = np.add.outer(np.arange(40), np.arange(60)) + number
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.{('png', 'jpg')[number % 2]}")
        text = "Small left pleural effusion." if number % 6 == 0 else "The lungs are clear."
        rows.append({
            "id": f"s{number:02d}", "image": f"{number}.{('png', 'jpg')[number % 2]}", "width": 60, "height": 40,
            "view": "AP" if number % 3 == 0 else "PA", "patient": f"p{number // 2}", "report": {"findings": text},
            "regions": [{"name": "left lung", "box": [6, 4, 30, 20], "frame": "pixel_xyxy", "finding": text}],
        })  # fmt: skip
    (folder / "studies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "studies.jsonl"


def run(root, out, *arguments, code=0):
    command = ["data", "build", "jsonl", "--root", root, "--out", out, *arguments]
    result = CliRunner().invoke(app, [str(argument) for argument in command])
    assert result.exit_code == code, result.output
    return result.output


def rows(path):
    return pq.read_table(path).to_pylist()


def ids(path):
    return [row["extra_info"]["id"] for row in rows(path)]


def drops(out):
    dropped = json.loads((out / "card.json").read_text())["funnel"]["dropped"]
    return {(drop["stage"], drop["reason"]): drop["studies"] for drop in dropped}


def test_a_fraction_keeps_the_order_and_says_what_was_not_drawn(root, tmp_path):
    run(root, tmp_path, "--fraction", "25%", "--stage", "sft,grpo")
    assert len(ids(tmp_path / "sft_train.parquet")) == COUNT // 4
    assert ids(tmp_path / "sft_train.parquet") == sorted(ids(tmp_path / "grpo_train.parquet"))
    assert [row["extra_info"]["index"] for row in rows(tmp_path / "sft_train.parquet")] == list(range(COUNT // 4))
    assert drops(tmp_path) == {("sft", "not drawn"): 36, ("grpo", "not drawn"): 36}


def test_limits_by_stage(root, tmp_path):
    run(root, tmp_path, "--limit", "sft=10,grpo=5")
    found = {stage: ids(tmp_path / f"{stage}_train.parquet") for stage in ("sft", "cold_start", "grpo")}
    assert [len(found[stage]) for stage in ("sft", "cold_start", "grpo")] == [10, COUNT, 5]
    assert set(found["grpo"]) < set(found["sft"])


def test_a_stratified_sample_keeps_views_and_labels(root, tmp_path):
    run(root, tmp_path, "--limit", 12, "--stratify", "view,label", "--stage", "grpo")
    truths = [json.loads(row["reward_model"]["ground_truth"]) for row in rows(tmp_path / "grpo_train.parquet")]
    # 16 AP films, of which 8 have the effusion, and 32 PA films without
    kinds = [(truth["view"], "effusion" in truth["report"]["findings"]) for truth in truths]
    assert [kinds.count(kind) for kind in (("AP", True), ("AP", False), ("PA", False))] == [2, 2, 8]


def test_validation_patients_are_held_out_and_stay_whole_in_a_sample(root, tmp_path):
    output = run(root, tmp_path, "--validate-fraction", "0.3", "--seed", 1, "--stage", "grpo", "--limit", 5)
    assert "no validation rows" not in output
    held, kept = (rows(tmp_path / f"grpo_{split}.parquet") for split in ("validate", "train"))
    assert len(kept) == 5
    patients = [{row["extra_info"]["patient"] for row in part} for part in (held, kept)]
    assert not patients[0] & patients[1]
    assert len(held) == 2 * len(patients[0])  # both films of each patient
    assert 3 <= len(patients[0]) <= 12
    for row in held:
        assert row["extra_info"]["split"] == json.loads(row["reward_model"]["ground_truth"])["split"] == "validate"


def test_a_build_without_validation_rows_says_what_to_do(root, tmp_path):
    output = " ".join(run(root, tmp_path, "--stage", "sft").split())
    assert "no validation rows for sft, which the recipes read" in output
    assert "--validate-fraction 0.05" in output


def test_films_are_scaled_with_their_boxes(root, tmp_path):
    run(root, tmp_path, "--image-max-side", 32, "--stage", "grpo,cold_start")
    for number, row in enumerate(rows(tmp_path / "grpo_train.parquet")):
        path = row["images"][0]["image"]
        assert path == f"{tmp_path}/films-32/s{number:02d}.{('png', 'jpg')[number % 2]}"
        with Image.open(path) as film:
            assert film.size == (32, 21)
        study = Study.from_dict(json.loads(row["reward_model"]["ground_truth"]), root=tmp_path)
        assert str(study.image) == path
        assert (study.width, study.height) == (32, 21)
        # 6, 4, 30, 20 of 60 x 40
        assert study.regions[0].box == Box(3.2, 2.1, 16.0, 10.5, pixel_frame(32, 21))
    answer = rows(tmp_path / "cold_start_train.parquet")[0]["messages"][1]["content"]
    assert '"box": [100, 100, 500, 500]' in answer  # the same place of the film at any size


def test_embedded_films_are_scaled_too_and_cut_into_shards(root, tmp_path):
    run(root, tmp_path, "--image-max-side", 32, "--embed-images", "--stage", "grpo", "--shard-rows", 20)
    files = sorted(path.name for path in tmp_path.glob("*.parquet"))
    assert files == [f"grpo_train-0000{number}.parquet" for number in range(3)]
    found = [row for name in files for row in rows(tmp_path / name)]
    assert [row["extra_info"]["index"] for row in found] == list(range(COUNT))
    assert not (tmp_path / "films-32").exists()
    for row in found:
        assert Image.open(BytesIO(row["images"][0]["bytes"])).size == (32, 21)
        assert json.loads(row["reward_model"]["ground_truth"])["image"] is None
    # one file again: no shard of the build before is left
    run(root, tmp_path, "--stage", "grpo")
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["grpo_train.parquet"]


def test_the_records_are_written_on_request(root, tmp_path):
    run(root, tmp_path, "--write-studies", "--stage", "sft", "--limit", 3)
    assert list(read_studies(tmp_path / "studies.jsonl")) == list(read_studies(root))


@pytest.fixture
def damaged(root, tmp_path):
    """The first six studies: one film cut off, one whose pixels are damaged, one of 16 bits, one missing."""
    folder = tmp_path / "damaged"
    folder.mkdir()
    lines = root.read_text().splitlines()[:6]
    for number in range(6):
        for path in root.parent.glob(f"{number}.*"):
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "studies.jsonl").write_text("\n".join(lines) + "\n")
    whole = (folder / "1.jpg").read_bytes()
    (folder / "1.jpg").write_bytes(whole[:-9])
    Image.fromarray(np.tile(np.linspace(1000, 41000, 60, dtype=np.uint16), (40, 1))).save(folder / "2.png")
    (folder / "3.jpg").unlink()
    whole = bytearray((folder / "4.png").read_bytes())
    place = whole.index(b"IDAT") + 8
    whole[place : place + 8] = b"\0" * 8
    (folder / "4.png").write_bytes(whole)
    return folder / "studies.jsonl"


@pytest.mark.parametrize("embed", [[], ["--embed-images"]])
def test_damaged_films_are_reported_and_the_rest_goes_on(damaged, tmp_path, embed):
    out = tmp_path / "out"
    run(damaged, out, "--stage", "grpo", "--image-max-side", 50, *embed)
    assert ids(out / "grpo_train.parquet") == ["s00", "s02", "s05"]
    assert [row["extra_info"]["index"] for row in rows(out / "grpo_train.parquet")] == [0, 1, 2]
    assert drops(out) == {
        ("all", "image file cut off"): 1,
        ("all", "image file missing"): 1,
        ("all", "image file unreadable"): 1,
    }
    problems = json.loads((out / "card.json").read_text())["funnel"]["problems"]
    assert [problem["count"] for problem in problems] == [1, 1, 1]
    assert any("1.jpg, field 'image': image file cut off: study s01" in p["examples"][0] for p in problems)


def test_damaged_pixels_are_found_on_request(damaged, tmp_path):
    run(damaged, tmp_path / "quick", "--stage", "sft")
    assert "s04" in ids(tmp_path / "quick" / "sft_train.parquet")
    run(damaged, tmp_path / "slow", "--stage", "sft", "--decode-films")
    assert ids(tmp_path / "slow" / "sft_train.parquet") == ["s00", "s02", "s05"]


def test_a_film_that_verl_would_show_white_is_written_again(damaged, tmp_path):
    out = tmp_path / "out"
    run(damaged, out, "--stage", "sft")
    paths = {row["extra_info"]["id"]: row["images"][0]["image"] for row in rows(out / "sft_train.parquet")}
    assert paths["s00"] == str(damaged.parent / "0.png")  # it serves as it is
    assert paths["s02"] == str(out / "films" / "s02.png")
    with Image.open(paths["s02"]) as film:
        values = np.asarray(film.convert("RGB"))[20, :, 0].astype(int)
    assert (values[0], values[-1]) == (0, 255)
    assert np.abs(values - np.linspace(0, 255, 60)).max() < 2


def test_strict_stops_at_the_first(damaged, tmp_path):
    output = run(damaged, tmp_path / "out", "--strict", code=1)
    assert "1.jpg, field 'image': image file cut off" in output
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--limit", "ten"], "STAGE=NUMBER"),
        (["--limit", "grpo=3", "--stage", "sft"], "for stages that are built"),
        (["--limit", "0"], "at least 1"),
        (["--fraction", "a quarter"], "0.25, or 25%"),
        (["--fraction", "120%"], "at most 100 %"),
        (["--limit", "3", "--fraction", "0.5"], "not both"),
        (["--stratify", "view"], "nothing to stratify"),
        (["--limit", "3", "--stratify", "veiw"], "view, region, label, source"),
        (["--engine", "spark"], "local or ray"),
        (["--validate-fraction", "100%"], "below 1"),
    ],
)
def test_options_that_cannot_be(root, tmp_path, arguments, message):
    output = " ".join(run(root, tmp_path / "out", *arguments, code=2).split())
    assert message in output
    assert not (tmp_path / "out").exists()
