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
"""IU X-ray: the 3,955 real reports, its three forms, and archives that are not what they seem."""

import csv
import gzip
import io
import json
import tarfile
import zipfile
from collections import Counter

import pytest
from dicom_files import write_dicom
from reading import drops, film, lines, problems, shared, studies_of

from verl_cxr.data.adapters import BuildContext, load_adapters
from verl_cxr.data.openi.films import FilmFolder, film_key, read_projections
from verl_cxr.data.openi.reports import read_xml
from verl_cxr.files import RecordError

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<eCitation><uId id="CXR{number}"/><MedlineCitation><Article><Abstract>
<AbstractText Label="COMPARISON">None.</AbstractText>
<AbstractText Label="INDICATION">Cough</AbstractText>
<AbstractText Label="FINDINGS">{findings}</AbstractText>
<AbstractText Label="IMPRESSION">{impression}</AbstractText>
</Abstract></Article></MedlineCitation>{images}</eCitation>"""


def report(number, findings="Clear lungs.", impression="Normal.", images=()):
    parents = "".join(f'<parentImage id="{image}"><figureId>F1</figureId></parentImage>' for image in images)
    return REPORT.format(number=number, findings=findings, impression=impression, images=parents).encode()


def folder_of(root, reports):
    folder = root / "ecgen-radiology"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in reports.items():
        (folder / name).write_bytes(data)
    return folder


def tar_of(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def projections(root, rows):
    path = root / "indiana_projections.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("uid", "filename", "projection"), *rows])
    return path


TWO = {
    "2.xml": report(2, images=("CXR2_IM-1-1001", "CXR2_IM-1-2001")),
    "10.xml": report(10, findings="", impression="", images=("CXR10_IM-3-1001",)),
    "1.xml": report(1, images=("CXR1_1_IM-1-3001", "CXR1_1_IM-1-4001")),
}
LABELS = [
    (2, "2_IM-1-1001.dcm.png", "Frontal"),
    (2, "2_IM-1-2001.dcm.png", "Lateral"),
    (10, "10_IM-3-1001.dcm.png", "Frontal"),
    (1, "1_1_IM-1-3001.dcm.png", ""),
    (1, "1_1_IM-1-4001.dcm.png", "Frontal"),
]


@pytest.fixture
def tree(tmp_path):
    folder_of(tmp_path, TWO)
    projections(tmp_path, LABELS)
    for name in ("CXR2_IM-1-1001", "CXR2_IM-1-2001", "CXR10_IM-3-1001", "CXR1_1_IM-1-3001", "CXR1_1_IM-1-4001"):
        film(tmp_path / "images" / f"{name}.png")
    return tmp_path


# The real reports


@pytest.fixture(scope="module")
def real():
    """Every real report, with the human labels of the 7,470 films; 8 films are there."""
    labels = shared("reports", "openi_reports.jsonl.gz")
    return studies_of("iu_xray", root=shared("reports"), images=shared("openi"), projections=labels)


def test_all_real_reports_are_read(real):
    _, funnel = real
    assert lines(funnel) == {
        "reports": 3955,
        "reports with findings": 3425,
        "reports with an impression": 3921,
        "films listed": 7470,
    }
    assert [problem["problem"] for problem in funnel["problems"]] == ["image file missing"]


def test_views_of_real_films_are_those_that_people_told(real):
    studies, funnel = real
    assert drops(funnel)["lateral view"] == 3647
    assert drops(funnel)["no projection stated"] == 6
    assert {study.view for study in studies} == {None}
    # Its DICOM file calls this lateral film a PA.
    assert "CXR1000_IM-0003-2001" not in {study.id for study in studies}
    assert {study.id for study in studies} == {
        "CXR25_IM-1024-2001", "CXR54_IM-2145-1001", "CXR303_IM-1404-1001", "CXR1000_IM-0003-1001",
        "CXR1000_IM-0003-3001", "CXR1001_IM-0004-1001",
    }  # fmt: skip


def test_real_reports_and_films_belong_together(real):
    annotations = {item["image_id"]: item for item in json.loads(shared("openi", "annotations.json").read_bytes())}
    options = {"root": shared("reports"), "images": shared("openi"), "priors": True}
    labels = shared("reports", "openi_reports.jsonl.gz")
    studies, _ = studies_of("iu_xray", lateral=True, projections=labels, **options)
    assert {study.id for study in studies} == set(annotations)
    for study in studies:
        truth = annotations[study.id]
        assert (study.width, study.height, study.patient) == (truth["width"], truth["height"], truth["uid"])
        assert study.report.impression == (" ".join(truth["impression"].split()) or None)
        assert (study.view == "LATERAL") == (truth["projection"] == "Lateral")


def test_real_reports_of_the_archive_are_those_of_the_table():
    context = BuildContext(out=shared(), seed=0)
    reports = read_xml(shared("reports", "NLMCXR_reports.tgz"), context)
    assert [item.number for item in reports] == sorted(item.number for item in reports)
    assert sum(not item.images for item in reports) == 104
    assert Counter((item.findings is None, item.impression is None) for item in reports)[True, True] == 28
    with gzip.open(shared("reports", "openi_reports.jsonl.gz"), "rt") as file:
        rows = {row["uid"]: row for row in map(json.loads, file)}
    for item in reports:
        row = rows[item.uid]
        assert (item.findings or "", item.impression or "") == (row["findings"].strip(), row["impression"].strip())
        assert list(item.images) == [image["id"] for image in row["images"]]


def test_real_sections_are_one_line(real):
    studies, _ = real
    sections = [study.report.findings for study in studies if study.report.findings]
    assert sections
    assert all("\n" not in section and "  " not in section for section in sections)


# Forms


def test_a_folder_of_xml(tree):
    studies, funnel = studies_of("iu_xray", root=tree)
    assert [study.id for study in studies] == ["CXR1_1_IM-1-4001", "CXR2_IM-1-1001"]
    first = studies[0]
    assert (first.view, first.split, first.patient, first.source) == (None, None, "CXR1", "Open-i")
    assert (first.report.findings, first.report.impression, first.report.notes) == ("Clear lungs.", "Normal.", "Cough")
    assert (first.width, first.height, first.regions) == (100, 80, ())
    assert drops(funnel) == {
        "lateral view": 1, "no projection stated": 1, "neither findings nor impression": 1,
    }  # fmt: skip


def test_lateral_films_on_request(tree):
    studies, _ = studies_of("iu_xray", root=tree, lateral=True)
    views = {study.id: study.view for study in studies}
    assert views == {
        "CXR1_1_IM-1-3001": None, "CXR1_1_IM-1-4001": None, "CXR2_IM-1-1001": None, "CXR2_IM-1-2001": "LATERAL",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["tgz", "zip"])
def test_an_archive_gives_what_its_folder_gives(tree, tmp_path_factory, kind):
    other = tmp_path_factory.mktemp("archive")
    projections(other, LABELS)
    members = {f"ecgen-radiology/{name}": data for name, data in TWO.items()}
    if kind == "tgz":
        tar_of(other / "NLMCXR_reports.tgz", members)
    else:
        with zipfile.ZipFile(other / "NLMCXR_reports.zip", "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    assert studies_of("iu_xray", root=other, images=tree / "images")[0] == studies_of("iu_xray", root=tree)[0]


def test_the_tables(tmp_path):
    projections(tmp_path, LABELS)
    header = "uid,MeSH,Problems,image,indication,comparison,findings,impression"
    row = '2,normal,,Chest,Cough,,"Clear,\nlungs.",Normal.'
    (tmp_path / "indiana_reports.csv").write_text(f"{header}\n{row}\n", encoding="utf-8-sig")
    film(tmp_path / "images" / "images_normalized" / "2_IM-1-1001.dcm.png")
    studies, funnel = studies_of("iu_xray", root=tmp_path)
    assert [(study.id, study.report.findings) for study in studies] == [("CXR2_IM-1-1001", "Clear, lungs.")]
    assert lines(funnel)["reports"] == 1


def test_dicom_films_and_their_own_idea_of_the_view(tmp_path):
    folder_of(tmp_path, {"2.xml": TWO["2.xml"]})
    projections(tmp_path, LABELS)
    (tmp_path / "2").mkdir()
    write_dicom(tmp_path / "2" / "2_IM-1-1001.dcm", [[1, 2], [3, 4]], ViewPosition="LL")
    write_dicom(tmp_path / "2" / "2_IM-1-2001.dcm", [[1, 2], [3, 4]], ViewPosition="PA")
    studies, _ = studies_of("iu_xray", root=tmp_path)
    assert [(study.id, study.view, study.width) for study in studies] == [("CXR2_IM-1-1001", None, 2)]


def r2gen(root, train):
    (root / "annotation.json").write_text(json.dumps({"train": train, "val": [], "test": []}))
    return root


def test_the_form_of_r2gen(tmp_path):
    row = {"id": "CXR2_IM-1", "report": "clear lungs .", "image_path": ["CXR2_IM-1/0.png", "CXR2_IM-1/1.png"]}
    r2gen(tmp_path, [row | {"split": "train"}])
    for name in row["image_path"]:
        film(tmp_path / "images" / name)
    with pytest.raises(FileNotFoundError, match="which films are frontal"):
        studies_of("iu_xray", root=tmp_path)
    studies, _ = studies_of("iu_xray", root=tmp_path, lateral=True)
    assert [(study.id, study.view, study.split) for study in studies] == [
        ("CXR2_IM-1/0", None, "train"), ("CXR2_IM-1/1", None, "train"),
    ]  # fmt: skip
    studies, funnel = studies_of("iu_xray", root=tmp_path, projections=projections(tmp_path, LABELS))
    assert [study.id for study in studies] == ["CXR2_IM-1/0"]
    assert drops(funnel) == {"lateral view": 1}


def test_prior_examinations_and_blanks(tmp_path):
    text = "Unchanged small left effusion. The XXXX is enlarged."
    folder_of(tmp_path, {"2.xml": report(2, findings=text, images=("CXR2_IM-1-1001",))})
    projections(tmp_path, LABELS)
    film(tmp_path / "CXR2_IM-1-1001.png")
    read = {
        options: studies_of("iu_xray", root=tmp_path, **dict.fromkeys(options, True))[0][0].report.findings
        for options in ((), ("priors",), ("drop_blanks",))
    }
    assert read[()] == "Small left effusion. The XXXX is enlarged."
    assert read[("priors",)] == text
    assert read[("drop_blanks",)] == "Small left effusion."


# What is broken


def test_missing_reports_and_labels(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no reports"):
        studies_of("iu_xray", root=tmp_path)
    folder_of(tmp_path, TWO)
    with pytest.raises(FileNotFoundError, match="which films are frontal"):
        studies_of("iu_xray", root=tmp_path)


BOMB = b'<!DOCTYPE a [<!ENTITY b "cccc">]><eCitation><uId id="CXR7"/>&b;</eCitation>'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (BOMB, "XML with a document type"),
        (b"<eCitation><uId id=", "not XML"),
        (b"", "not XML"),
        (b"\xff\xfe\x00", "not XML"),
        (b"<eCitation/>", "field 'uId': no number"),
        (b'<eCitation><uId id="CXR../../etc"/></eCitation>', "field 'uId': no number"),
        (report(7, images=("../../etc/passwd",)), "field 'parentImage': not the name of an image"),
        (report(2), "report listed twice"),
        (b" " * (2 << 20), "too large"),
    ],
)
@pytest.mark.parametrize("kind", ["folder", "tgz", "zip"])
def test_a_broken_report_is_reported_and_the_rest_goes_on(tmp_path, data, message, kind):
    reports = {"2.xml": TWO["2.xml"], "7.xml": data, "9.xml": report(9)}
    if kind == "folder":
        source = folder_of(tmp_path, reports)
    elif kind == "tgz":
        source = tar_of(tmp_path / "r.tgz", {f"e/{name}": content for name, content in reports.items()})
    else:
        source = tmp_path / "r.zip"
        with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in reports.items():
                archive.writestr(f"e/{name}", content)
    context = BuildContext(out=tmp_path, seed=0)
    assert [item.number for item in read_xml(source, context)] == [2, 9]
    (found,) = problems(context.funnel.to_dict())
    assert message in found
    assert str(source) in found
    with pytest.raises(RecordError, match=message.partition("'")[0][:10]):
        read_xml(source, BuildContext(out=tmp_path, seed=0, strict=True))


@pytest.mark.parametrize("kind", ["tgz", "zip"])
def test_members_that_lead_out_of_the_archive_are_not_read(tmp_path, kind):
    names = ["../5.xml", "/etc/6.xml", "e/../../7.xml", "e/8.xml"]
    members = {name: report(int(name[-5])) for name in names}
    source = tmp_path / f"r.{kind}"
    if kind == "tgz":
        tar_of(source, members)
    else:
        with zipfile.ZipFile(source, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    context = BuildContext(out=tmp_path, seed=0)
    assert [item.number for item in read_xml(source, context)] == [8]
    assert context.funnel.problems == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [source.name]


def test_a_link_in_an_archive_is_no_report(tmp_path):
    with tarfile.open(tmp_path / "r.tgz", "w:gz") as archive:
        info = tarfile.TarInfo("e/5.xml")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    assert read_xml(tmp_path / "r.tgz", BuildContext(out=tmp_path, seed=0)) == []


def test_a_zip_member_that_lies_about_its_size(tmp_path):
    source = tmp_path / "r.zip"
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("e/5.xml", b" " * (64 << 20))
    assert source.stat().st_size < 100_000
    context = BuildContext(out=tmp_path, seed=0)
    assert read_xml(source, context) == []
    assert "too large" in problems(context.funnel.to_dict())[0]


@pytest.mark.parametrize("kind", ["tgz", "zip"])
@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9])
def test_an_archive_that_is_cut_off(tmp_path, kind, cut):
    members = {f"e/{number}.xml": report(number, findings=f"{number} " * 3000) for number in range(1, 40)}
    source = tmp_path / f"r.{kind}"
    if kind == "tgz":
        tar_of(source, members)
    else:
        with zipfile.ZipFile(source, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    source.write_bytes(source.read_bytes()[: int(source.stat().st_size * cut)])
    context = BuildContext(out=tmp_path, seed=0)
    assert len(read_xml(source, context)) < 39
    assert "damaged archive" in problems(context.funnel.to_dict())[0]


def test_labels_that_are_none(tmp_path):
    context = BuildContext(out=tmp_path, seed=0)
    path = projections(tmp_path, [(1, "1_a.png", "Sideways"), (1, "1_b.png", "Lateral")])
    assert read_projections(path, context) == {"1_b": "Lateral"}
    assert "field 'projection': not a projection: 'Sideways'" in problems(context.funnel.to_dict())[0]
    path = tmp_path / "labels.jsonl"
    path.write_text('{"images": 3}\n{"images": [{"id": "CXR1_b", "projection": "Frontal"}]}\n')
    assert read_projections(path, context) == {"1_b": "Frontal"}


def test_broken_rows_of_r2gen(tmp_path):
    good = {"id": "CXR2_IM-1", "report": "clear .", "image_path": ["CXR2_IM-1/0.png"]}
    film(tmp_path / "images" / "CXR2_IM-1" / "0.png")
    bad = [
        good | {"image_path": ["../../etc/passwd"]},
        good | {"report": 3},
        "row",
        good | {"image_path": "0.png"},
        good,
    ]
    r2gen(tmp_path, bad)
    studies, funnel = studies_of("iu_xray", root=tmp_path, lateral=True)
    assert len(studies) == 1
    assert drops(funnel) == {"broken record": 4}
    assert any("annotation.json, row 1, field 'image_path': lies outside the root" in text for text in problems(funnel))
    with pytest.raises(RecordError, match="row 1, field 'image_path'"):
        studies_of("iu_xray", root=tmp_path, lateral=True, strict=True)


def test_names_of_one_film():
    assert {film_key(name) for name in ("CXR1_IM-1-1001", "1_IM-1-1001.dcm.png", "a/b/CXR1_IM-1-1001.PNG")} == {
        "1_IM-1-1001"
    }


def test_the_first_of_two_files_of_a_film_counts(tmp_path):
    film(tmp_path / "b" / "CXR1_x.png")
    film(tmp_path / "a" / "1_x.dcm.png")
    assert FilmFolder(tmp_path).find("CXR1_x") == tmp_path / "a" / "1_x.dcm.png"
    assert FilmFolder(tmp_path).find("CXR2_x") == tmp_path / "CXR2_x.png"


def test_the_adapter_is_registered():
    assert load_adapters()["iu_xray"].summary.startswith("Read IU X-ray")
