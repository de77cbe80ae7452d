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
"""Sources of reports without boxes, on miniatures of their published layout: CheXpert Plus, LLaVA-Rad and ReXrank."""

import csv
import gzip
import json

import pytest
from reading import drops, film, lines, problems, shared, studies_of

from verl_cxr.files import RecordError

# CheXpert Plus

CHEXPERT = (
    "path_to_image", "path_to_dcm", "frontal_lateral", "ap_pa", "deid_patient_id", "report", "section_findings",
    "section_impression", "split",
)  # fmt: skip
FRONTAL = "train/patient42142/study5/view1_frontal.jpg"


def chexpert_row(**changes):
    row = {
        "path_to_image": FRONTAL, "path_to_dcm": "", "frontal_lateral": "Frontal", "ap_pa": "AP",
        "deid_patient_id": "patient42142", "report": "NARRATIVE:\n, a\n", "section_findings": "",
        "section_impression": "1. SMALL LEFT\nEFFUSION.", "split": "train",
    }  # fmt: skip
    return [(row | changes)[name] for name in CHEXPERT]


def chexpert(root, *rows):
    with (root / "df_chexpert_plus_240401.csv").open("w", newline="") as file:
        csv.writer(file).writerows([CHEXPERT, *rows])
    return root


def test_chexpert_plus(tmp_path):
    chexpert(tmp_path, chexpert_row())
    image = film(tmp_path / "PNG" / FRONTAL.replace(".jpg", ".png"))
    (study,), funnel = studies_of("chexpert_plus", root=tmp_path)
    assert study.image == image
    assert (study.id, study.view, study.split, study.patient) == (FRONTAL[:-4], "AP", "train", "patient42142")
    assert (study.report.findings, study.report.impression) == (None, "1. SMALL LEFT EFFUSION.")
    assert funnel["problems"] == []


@pytest.mark.parametrize("folder", ["", "PNG/PNG", "dcm"])
def test_where_films_of_chexpert_plus_may_lie(tmp_path, folder):
    chexpert(tmp_path, chexpert_row())
    image = film(tmp_path / folder / FRONTAL)
    images = tmp_path / folder if folder == "dcm" else None
    assert studies_of("chexpert_plus", root=tmp_path, images=images)[0][0].image == image


def test_what_chexpert_plus_drops(tmp_path):
    film(tmp_path / FRONTAL)
    lateral = film(tmp_path / FRONTAL.replace("frontal", "lateral"))
    chexpert(
        tmp_path,
        chexpert_row(path_to_image=FRONTAL.replace("frontal", "lateral"), frontal_lateral="Lateral", ap_pa=""),
        chexpert_row(section_impression="nan"),
        chexpert_row(section_impression="No change compared to the prior study."),
        chexpert_row(ap_pa=""),
    )
    studies, funnel = studies_of("chexpert_plus", root=tmp_path)
    assert [study.view for study in studies] == [None]
    assert drops(funnel) == {
        "lateral view": 1,
        "neither findings nor impression": 1,
        "nothing left without mentions of earlier examinations": 1,
    }
    assert lines(funnel)["films listed"] == 4
    studies, _ = studies_of("chexpert_plus", root=tmp_path, lateral=True)
    assert (studies[0].view, studies[0].image) == ("LATERAL", lateral)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"frontal_lateral": "Side"}, "field 'frontal_lateral': unknown side"),
        ({"path_to_image": ""}, "field 'path_to_image': missing"),
        ({"path_to_image": "../../../etc/passwd"}, "field 'path_to_image': lies outside the root"),
        ({"path_to_image": "train/none.jpg"}, "image file missing"),
    ],
)
def test_a_broken_row_of_chexpert_plus(tmp_path, change, place):
    film(tmp_path / FRONTAL)
    chexpert(tmp_path, chexpert_row(**change), chexpert_row())
    studies, funnel = studies_of("chexpert_plus", root=tmp_path)
    assert len(studies) == 1
    assert place in problems(funnel)[0]
    with pytest.raises(RecordError):
        studies_of("chexpert_plus", root=tmp_path, strict=True)


def test_a_table_without_a_column(tmp_path):
    (tmp_path / "df_chexpert_plus_240401.csv").write_text("path_to_image,split\na,train\n")
    with pytest.raises(RecordError, match="no such column"):
        studies_of("chexpert_plus", root=tmp_path)
    (tmp_path / "df_chexpert_plus_240401.csv").unlink()
    with pytest.raises(FileNotFoundError, match="df_chexpert_plus"):
        studies_of("chexpert_plus", root=tmp_path)


# LLaVA-Rad

PLACE = "mimic/p10/p10000032/s50414267/d1.jpg"


def llava_row(**changes):
    return {
        "id": "d1", "image": PLACE, "view": "PA", "reason": "Evaluate for effusion.", "generate_method": "gpt4",
        "conversations": [
            {"from": "human", "value": "<image>\nDescribe the findings."},
            {"from": "gpt", "value": "Small left effusion."},
        ],
    } | changes  # fmt: skip


def llava(root, split="train", *rows, suffix=".json"):
    path = root / f"chat_{split}_MIMIC_CXR_all_gpt4extract_rulebased_v1{suffix}"
    data = json.dumps(list(rows)).encode()
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    film(root / PLACE.replace("mimic", "files"))
    return root


@pytest.mark.parametrize(("name", "split"), [("train", "train"), ("dev", "validate"), ("test", "test")])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_llava_rad(tmp_path, name, split, suffix):
    llava(tmp_path, name, llava_row(), suffix=suffix)
    (study,), _ = studies_of("llava_rad", root=tmp_path)
    assert (study.id, study.view, study.split, study.patient) == ("d1", "PA", split, "p10000032")
    assert (study.report.findings, study.report.notes) == ("Small left effusion.", "Evaluate for effusion.")
    assert study.image == tmp_path / PLACE.replace("mimic", "files")


def test_films_of_llava_rad_elsewhere(tmp_path):
    llava(tmp_path, "train", llava_row())
    image = film(tmp_path / "jpg" / PLACE.removeprefix("mimic/"))
    assert studies_of("llava_rad", root=tmp_path, films=tmp_path / "jpg")[0][0].image == image


def test_what_llava_rad_drops(tmp_path):
    no_text = [{"from": "human", "value": "?"}, {"from": "gpt", "value": 3.5}]
    nothing = [{"from": "human", "value": "?"}]
    llava(
        tmp_path,
        "train",
        llava_row(conversations=no_text),
        llava_row(conversations=nothing),
        llava_row(view="LL"),
        llava_row(generate_method="rule-based"),
        llava_row(),
    )
    studies, funnel = studies_of("llava_rad", root=tmp_path, methods="gpt4")
    assert len(studies) == 1
    assert drops(funnel) == {"findings that are no text": 2, "lateral view": 1, "made by another method": 1}
    assert len(studies_of("llava_rad", root=tmp_path)[0]) == 2


@pytest.mark.parametrize(
    ("row", "place"),
    [
        (llava_row(conversations=[]), "field 'conversations': missing"),
        (llava_row(conversations="text"), "field 'conversations': must be a list"),
        (llava_row(conversations=["text"]), "field 'conversations': must be an object"),
        (llava_row(image="../../x.jpg"), "field 'image': lies outside the root"),
        (llava_row(image=None), "field 'image': missing"),
        ([1, 2], "must be an object, not a list"),
    ],
)
def test_a_broken_entry_of_llava_rad(tmp_path, row, place):
    llava(tmp_path, "train", row, llava_row())
    studies, funnel = studies_of("llava_rad", root=tmp_path)
    assert len(studies) == 1
    assert place in problems(funnel)[0]
    assert "row 1" in problems(funnel)[0]


def test_a_file_of_llava_rad_that_is_cut_off(tmp_path):
    llava(tmp_path, "train", *[llava_row(id=f"d{number}") for number in range(50)])
    path = next(tmp_path.glob("chat_train*"))
    path.write_bytes(path.read_bytes()[:-500])
    studies, funnel = studies_of("llava_rad", root=tmp_path)
    assert 40 < len(studies) < 50
    assert "not JSON from here on" in problems(funnel)[0]
    with pytest.raises(RecordError, match="not JSON from here on"):
        studies_of("llava_rad", root=tmp_path, strict=True)


def test_llava_rad_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="chat_train_MIMIC_CXR"):
        studies_of("llava_rad", root=tmp_path)


# ReXrank


def rexrank_row(**changes):
    return {
        "key_image_path": "CXR3_IM-1/0.png", "image_path": ["CXR3_IM-1/0.png", "CXR3_IM-1/1.png"],
        "frontal_lateral": ["Frontal", "Lateral"], "section_findings": "Unchanged  heart size.",
        "section_impression": "Normal.", "context": "Indication: Cough", "report": "...", "split": "test",
    } | changes  # fmt: skip


def rexrank(root, **rows):
    path = root / "ReXRank_IUXray_test.json"
    path.write_text(json.dumps(rows))
    film(root / "CXR3_IM-1" / "0.png")
    film(root / "CXR3_IM-1" / "1.png")
    return path


def test_rexrank(tmp_path):
    path = rexrank(tmp_path, **{"CXR3_IM-1": rexrank_row()})
    (study,), _ = studies_of("rexrank", root=path)
    assert (study.id, study.view, study.split, study.patient) == ("CXR3_IM-1", None, "test", "CXR3")
    # A reference is not rewritten, mentions of earlier examinations and double spaces included.
    assert study.report.findings == "Unchanged  heart size."
    assert study.report.notes == "Indication: Cough"


def test_views_of_rexrank(tmp_path):
    rexrank(
        tmp_path,
        a=rexrank_row(key_image_path="CXR3_IM-1/1.png"),
        b=rexrank_row(key_image_path="CXR3_IM-1/1.png", frontal_lateral=["Lateral"]),
        c=rexrank_row(section_findings=" ", section_impression=""),
    )
    studies, funnel = studies_of("rexrank", root=tmp_path)
    assert [(study.id, study.view) for study in studies] == [("b", None)]
    assert drops(funnel) == {"lateral view": 1, "neither findings nor impression": 1}
    assert lines(funnel) == {"reports": 3, "reports whose views cannot be told": 1}
    assert [study.view for study in studies_of("rexrank", root=tmp_path, lateral=True)[0]] == ["LATERAL", None]


def test_the_real_test_split_of_rexrank(tmp_path):
    studies, funnel = studies_of("rexrank", root=shared("reports", "ReXRank_IUXray_test.json.gz"), films=tmp_path)
    assert studies == []  # no films here
    assert lines(funnel) == {"reports": 590, "reports whose views cannot be told": 46}
    assert drops(funnel) == {"lateral view": 1, "image file missing": 589}


@pytest.mark.parametrize(
    ("row", "place"),
    [
        (rexrank_row(key_image_path="../../x.png"), "field 'key_image_path': lies outside the root"),
        (rexrank_row(section_findings=["a"]), "field 'section_findings': must be text"),
        (rexrank_row(image_path="CXR3"), "field 'image_path': must be a list"),
        (rexrank_row(image_path=[], key_image_path=None), "field 'image_path'"),
        ("text", "must be an object"),
    ],
)
def test_a_broken_member_of_rexrank(tmp_path, row, place):
    rexrank(tmp_path, a=row, b=rexrank_row())
    studies, funnel = studies_of("rexrank", root=tmp_path)
    assert [study.id for study in studies] == ["b"]
    assert place in problems(funnel)[0]
    with pytest.raises(RecordError, match="row 1"):
        studies_of("rexrank", root=tmp_path, strict=True)


def test_a_file_that_is_not_rexrank(tmp_path):
    (tmp_path / "ReXRank_a.json").write_text("[]")
    with pytest.raises(RecordError, match="must hold an object, not a list"):
        studies_of("rexrank", root=tmp_path)
    (tmp_path / "ReXRank_a.json").unlink()
    with pytest.raises(FileNotFoundError):
        studies_of("rexrank", root=tmp_path)
