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
"""`verl-cxr data build`: files, funnel, card, refusals, and the real films."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.data.adapters import BuildContext, load_adapters
from verl_cxr.data.build import build
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions
from verl_cxr.study import read_studies

PHANTOM_FILES = {f"{stage}_{split}.parquet": n for stage in ("sft", "cold_start", "grpo") for split, n in
                 (("train", 6), ("validate", 2))}  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def phantom(out, *arguments):
    return run("build", "phantom", "--out", out, "--count", 6, "--validate", 2, "--size", 64, *arguments)


def record(name, **changes):
    return {
        "id": name, "image": f"{name}.png", "width": 32, "height": 32, "view": "PA", "split": "train",
        "report": {"findings": "Clear."}, "licence": "CC0",
        "regions": [{"name": "right lung", "box": [0, 0, 9, 9], "frame": "pixel_xyxy", "finding": "Clear."}],
    } | changes  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Seven records, of which each but the first two lacks something."""
    records = [
        record("good"),
        record("test", split="test"),
        record("lateral", view="LATERAL"),
        record("absent"),
        record("wrong-size", width=64),
        record("no-report", report=None),
        record("no-region", regions=[]),
    ]
    root = tmp_path / "mine"
    root.mkdir()
    for row in records:
        if row["id"] != "absent":
            Image.new("L", (32, 32)).save(root / row["image"])
    (root / "studies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    return root


def test_phantom_build_writes_every_stage_and_split(tmp_path):
    result = phantom(tmp_path)
    assert result.exit_code == 0, result.output
    assert "Funnel" in result.output
    for name, rows in PHANTOM_FILES.items():
        table = pq.read_table(tmp_path / name)
        assert table.num_rows == rows
        assert [info["index"] for info in table["extra_info"].to_pylist()] == list(range(rows))
    studies = list(read_studies(tmp_path / "studies.jsonl"))
    assert len(studies) == 8
    assert all(Image.open(study.image).size == (64, 64) for study in studies)
    truth = json.loads(pq.read_table(tmp_path / "grpo_train.parquet")["reward_model"][0].as_py()["ground_truth"])
    assert truth["id"] == studies[0].id

    card = json.loads((tmp_path / "card.json").read_text())
    assert card["files"] == PHANTOM_FILES
    assert card["funnel"]["studies_read"] == 8
    assert card["settings"]["seed"] == 0
    assert card["licences"] == {"Apache-2.0": 8}
    assert card["sources"] == {"phantom": 8}


def test_same_seed_same_bytes(tmp_path):
    def contents():
        assert phantom(tmp_path, "--seed", 3, "--masks").exit_code == 0
        return {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file() and path.name not in
                ("card.json", "README.md")}  # fmt: skip

    first = contents()
    assert contents() == first
    assert any(path.parent.name.startswith("phantom-3-validate") for path in first)  # masks


def test_masks_and_measurements(tmp_path):
    assert phantom(tmp_path, "--masks", "--views", "PA").exit_code == 0
    truth = [json.loads(line) for line in (tmp_path / "truth.jsonl").read_text().splitlines()]
    assert len(truth) == 8
    for study, row in zip(read_studies(tmp_path / "studies.jsonl"), truth, strict=True):
        assert row["id"] == study.id
        heart = next(region.box for region in study.regions if region.name == "cardiac silhouette")
        assert row["heart_width"] == heart.width
        mask = Image.open(tmp_path / "masks" / study.id / "cardiac_silhouette.png")
        assert mask.getbbox() == (heart.x1, heart.y1, heart.x2, heart.y2)


def test_jsonl_build_counts_every_drop_with_its_reason(folder, tmp_path):
    out = tmp_path / "out"
    result = run("build", "jsonl", "--root", folder, "--out", out)
    assert result.exit_code == 0, result.output
    card = json.loads((out / "card.json").read_text())
    drops = {(drop["stage"], drop["reason"]): drop["studies"] for drop in card["funnel"]["dropped"]}
    assert drops == {
        ("all", "lateral view"): 1,
        ("all", "image file missing"): 1,
        ("all", "image size differs from the record's width and height"): 1,
        ("sft", "report with neither findings nor impression"): 1,
        ("cold_start", "report with neither findings nor impression"): 1,
        ("cold_start", "no region with a box"): 1,
        ("grpo", "no region with a box"): 1,
    }
    assert card["files"] == {
        "sft_train.parquet": 2, "cold_start_train.parquet": 1, "grpo_train.parquet": 2,
        "sft_test.parquet": 1, "cold_start_test.parquet": 1, "grpo_test.parquet": 1,
    }  # fmt: skip
    assert "image file missing" in result.output.replace("\n", " ")
    assert not (out / "studies.jsonl").exists()  # the films and their records stay where they are


def test_options_of_the_jsonl_build(folder, tmp_path):
    out = tmp_path / "out"
    arguments = ["--root", folder, "--out", out, "--stage", "grpo,sft", "--keep-lateral", "--embed-images"]
    assert run("build", "jsonl", *arguments, "--data-source", "clinic").exit_code == 0
    assert {path.name for path in out.glob("*.parquet")} == {
        "sft_train.parquet", "grpo_train.parquet", "sft_test.parquet", "grpo_test.parquet",
    }  # fmt: skip
    rows = pq.read_table(out / "grpo_train.parquet").to_pylist()
    assert "lateral" in [row["extra_info"]["id"] for row in rows]
    assert rows[0]["images"] == [{"bytes": (folder / "good.png").read_bytes()}]
    assert {row["data_source"] for row in rows} == {"clinic"}


def test_limit_draws_with_the_seed_and_keeps_the_order(tmp_path):
    def ids(seed):
        out = tmp_path / str(seed)
        assert (
            run("build", "jsonl", "--root", tmp_path / "all", "--out", out, "--limit", 4, "--seed", seed).exit_code == 0
        )
        return [row["id"] for row in pq.read_table(out / "sft_train.parquet")["extra_info"].to_pylist()]

    assert phantom(tmp_path / "all", "--count", 20, "--validate", 0).exit_code == 0
    drawn = [ids(seed) for seed in range(4)]
    assert all(len(chosen) == 4 and chosen == sorted(chosen) for chosen in drawn)
    assert len({tuple(chosen) for chosen in drawn}) > 1


def test_a_folder_of_several_files(folder, tmp_path):
    (folder / "more.jsonl").write_text(json.dumps(record("more", image="good.png")) + "\n")
    assert run("build", "jsonl", "--root", folder, "--out", tmp_path / "out", "--stage", "sft").exit_code == 0
    ids = [row["id"] for row in pq.read_table(tmp_path / "out" / "sft_train.parquet")["extra_info"].to_pylist()]
    assert ids == ["more", "good", "no-region"]


@pytest.mark.parametrize(
    ("broken", "message", "more"),
    [
        ('{"id": "x"}\n', "row 1, field 'width'", 0),
        ("not json\n" + json.dumps(record("a", image="good.png")) + "\n", "row 1: not JSON", 1),
        (json.dumps(record("good")) + "\n", "'good' also occurs in", 0),
    ],
)
def test_a_broken_record_is_reported_or_stops_a_strict_build(folder, tmp_path, broken, message, more):
    out = tmp_path / "out"
    assert run("build", "jsonl", "--root", folder, "--out", out).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (folder / "zz.jsonl").write_text(broken)
    result = run("build", "jsonl", "--root", folder, "--out", out, "--strict")
    assert result.exit_code == 1
    assert message in result.output
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before

    result = run("build", "jsonl", "--root", folder, "--out", out)
    assert result.exit_code == 0, result.output
    problems = json.loads((out / "card.json").read_text())["funnel"]["problems"]
    assert any(message in example for problem in problems for example in problem["examples"])
    earlier = pq.read_table(pa.BufferReader(before["sft_train.parquet"])).num_rows
    assert pq.read_table(out / "sft_train.parquet").num_rows == earlier + more


def test_no_usable_study_is_an_error(folder, tmp_path):
    (folder / "studies.jsonl").write_text(json.dumps(record("absent")) + "\n")
    result = run("build", "jsonl", "--root", folder, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "none of 1 studies gave a row" in result.output
    assert not list((tmp_path / "out").glob("*"))


def test_a_build_removes_what_the_last_one_left_and_nothing_else(folder, tmp_path):
    out = tmp_path / "out"
    assert run("build", "jsonl", "--root", folder, "--out", out).exit_code == 0
    (out / "sft_mine.parquet").write_bytes(b"not of the build")
    assert run("build", "jsonl", "--root", folder, "--out", out, "--stage", "sft").exit_code == 0
    assert {path.name for path in out.glob("*.parquet")} == {
        "sft_train.parquet",
        "sft_test.parquet",
        "sft_mine.parquet",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stage", "sfft"], "unknown stage"),
        (["--frame", "percent"], "unknown trace frame"),
        (["--frame", "pixel_processed"], "processor"),
        (["--views", "OBLIQUE"], "OBLIQUE"),
        (["--regions", "left lnug"], "left lnug"),
    ],
)
def test_options_that_cannot_be(tmp_path, arguments, message):
    result = phantom(tmp_path / "out", *arguments)
    assert result.exit_code != 0
    assert message in result.output
    assert not list(tmp_path.glob("out/*.parquet"))


def test_help_lists_adapters_and_their_options():
    listing = run("build", "--help").output
    assert "phantom" in listing
    assert "jsonl" in listing
    options = run("build", "jsonl", "--help").output
    assert "--root" in options
    assert "--embed-images" in options


def test_adapters_are_found_by_their_modules():
    assert {"jsonl", "phantom"} <= load_adapters().keys()


def test_the_real_films_of_the_shared_data(tmp_path):
    shared = Path(__file__).parents[3] / "shared"
    if not shared.is_dir():
        pytest.skip("the shared data are not beside this checkout")
    root = shared / "data" / "organ_masks" / "studies.jsonl"
    context = BuildContext(out=tmp_path, seed=0)
    files = build(
        load_adapters()["jsonl"],
        {"root": root},
        context,
        stages=list(Stage),
        rows=RowOptions(data_source="organ_masks"),
    )
    assert files["grpo_train.parquet"] == 24
    assert files["grpo_test.parquet"] == 6
    assert context.funnel.to_dict()["dropped"] == []
