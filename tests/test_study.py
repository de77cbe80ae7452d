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
"""The grounded study record: what enters, what is refused and with which words."""

import gzip
import json
import os
from pathlib import Path

import pytest

from verl_cxr.geometry import Box, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study, StudyError, read_studies, write_studies

RECORD = {
    "id": "s1",
    "image": "images/s1.png",
    "width": 200,
    "height": 100,
    "view": "PA",
    "split": "train",
    "report": {"findings": "Clear lungs.", "impression": "Normal.", "notes": "kept apart"},
    "regions": [{"name": "left lung", "box": [10, 20, 30, 40], "frame": "pixel_xyxy", "finding": "Clear."}],
    "source": "https://example.org/s1",
    "licence": "CC0",
}


def record(**changes):
    return RECORD | changes


def region(**changes):
    return record(regions=[RECORD["regions"][0] | changes])


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_record_becomes_a_study():
    study = Study.from_dict(RECORD, root="/data")
    assert study == Study(
        id="s1",
        image=Path("/data/images/s1.png"),
        width=200,
        height=100,
        view="PA",
        split="train",
        report=Report("Clear lungs.", "Normal.", "kept apart"),
        regions=(RegionFinding("left lung", Box(10, 20, 30, 40, pixel_frame(200, 100)), "Clear."),),
        source="https://example.org/s1",
        licence="CC0",
    )
    assert study.report.text == "Clear lungs. Normal."


def test_all_but_four_keys_may_be_absent_or_null():
    least = {"id": "s1", "width": 10, "height": 10, "regions": [{"name": "neck"}]}
    full = dict.fromkeys(RECORD) | least
    full["regions"] = [{"name": "neck", "box": None, "frame": None, "finding": None}]
    study = Study.from_dict(least)
    assert study == Study.from_dict(full)
    assert (study.image, study.view, study.report.text) == (None, None, "")
    assert study.regions == (RegionFinding("neck", None, ""),)


@pytest.mark.parametrize(
    ("box", "frame"),
    [
        ([20, 10, 100, 50], "pixel_xyxy"),
        ([20, 10, 80, 40], "pixel_xywh"),
        ([0.1, 0.1, 0.5, 0.5], "unit_xyxy"),
        ([10, 10, 50, 50], "percent_xyxy"),
        ([100, 100, 500, 500], "relative_1000_xyxy"),
    ],
)
def test_boxes_are_held_in_pixels_whatever_they_were_written_in(box, frame):
    study = Study.from_dict(region(box=box, frame=frame))
    assert study.regions[0].box == Box(20, 10, 100, 50, pixel_frame(200, 100))


def test_an_overrunning_box_is_clipped_to_the_film():
    study = Study.from_dict(region(box=[-5, 50, 500, 500]))
    assert study.regions[0].box == Box(0, 50, 200, 100, pixel_frame(200, 100))


@pytest.mark.parametrize(
    ("bad", "field", "words"),
    [
        (record(id=None), "id", "missing: give text"),
        (record(id=7), "id", "must be text, not a number"),
        (record(id=" "), "id", "must not be empty"),
        (record(width=None), "width", "missing"),
        (record(width="200"), "width", "whole number of pixels, not text"),
        (record(width=200.5), "width", "whole number"),
        (record(width=True), "width", "not true or false"),
        (record(height=0), "height", "from 1 to"),
        (record(height=10**9), "height", "from 1 to"),
        (record(view="LL"), "view", "use PA, AP, LATERAL or null"),
        (record(split=3), "split", "text or null"),
        (record(image=["a"]), "image", "text or null, not a list"),
        (record(image="../secret.png"), "image", "lies outside /data"),
        (record(report="Clear."), "report", "an object with findings"),
        (record(report={"findings": ["Clear."]}), "report.findings", "text or null"),
        (record(regions=None), "regions", "missing"),
        (record(regions={}), "regions", "a list of regions"),
        (record(regions=["left lung"]), "regions[0]", "is an object, not text"),
        (region(name=""), "regions[0].name", "must not be empty"),
        (region(name=None), "regions[0].name", "missing"),
        (region(finding=1), "regions[0].finding", "text or null"),
        (region(box="1 2 3 4"), "regions[0].box", "4 numbers or null"),
        (region(box=[1, 2, 3]), "regions[0].box", "4 finite numbers"),
        (region(box=[1, 2, 3, "4"]), "regions[0].box", "4 finite numbers"),
        (region(box=[1, 2, 3, True]), "regions[0].box", "4 finite numbers"),
        (region(box=[1, 2, 3, float("nan")]), "regions[0].box", "4 finite numbers"),
        (region(box=[1, 2, 3, 10**400]), "regions[0].box", "4 finite numbers"),
        (region(box=[30, 20, 10, 40]), "regions[0].box", "no area on a 200 x 100 film"),
        (region(box=[300, 20, 400, 40]), "regions[0].box", "no area"),
        (region(frame=None), "regions[0].frame", "missing: give one of pixel_xyxy"),
        (region(frame="xyxy"), "regions[0].frame", "unknown frame 'xyxy'"),
    ],
)
def test_what_is_refused(bad, field, words):
    with pytest.raises(StudyError, match="field") as error:
        Study.from_dict(bad, root="/data")
    assert error.value.field == field
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({key: value for key, value in RECORD.items() if key != "view"} | {"veiw": "PA"}, "did you mean 'view'"),
        (record(report={"finding": "Clear."}), "did you mean 'findings'"),
        (record(regions=[{"name": "neck", "findings": "Clear."}]), "did you mean 'finding'"),
    ],
)
def test_a_misspelt_key_is_not_lost_in_silence(bad, words):
    with pytest.raises(StudyError, match=words):
        Study.from_dict(bad)


def test_keys_of_others_pass():
    assert Study.from_dict(record(masks="m.npz", labels=[1])) == Study.from_dict(RECORD)


def test_an_absolute_image_is_taken_as_it_is_and_without_root_any_is():
    assert Study.from_dict(record(image="/elsewhere/a.png"), root="/data").image == Path("/elsewhere/a.png")
    assert Study.from_dict(record(image="../a.png")).image == Path("../a.png")


def test_a_patient_is_kept_and_left_out_where_none_is_named():
    study = Study.from_dict(RECORD | {"patient": "p1"}, root="/data")
    assert study.patient == "p1"
    assert study.to_dict(root="/data") == RECORD | {"patient": "p1"}
    assert "patient" not in Study.from_dict(RECORD, root="/data").to_dict()


def test_to_dict_gives_the_record_back():
    study = Study.from_dict(RECORD, root="/data")
    assert study.to_dict(root="/data") == RECORD
    assert study.to_dict()["image"] == "/data/images/s1.png"
    assert Study.from_dict(study.to_dict()) == study
    assert json.loads(json.dumps(study.to_dict())) == study.to_dict()
    with pytest.raises(StudyError, match="lies outside"):
        study.to_dict(root="/other")


def test_fractions_of_a_pixel_survive():
    study = Study.from_dict(region(box=[0.123, 0.2, 0.777, 0.9], frame="unit_xyxy"))
    assert Study.from_dict(study.to_dict()) == study


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_a_file_goes_round(tmp_path, name):
    studies = [Study.from_dict(record(id=f"s{i}"), root=tmp_path) for i in range(3)]
    assert write_studies(tmp_path / name, studies) == 3
    assert list(read_studies(tmp_path / name)) == studies
    first = (tmp_path / name).read_bytes()
    write_studies(tmp_path / name, iter(studies))
    assert (tmp_path / name).read_bytes() == first
    assert sorted(os.listdir(tmp_path)) == [name]


def test_writing_is_whole_or_not_at_all(tmp_path):
    path = write(tmp_path / "s.jsonl", "before")
    study = Study.from_dict(RECORD, root=tmp_path)
    with pytest.raises(StudyError, match="'s1' repeats"):
        write_studies(path, [study, study])
    assert path.read_text() == "before\n"
    assert os.listdir(tmp_path) == ["s.jsonl"]


def test_reading_is_lazy_and_names_the_row(tmp_path):
    path = write(tmp_path / "s.jsonl", RECORD, "", record(id="s2", width=0))
    studies = read_studies(path)
    assert next(studies).id == "s1"
    with pytest.raises(StudyError) as error:
        next(studies)
    assert str(error.value) == f"{path}, row 3, field 'width': must be from 1 to 1000000 pixels, not 0"
    assert (error.value.file, error.value.row, error.value.field) == (str(path), 3, "width")


@pytest.mark.parametrize(
    ("line", "words"),
    [("{", "row 2: not JSON"), ("[1]", "row 2: a row is a JSON object, not a list"), ("NaN", "row 2: not JSON"),
     (json.dumps(RECORD), "row 2, field 'id': 's1' is already the id of row 1")],
)  # fmt: skip
def test_rows_that_are_no_study(tmp_path, line, words):
    with pytest.raises(StudyError, match=words):
        list(read_studies(write(tmp_path / "s.jsonl", RECORD, line)))


def test_bytes_that_are_not_utf8_and_a_cut_gzip_file(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"id": "\xff"}\n')
    with pytest.raises(StudyError, match="row 1: not JSON"):
        list(read_studies(tmp_path / "a.jsonl"))
    whole = gzip.compress(b"".join(json.dumps(record(id=str(i))).encode() + b"\n" for i in range(100)))
    (tmp_path / "b.jsonl.gz").write_bytes(whole[:-20])
    with pytest.raises(StudyError, match="damaged gzip file"):
        list(read_studies(tmp_path / "b.jsonl.gz"))


def test_images_may_be_named_from_the_folder_above(tmp_path):
    (tmp_path / "set" / "images").mkdir(parents=True)
    (tmp_path / "set" / "images" / "s1.png").touch()
    below = write(tmp_path / "set" / "a.jsonl", RECORD)
    above = write(tmp_path / "set" / "b.jsonl", record(image="set/images/s1.png"))
    expected = tmp_path / "set" / "images" / "s1.png"
    assert next(read_studies(below)).image == next(read_studies(above)).image == expected
    assert next(read_studies(below, root="/data")).image == Path("/data/images/s1.png")


def test_equal_studies_are_one_key():
    one, other = Study.from_dict(RECORD), Study.from_dict(json.loads(json.dumps(RECORD)))
    assert {one: 1}[other] == 1
    assert one != Study.from_dict(record(width=201))


def test_the_real_films_of_the_shared_data():
    path = Path(__file__).parents[2] / "shared" / "data" / "organ_masks" / "studies.jsonl"
    if not path.exists():
        pytest.skip("the shared data are not beside this checkout")
    studies = list(read_studies(path))
    assert len(studies) == 30
    assert sum(len(study.regions) for study in studies) == 119
    assert all(study.image.is_file() for study in studies)
