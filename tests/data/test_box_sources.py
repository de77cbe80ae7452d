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
"""Sources with boxes, on miniatures of their published layout: PadChest-GR, VinDr-CXR, MS-CXR and COCO."""

import csv
import json
import pickle
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from dicom_files import write_dicom
from PIL import Image
from reading import drops, film, lines, problems, studies_of
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.data.adapters import BuildContext, Deferred, load_adapters
from verl_cxr.files import RecordError
from verl_cxr.study import read_studies


def table(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def boxes(study):
    """Name, corners and finding of each region."""
    return [
        (region.name, region.box and (region.box.x1, region.box.y1, region.box.x2, region.box.y2), region.finding)
        for region in study.regions
    ]


def discarded(funnel):
    return {(item["unit"], item["reason"]): item["count"] for item in funnel["discarded"]}


# PadChest-GR

EFFUSION = {
    "sentence_en": "Small left pleural effusion.",
    "sentence_es": "Pequeño derrame pleural izquierdo.",
    "abnormal": True,
    "boxes": [[0.5, 0.25, 0.75, 1.0]],
    "extra_boxes": [],
    "labels": ["Pleural effusion"],
    "locations": ["loc left"],
}
NORMAL = {"sentence_en": "Normal cardiac silhouette.", "abnormal": False}
MASTER = ("StudyID", "ImageID", "label", "split")
LABELS = ("ImageID", "PatientID", "Projection", "Report")


def padchest(root, entries, splits=(), films=("a.png",)):
    (root / "grounded_reports_20240819.json").write_text(json.dumps(entries))
    table(root / "master_table.csv", MASTER, splits)
    for name in films:
        path = root / "Padchest_GR_files" / "PadChest_GR" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((80, 100), 40_000, np.uint16)).save(path)
    return root


def entry(*findings, image="a.png"):
    return {"StudyID": "1", "ImageID": image, "findings": list(findings)}


def test_padchest_gr(tmp_path):
    padchest(tmp_path, [entry(EFFUSION, NORMAL)], [("1", "a.png", "pleural effusion", "validation")])
    labels = table(tmp_path / "labels.csv", LABELS, [("a.png", "77", "AP_horizontal", "derrame")])
    (study,), funnel = studies_of("padchest_gr", root=tmp_path, labels=labels)
    assert (study.id, study.view, study.split, study.patient) == ("a", "AP", "validation", "77")
    assert study.report.findings == "Small left pleural effusion. Normal cardiac silhouette."
    # shares of 100 x 80 pixels
    assert boxes(study) == [("pleural effusion", (50, 20, 75, 80), "Small left pleural effusion.")]
    assert (study.width, study.height) == (100, 80)
    assert funnel["problems"] == []


def test_padchest_gr_without_its_tables(tmp_path):
    padchest(tmp_path, [entry(EFFUSION)])
    (tmp_path / "master_table.csv").unlink()
    (study,), _ = studies_of("padchest_gr", root=tmp_path)
    assert (study.view, study.split, study.patient) == (None, None, None)


def test_several_boxes_and_labels_of_one_sentence(tmp_path):
    finding = EFFUSION | {"boxes": [[0, 0, 0.5, 1], [0.5, 0, 1, 1]], "labels": ["Nodule", "Mass"]}
    padchest(tmp_path, [entry(finding, EFFUSION | {"labels": []})])
    (study,), _ = studies_of("padchest_gr", root=tmp_path)
    names = [name for name, _, _ in boxes(study)]
    assert names == ["nodule, mass", "nodule, mass", "finding"]


def test_a_sentence_about_earlier_films_goes_with_its_boxes(tmp_path):
    finding = EFFUSION | {"sentence_en": "Heart size is unchanged."}
    padchest(tmp_path, [entry(finding, NORMAL), entry(finding)])
    (study,), funnel = studies_of("padchest_gr", root=tmp_path)
    assert study.regions == ()
    assert drops(funnel) == {"no sentence left": 1}
    kept, _ = studies_of("padchest_gr", root=tmp_path, priors=True)
    assert [len(study.regions) for study in kept] == [1, 1]


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        (entry(EFFUSION | {"boxes": [[0.1, 0.2, 0.3]]}), "field 'findings[0].boxes[0]': must be 4 numbers"),
        (entry(EFFUSION | {"boxes": [[0.1, 0.2, 0.3, None]]}), "field 'findings[0].boxes[0]': missing"),
        (entry(EFFUSION | {"boxes": {"x": 1}}), "field 'boxes': must be a list"),
        (entry(NORMAL, "text"), "field 'findings[1]': must be an object"),
        (entry(EFFUSION | {"sentence_en": 5}), "field 'sentence_en': must be text"),
        (entry(EFFUSION, image="../../etc/passwd"), "field 'ImageID': lies outside the root"),
        (entry(EFFUSION, image="/etc/passwd"), "field 'ImageID': lies outside the root"),
        ({"findings": []}, "field 'ImageID': missing"),
        ("text", "must be an object, not text"),
    ],
)
def test_a_broken_entry_of_padchest_gr(tmp_path, bad, place):
    padchest(tmp_path, [bad, entry(EFFUSION)])
    studies, funnel = studies_of("padchest_gr", root=tmp_path)
    assert len(studies) == 1
    assert drops(funnel) == {"broken record": 1}
    (problem,) = problems(funnel)
    assert "grounded_reports_20240819.json, row 1" in problem
    assert place in problem
    with pytest.raises(RecordError, match="row 1"):
        studies_of("padchest_gr", root=tmp_path, strict=True)


def test_boxes_without_area_and_boxes_that_overrun(tmp_path):
    finding = EFFUSION | {"boxes": [[0.5, 0.5, 0.5, 0.9], [-0.1, 0.5, 1.2, 0.75], [1.1, 0, 1.2, 1]]}
    padchest(tmp_path, [entry(finding)])
    (study,), funnel = studies_of("padchest_gr", root=tmp_path)
    assert [corners for _, corners, _ in boxes(study)] == [None, (0, 40, 100, 60), None]
    assert discarded(funnel) == {("boxes", "no area on the film"): 2}
    assert "field 'regions[0].box': box without area" in problems(funnel)[0]


def test_a_film_in_two_splits_keeps_the_stricter(tmp_path):
    rows = [("1", "a.png", "x", "train"), ("1", "a.png", "y", "train"), ("1", "a.png", "z", "test")]
    padchest(tmp_path, [entry(EFFUSION), entry(EFFUSION, image="b.png")], rows, films=("a.png", "b.png"))
    studies, funnel = studies_of("padchest_gr", root=tmp_path)
    assert [(study.id, study.split) for study in studies] == [("a", "test")]
    assert drops(funnel) == {"no split": 1}
    assert "field 'split': two splits of one film" in problems(funnel)[0]


def test_padchest_gr_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="grounded_reports"):
        studies_of("padchest_gr", root=tmp_path)


# VinDr-CXR

ANNOTATIONS = ("image_id", "rad_id", "class_name", "x_min", "y_min", "x_max", "y_max")
AORTA = ("f1", "R9", "Aortic enlargement", "10.5", "20", "50", "60.25")


def vindr(root, train=(), test=()):
    table(root / "annotations" / "annotations_train.csv", ANNOTATIONS, train)
    consensus = [name for name in ANNOTATIONS if name != "rad_id"]
    rows = [[cell for name, cell in zip(ANNOTATIONS, row, strict=True) if name != "rad_id"] for row in test]
    table(root / "annotations" / "annotations_test.csv", consensus, rows)
    for split, found in (("train", train), ("test", test)):
        for name in {row[0] for row in found}:
            (root / split).mkdir(exist_ok=True)
            write_dicom(root / split / f"{name}.dicom", np.arange(8000).reshape(80, 100) % 4096)
    return root


def test_vindr_cxr(tmp_path):
    nothing = ("f2", "R8", "No finding", "", "", "", "")
    consensus = ("f3", "", "Pleural effusion", "1", "2", "30", "40")
    vindr(tmp_path, [nothing, AORTA], [consensus])
    studies, funnel = studies_of("vindr_cxr", root=tmp_path)
    first, second, third = studies
    assert boxes(first) == [("aortic enlargement", (10.5, 20, 50, 60.25), "Aortic enlargement.")]
    assert first.report.findings == "Aortic enlargement."
    assert (second.report.findings, second.regions) == ("No finding.", ())
    assert (third.id, third.split) == ("f3", "test")
    assert {(study.view, study.width, study.height) for study in studies} == {("PA", 100, 80)}
    assert lines(funnel)["films listed"] == 3


def test_nan_of_pandas_is_no_box(tmp_path):
    vindr(tmp_path, [("f1", "R1", "No finding", "NaN", "nan", "NaN", "NaN")])
    (study,), funnel = studies_of("vindr_cxr", root=tmp_path)
    assert study.regions == ()
    assert funnel["problems"] == []


THREE = [
    AORTA,
    ("f1", "R10", "Aortic enlargement", "11", "20", "51", "60"),  # the same by eye
    ("f1", "R11", "Aortic enlargement", "60", "20", "90", "60"),  # elsewhere
    ("f1", "R11", "Nodule/Mass", "10", "20", "50", "60"),  # another class
]


@pytest.mark.parametrize(
    ("readers", "expected"),
    [
        ("union", [("aortic enlargement", 11), ("aortic enlargement", 60), ("nodule/mass", 10)]),
        ("majority", [("aortic enlargement", 11)]),
        ("R9", [("aortic enlargement", 10.5)]),
        ("R11", [("aortic enlargement", 60), ("nodule/mass", 10)]),
    ],
)
def test_three_readers(tmp_path, readers, expected):
    vindr(tmp_path, THREE)
    (study,), _ = studies_of("vindr_cxr", root=tmp_path, readers=readers)
    assert [(name, corners[0]) for name, corners, _ in boxes(study)] == expected


def test_readers_who_agree_on_nothing(tmp_path):
    vindr(tmp_path, [AORTA, ("f1", "R2", "No finding", "", "", "", "")])
    assert studies_of("vindr_cxr", root=tmp_path)[0][0].report.findings == "Aortic enlargement."
    studies, funnel = studies_of("vindr_cxr", root=tmp_path, readers="majority")
    assert studies == []
    assert drops(funnel) == {"no two readers agree": 1}
    assert drops(studies_of("vindr_cxr", root=tmp_path, readers="R3")[1]) == {"not read by this reader": 1}
    with pytest.raises(ValueError, match="unknown --readers 'best'"):
        studies_of("vindr_cxr", root=tmp_path, readers="best")


def test_a_film_that_is_stored_mirrored_moves_its_boxes(tmp_path):
    vindr(tmp_path, [AORTA])
    pixels = np.arange(8000).reshape(80, 100)
    write_dicom(tmp_path / "train" / "f1.dicom", pixels, bits=13, PatientOrientation=["R", "F"])
    (study,), _ = studies_of("vindr_cxr", root=tmp_path)
    assert boxes(study)[0][1] == (50, 20, 89.5, 60.25)  # 100 - 50, 100 - 10.5


def test_films_that_were_converted(tmp_path):
    vindr(tmp_path, [AORTA])
    (tmp_path / "train" / "f1.dicom").unlink()
    film(tmp_path / "train" / "f1.png")
    assert studies_of("vindr_cxr", root=tmp_path)[0][0].image.name == "f1.png"


@pytest.mark.parametrize(
    ("row", "place"),
    [
        (("f1", "R1", "Nodule", "1", "2", "3", ""), "field 'y_max': missing"),
        (("f1", "R1", "Nodule", "1", "2", "x", "4"), "field 'x_max': not a number"),
        (("f1", "R1", "Nodule", "1", "inf", "3", "4"), "field 'y_min': not a finite number"),
        (("f1", "R1", "", "1", "2", "3", "4"), "field 'class_name': missing"),
    ],
)
def test_a_broken_row_of_vindr_cxr(tmp_path, row, place):
    vindr(tmp_path, [row, AORTA])
    (study,), funnel = studies_of("vindr_cxr", root=tmp_path)
    assert len(study.regions) == 1
    assert discarded(funnel) == {("boxes", "broken row"): 1}
    assert f"annotations_train.csv, row 2, {place}" in problems(funnel)[0]
    with pytest.raises(RecordError, match=r"row 2"):
        studies_of("vindr_cxr", root=tmp_path, strict=True)


def test_a_film_of_vindr_cxr_with_broken_rows_only_is_not_normal(tmp_path):
    vindr(tmp_path, [("f1", "R1", "Nodule", "1", "2", "3", "")])
    studies, funnel = studies_of("vindr_cxr", root=tmp_path)
    assert studies == []
    assert drops(funnel) == {"no sound row": 1}


def test_a_film_name_that_leads_out_of_the_root(tmp_path):
    vindr(tmp_path, [AORTA])
    table(tmp_path / "annotations" / "annotations_train.csv", ANNOTATIONS, [("../../../x", *AORTA[1:]), AORTA])
    studies, funnel = studies_of("vindr_cxr", root=tmp_path)
    assert len(studies) == 1
    assert "field 'image_id': lies outside the root" in problems(funnel)[0]


def test_a_corrupt_dicom_film_is_reported(tmp_path):
    vindr(tmp_path, [AORTA, ("f2", *AORTA[1:])])
    (tmp_path / "train" / "f2.dicom").write_bytes(b"\0" * 128 + b"DICM" + b"\xff" * 40)
    studies, funnel = studies_of("vindr_cxr", root=tmp_path)
    assert [study.id for study in studies] == ["f1"]
    assert sum(drops(funnel).values()) == 1
    assert "f2.dicom, field 'image'" in problems(funnel)[0]


# MS-CXR

MS_CXR = ("category_name", "label_text", "path", "dicom_id", "x", "y", "w", "h", "image_width", "image_height")
PLACE = "files/p10/p10000032/s50414267/d1.jpg"
PHRASE = ("Pleural Effusion", "small  left effusion", PLACE, "d1", "50", "40", "30", "20", "100", "80")


def ms_cxr(root, rows, header=MS_CXR, name="MS_CXR_Local_Alignment_v1.0.0.csv"):
    film(root / PLACE)
    return table(root / name, header, rows)


def test_ms_cxr(tmp_path):
    other = ("Pleural Effusion", "small left effusion", PLACE, "d1", "10", "40", "30", "20", "100", "80")
    ms_cxr(tmp_path, [PHRASE, other])
    (study,), _ = studies_of("ms_cxr", root=tmp_path)
    assert boxes(study) == [
        ("pleural effusion", (50, 40, 80, 60), "small left effusion"),
        ("pleural effusion", (10, 40, 40, 60), "small left effusion"),
    ]
    assert study.report.findings == "small left effusion."
    assert (study.id, study.split, study.patient, study.view) == ("d1", "test", "p10000032", None)


def test_ms_cxr_with_splits_and_films_elsewhere(tmp_path):
    path = ms_cxr(tmp_path / "ms", [(*PHRASE, "val")], (*MS_CXR, "split"), "MS_CXR_Local_Alignment_v1.1.0.csv")
    film(tmp_path / "jpg" / PLACE.removeprefix("files/"))
    (study,), _ = studies_of("ms_cxr", root=path, films=tmp_path / "jpg")
    assert study.split == "val"
    assert study.image == tmp_path / "jpg" / PLACE.removeprefix("files/")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"w": "NaN"}, "field 'w': missing"),
        ({"image_width": "99.5"}, "field 'image_width': not a whole number"),
        ({"label_text": " "}, "field 'label_text': missing"),
    ],
)
def test_a_broken_row_of_ms_cxr(tmp_path, change, place):
    bad = [change.get(name, cell) for name, cell in zip(MS_CXR, PHRASE, strict=True)]
    ms_cxr(tmp_path, [bad, PHRASE])
    (study,), funnel = studies_of("ms_cxr", root=tmp_path)
    assert len(study.regions) == 1
    assert place in problems(funnel)[0]
    assert "row 2" in problems(funnel)[0]


def test_rows_of_one_film_that_contradict_each_other(tmp_path):
    other = [*PHRASE[:8], "200", "80"]
    ms_cxr(tmp_path, [PHRASE, other])
    studies, funnel = studies_of("ms_cxr", root=tmp_path)
    assert studies == []
    assert "rows of one film differ" in problems(funnel)[0]


def test_a_film_of_another_size_than_its_boxes_are_about(tmp_path):
    ms_cxr(tmp_path, [[*PHRASE[:8], "200", "160"]])
    studies, funnel = studies_of("ms_cxr", root=tmp_path)
    assert studies == []
    assert drops(funnel) == {"image size differs from the record's width and height": 1}
    assert "(100, 80) is that of the file, (200, 160) is stated" in problems(funnel)[0]


# COCO

COCO = {
    "images": [{"id": 7, "file_name": "a.png", "width": 100, "height": 80}],
    "categories": [{"id": 1, "name": "Pleural effusion"}],
    "annotations": [{"id": 1, "image_id": 7, "category_id": 1, "bbox": [50, 40, 30, 20]}],
}


def coco(root, document=None, name="annotations.json", **changes):
    film(root / "images" / "a.png")
    (root / name).write_text(json.dumps(COCO | changes if document is None else document))
    return root


def test_coco(tmp_path):
    coco(tmp_path)
    (study,), _ = studies_of("coco", root=tmp_path, source="ours", licence="internal")
    assert boxes(study) == [("pleural effusion", (50, 40, 80, 60), "Pleural effusion.")]
    assert study.report.findings == "Pleural effusion."
    assert (study.id, study.source, study.licence, study.split, study.view) == ("a", "ours", "internal", None, None)


def test_what_coco_does_not_know(tmp_path):
    image = COCO["images"][0] | {
        "split": "train", "patient": "p1", "view": "PA", "report": {"findings": None, "impression": "Effusion."},
    }  # fmt: skip
    note = COCO["annotations"][0] | {"caption": "Small left effusion."}
    coco(tmp_path, images=[image], annotations=[note], categories=[{"id": 1, "name": "Left lung"}])
    (study,), _ = studies_of("coco", root=tmp_path, categories="region")
    assert boxes(study) == [("left lung", (50, 40, 80, 60), "Small left effusion.")]
    assert study.report.text == "Effusion."
    assert (study.split, study.patient, study.view) == ("train", "p1", "PA")


def test_regions_of_the_body_without_words(tmp_path):
    coco(tmp_path)
    (study,), _ = studies_of("coco", root=tmp_path, categories="region")
    assert (boxes(study)[0][2], study.report.text) == ("", "")


@pytest.mark.parametrize(
    ("name", "split"), [("instances_train.json", "train"), ("val-2024.json", "val"), ("a.json", None)]
)
def test_the_split_of_a_file(tmp_path, name, split):
    coco(tmp_path, name=name)
    assert studies_of("coco", root=tmp_path)[0][0].split == split
    assert studies_of("coco", root=tmp_path / name)[0][0].split == split


@pytest.mark.parametrize(
    ("part", "bad", "place"),
    [
        (
            "annotations",
            {"image_id": 7, "category_id": 9, "bbox": [1, 2, 3, 4]},
            "field 'category_id': no such category",
        ),
        ("annotations", {"image_id": 7, "category_id": 1, "bbox": [1, 2, 3]}, "field 'bbox': must be 4 numbers"),
        ("annotations", {"image_id": 7, "category_id": 1, "bbox": [1, 2, 3, "x"]}, "field 'bbox': not a number"),
        ("annotations", {"image_id": 7, "category_id": 1, "bbox": {"a": 1}}, "field 'bbox': must be 4 numbers"),
        ("annotations", 5, "must be an object"),
        ("annotations", {"image_id": 70, "category_id": 1, "bbox": [1, 2, 3, 4]}, "boxes of a film that is not listed"),
        ("images", {"id": 8, "file_name": "../a.png"}, "field 'file_name': lies outside the root"),
        ("images", {"id": 8, "file_name": "a.png", "view": "top"}, "field 'view': not a view"),
        ("images", {"id": 8}, "field 'file_name': missing"),
        ("images", {"id": 8, "file_name": "b.png"}, "image file missing"),
        ("images", {"id": 8, "file_name": "a.png", "width": 100}, "field 'height': missing"),
        ("categories", {"id": 2}, "field 'name': missing"),
    ],
)
def test_a_broken_part_of_coco(tmp_path, part, bad, place):
    coco(tmp_path, **{part: [*COCO[part], bad]})
    studies, funnel = studies_of("coco", root=tmp_path)
    assert [boxes(study)[0][0] for study in studies] == ["pleural effusion"]
    assert place in problems(funnel)[0]
    with pytest.raises(RecordError):
        studies_of("coco", root=tmp_path, strict=True)


@pytest.mark.parametrize("document", [[], {"images": 5}, "text"])
def test_a_file_that_is_not_coco(tmp_path, document):
    with pytest.raises(RecordError, match=r"annotations\.json"):
        studies_of("coco", root=coco(tmp_path, document=document))


def test_an_unknown_meaning_of_categories(tmp_path):
    with pytest.raises(ValueError, match="use finding or region"):
        studies_of("coco", root=coco(tmp_path), categories="organ")
    (tmp_path / "annotations.json").unlink()
    with pytest.raises(FileNotFoundError):
        studies_of("coco", root=tmp_path)


def test_a_study_that_was_found_travels_to_another_process(tmp_path):
    coco(tmp_path)
    context = BuildContext(out=tmp_path, seed=0)
    (item,) = load_adapters()["coco"].studies(context, root=tmp_path)
    assert isinstance(item, Deferred)
    assert pickle.loads(pickle.dumps(item)).read(context) == item.read(context)


def test_dicom_films_are_built_into_rows_that_verl_can_show(tmp_path):
    """A mirrored MONOCHROME1 film: the build writes it as 8-bit PNG, and its box is where the bright square is."""
    root, out = tmp_path / "vindr", tmp_path / "out"
    vindr(root, [("f1", "R1", "Nodule/Mass", "10", "20", "30", "40")])
    pixels = np.full((80, 100), 4000)
    pixels[20:40, 10:30] = 0
    tags = {"WindowCenter": 2000, "WindowWidth": 4000, "PatientOrientation": ["R", "F"]}
    write_dicom(root / "train" / "f1.dicom", pixels, photometric="MONOCHROME1", **tags)
    args = ["data", "build", "vindr_cxr", "--root", str(root), "--out", str(out), "--stage", "grpo", "--write-studies"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    (row,) = pq.read_table(out / "grpo_train.parquet").to_pylist()
    shown = np.asarray(Image.open(row["images"][0]["image"]).convert("RGB"))[..., 0]
    (study,) = read_studies(out / "studies.jsonl")
    assert row["images"][0]["image"].endswith(".png")
    truth = json.loads(row["reward_model"]["ground_truth"])
    x1, y1, x2, y2 = truth["regions"][0]["box"]
    assert (x1, y1, x2, y2) == (70, 20, 90, 40)
    assert shown[y1:y2, x1:x2].min() > 250
    shown = shown.copy()
    shown[y1:y2, x1:x2] = 0
    assert shown.max() < 5
    assert study.id == "f1"
    sheet = out / "sheet.png"
    described = CliRunner().invoke(app, ["data", "describe", str(out / "studies.jsonl"), "--sheet", str(sheet)])
    assert described.exit_code == 0, described.output
    assert sheet.is_file()


def test_coco_is_built(tmp_path):
    coco(tmp_path / "mine", name="instances_train.json")
    out = tmp_path / "out"
    args = ["data", "build", "coco", "--root", str(tmp_path / "mine"), "--out", str(out), "--source", "ours"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert pq.read_table(out / "cold_start_train.parquet").num_rows == 1
    assert json.loads((out / "card.json").read_text())["sources"] == {"ours": 1}


def test_a_build_of_dicom_films_without_pydicom_says_what_to_install(tmp_path, monkeypatch):
    vindr(tmp_path / "vindr", [AORTA])
    monkeypatch.setitem(sys.modules, "pydicom", None)
    args = ["data", "build", "vindr_cxr", "--root", str(tmp_path / "vindr"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 1
    assert "error: reading DICOM films needs pydicom: pip install 'verl-cxr[dicom]'" in result.output
