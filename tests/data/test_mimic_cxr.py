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
"""MIMIC-CXR with Chest ImaGenome: every quirk of the published archives, on a miniature of them."""

import csv
import gzip
import io
import pickle
import zipfile

import pytest
from mimic_tree import SENTENCES, make_tree
from PIL import Image
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.data.adapters import BuildContext, Deferred, load_adapters, read_item
from verl_cxr.data.imagenome.regions import region_set
from verl_cxr.files import RecordError
from verl_cxr.reports.prior import without_priors
from verl_cxr.reports.sections import split_report
from verl_cxr.reports.text import clean_text

TRAIN_QUIRKS_DROPPED = {
    "empty report": "neither findings nor impression",
    "no section": "neither findings nor impression",
    "last paragraph": "neither findings nor impression",
    "prior only": "nothing left without mentions of earlier examinations",
    "no report": "no report",
    "no split": "no split",
    "unknown split": "no split",
    "no size": "no size in the metadata",
    "gold patient": "leak guard: patient of Chest ImaGenome's gold set",
    "patient of two splits": "leak guard: patient of an evaluation split",
}
"""Quirk, and the reason for which its film is dropped."""


def read(tree, *, graphs=True, strict=False, **options):
    """Studies by id, and the build's funnel."""
    context = BuildContext(out=tree.mimic.parent / "out", seed=0, strict=strict)
    options = {"root": tree.mimic, "imagenome": tree.imagenome if graphs else None} | options
    studies = {}
    for item in load_adapters()["mimic_cxr"].studies(context, **options):
        assert isinstance(item, Deferred)
        if (study := read_item(item, context)) is not None:
            assert study.id == item.id
            studies[study.id] = study
    return studies, context.funnel.to_dict()


def lines(funnel):
    return {line["line"]: line["count"] for line in funnel["lines"]}


def drops(funnel):
    return {drop["reason"]: drop["studies"] for drop in funnel["dropped"]}


def problems(funnel):
    return {problem["problem"]: problem for problem in funnel["problems"]}


def regions(study):
    return {region.name: region for region in study.regions}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return make_tree(tmp_path_factory.mktemp("mimic"), 60)


@pytest.fixture(scope="module")
def built(tree):
    return read(tree)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A sound tree, without quirks."""
    return make_tree(tmp_path_factory.mktemp("plain"), 12, quirks=False)


def test_a_study_is_a_film_with_its_report_and_its_regions(plain):
    studies, funnel = read(plain)
    assert len(studies) == plain.frontal
    assert funnel["problems"] == []
    study = next(iter(studies.values()))
    assert study.patient == f"p{study.image.parents[1].name[1:]}"
    assert study.image.is_file()
    assert Image.open(study.image).size == (study.width, study.height)
    assert (study.view, study.split, study.source) == ("PA", "train", "MIMIC-CXR")
    assert study.report.findings
    assert "\n" not in study.report.text
    assert study.regions
    for region in study.regions:
        assert region.finding in study.report.text or len(region.finding) > 60
        assert region.box is None or (region.box.is_inside and not region.box.is_degenerate)


def test_order_is_fixed_and_by_patient(plain):
    studies, _ = read(plain)
    folders = [(study.patient, study.image.parent.name, study.view != "PA", study.id) for study in studies.values()]
    assert folders == sorted(folders)
    assert list(read(plain)[0].values()) == list(studies.values())


def test_the_funnel_adds_up_and_stands_beside_the_paper(tree, built):
    studies, funnel = built
    count, dropped = lines(funnel), drops(funnel)
    assert count["films listed"] == tree.films
    assert count["reports they belong to"] == tree.reports
    assert {line["line"]: line["paper"] for line in funnel["lines"] if line["paper"]} == {
        "films listed": 377_110, "reports they belong to": 227_835, "film-report pairs": 213_073, "boxes": 642_703,
    }  # fmt: skip
    assert count["films of a view that is used"] == tree.frontal
    views = sum(dropped[r] for r in ("lateral view", "another view than PA, AP or lateral", "no view stated"))
    assert tree.films - views == tree.frontal
    before = sum(dropped[r] for r in ("no size in the metadata", "no report", "neither findings nor impression"))
    assert count["film-report pairs"] == tree.frontal - before
    assert sum(dropped.values()) + len(studies) == tree.films
    assert count["boxes"] == sum(region.box is not None for study in studies.values() for region in study.regions)


def test_views(tree, built):
    studies, funnel = built
    assert drops(funnel)["another view than PA, AP or lateral"] == 5
    assert drops(funnel)["no view stated"] == 1
    assert tree.quirks["views"] in studies  # the PA film of that study
    assert {study.view for study in studies.values()} == {"PA", "AP"}


def test_lateral_films_are_kept_for_a_build_that_keeps_them(plain):
    context = BuildContext(out=plain.mimic, seed=0, lateral=True)
    adapter = load_adapters()["mimic_cxr"].studies(context, root=plain.mimic, imagenome=plain.imagenome)
    studies = [read_item(item, context) for item in adapter]
    lateral = [study for study in studies if study.view == "LATERAL"]
    assert len(lateral) == plain.films - plain.frontal
    assert all(study.regions == () for study in lateral)


@pytest.mark.parametrize(("quirk", "reason"), TRAIN_QUIRKS_DROPPED.items())
def test_what_is_dropped_is_counted_with_its_reason(tree, built, quirk, reason):
    studies, funnel = built
    assert tree.quirks[quirk] not in studies
    expected = sum(other == reason for other in TRAIN_QUIRKS_DROPPED.values())
    assert drops(funnel)[reason] == expected


def test_reports(tree, built):
    studies, funnel = built

    def report(quirk):
        return studies[tree.quirks[quirk]].report

    assert report("addendum").findings == "The lungs are clear."
    assert report("addendum").impression == "Heart size is mildly enlarged."
    assert report("two impressions").impression == "Small left effusion."
    assert (report("both in one").findings, report("both in one").impression) == (None, "Mild bibasilar atelectasis.")
    assert report("title").findings == "Heart size is mildly enlarged."
    assert report("not utf-8").findings == "The lungs are cl\xe9ar."
    assert problems(funnel)["not UTF-8"]["count"] == 1
    assert "s5" in problems(funnel)["no report"]["examples"][0]


def test_the_last_paragraph_serves_on_request(tree):
    studies, funnel = read(tree, last_paragraph=True)
    assert studies[tree.quirks["last paragraph"]].report.findings == "The lungs are clear. No effusion."
    assert studies[tree.quirks["no section"]].report.findings == "The lungs are clear."
    assert drops(funnel)["neither findings nor impression"] == 1


def test_mentions_of_earlier_examinations_are_removed_unless_they_are_asked_for(plain):
    studies, _ = read(plain)
    kept, _ = read(plain, priors=True)
    text = " ".join(study.report.text for study in studies.values())
    assert "nchanged" not in text
    assert "ompared" not in text
    assert "Small left pleural effusion." in text
    assert "There is consolidation in the right lower lobe." in text
    assert "Unchanged small left pleural effusion." in " ".join(study.report.text for study in kept.values())
    findings = {region.finding for study in studies.values() for region in study.regions}
    assert not any("nchanged" in finding for finding in findings)


def test_blanks(tree, tmp_path):
    report = " FINAL REPORT\n FINDINGS:  The lungs are clear.  Dr. ___ was told at ___.\n"
    (path,) = tree.mimic.rglob(f"*/{tree.quirks['no graph']}.jpg")
    file = path.parent.with_suffix(".txt")
    before = file.read_text()
    file.write_text(report)
    try:
        kept, _ = read(tree)
        dropped, _ = read(tree, drop_blanks=True)
    finally:
        file.write_text(before)
    assert kept[tree.quirks["no graph"]].report.findings == "The lungs are clear. Dr. ___ was told at ___."
    assert dropped[tree.quirks["no graph"]].report.findings == "The lungs are clear."


def test_overrides_of_sections_by_file(tree, tmp_path):
    (path,) = tree.mimic.rglob(f"*/{tree.quirks['last paragraph']}.jpg")
    file = tmp_path / "overrides.yaml"
    file.write_text(f"{path.parent.name}: indication\n")
    studies, _ = read(tree, section_overrides=file)
    assert studies[tree.quirks["last paragraph"]].report.impression == "Cough. The lungs are clear. No effusion."


def test_boxes_are_clipped_joined_and_dropped(tree, built):
    studies, funnel = built
    found = regions(studies[tree.quirks["boxes overrun"]])
    assert [found["right lung"].box.x1, found["right lung"].box.y1] == [0, 0]
    assert [found["right lung"].box.x2, found["right lung"].box.y2] == [120, 305]  # the film is 250 x 305
    assert found["left lung"].box is None
    heart = found["cardiac silhouette"].box
    assert (heart.x1, heart.y1, heart.x2, heart.y2) == (
        100,
        100,
        180,
        200,
    )  # (100..150, 100..200) and (140..180, 150..200)
    discarded = {(d["unit"], d["reason"]): d["count"] for d in funnel["discarded"]}
    assert discarded["boxes", "no area on the film"] == 1
    assert discarded["boxes", "joined with another box of the region"] == 1


def test_a_box_that_is_no_box_is_reported_with_its_file_film_and_field(tree):
    _, funnel = read(tree, silent_regions=True)
    problem = problems(funnel)["not a box in pixels of the film"]
    assert problem["count"] == 2
    assert "scene_graph.zip" in problem["examples"][0]
    assert f"{tree.quirks['boxes overrun']}: objects" in problem["examples"][0]


def test_attributes_without_object_unknown_regions_and_broken_phrases(tree, built):
    studies, funnel = built
    found = regions(studies[tree.quirks["odd attributes"]])
    assert found["neck"].box is None
    assert found["neck"].finding == "A tracheostomy tube is present."
    assert "left ear" not in found
    assert found["right lung"].box is None
    assert found["aortic arch"].finding == "The aortic arch is calcified."
    assert {"a phrase is text, not a number", "a phrase is text, not null", "phrases are a list, not text"} <= problems(
        funnel
    ).keys()


@pytest.mark.parametrize(
    ("quirk", "problem"),
    [
        ("graph not json", "not JSON"),
        ("graph of wrong type", "must be a list, not an object"),
        ("graph is a list", "a scene graph is an object, not a list"),
        ("lateral graph", "not a frontal view"),
        ("graph of another image", "the scene graph of another film"),
        ("bomb", "too large"),
    ],
)
def test_a_broken_scene_graph_costs_the_regions_and_not_the_report(tree, built, quirk, problem):
    studies, funnel = built
    study = studies[tree.quirks[quirk]]
    assert study.regions == ()
    assert study.report.text == "The lungs are clear. Heart size is mildly enlarged."
    assert any(tree.quirks[quirk] in example for example in problems(funnel)[problem]["examples"])


def test_films_without_scene_graph_or_phrase_are_an_option(tree):
    report, _ = read(tree)
    silent, silent_graph = tree.quirks["no graph"], tree.quirks["no phrase"]
    assert report[silent].regions == report[silent_graph].regions == ()
    boxes, _ = read(tree, without_phrase="boxes")
    assert boxes[silent].regions == ()
    assert len(boxes[silent_graph].regions) == 29
    assert {region.finding for region in boxes[silent_graph].regions} == {""}
    dropped, funnel = read(tree, without_phrase="drop")
    assert silent not in dropped
    assert silent_graph not in dropped
    assert drops(funnel)["no region with a phrase"] == len(report) - len(dropped) > 0
    with pytest.raises(ValueError, match="without-phrase"):
        read(tree, without_phrase="keep")


@pytest.mark.parametrize(("name", "boxed", "described"), [("29", 29, 29), ("36", 36, 29), ("38", 29, 38)])
def test_region_sets(name, boxed, described):
    from verl_cxr.anatomy import load_vocabulary

    known = load_vocabulary().regions
    names = region_set(name)
    assert sum(known[region].boxed for region in names) == boxed
    assert sum(known[region].described for region in names) == described
    with pytest.raises(ValueError, match="29, 36, 38"):
        region_set("30")


def test_region_sets_decide_what_a_study_has(plain):
    all_36, _ = read(plain, regions="36", silent_regions=True)
    assert {len(study.regions) for study in all_36.values()} == {36}
    names = {region.name for study in read(plain, regions="29")[0].values() for region in study.regions}
    assert "neck" not in names
    assert "neck" in {region.name for study in read(plain)[0].values() for region in study.regions}


def test_a_finding_is_the_phrases_once_in_the_order_of_the_report_and_capped(plain):
    studies, _ = read(plain, phrases=50)
    capped, funnel = read(plain, phrases=1)
    orders = 0
    for study in studies.values():
        places = {sentence: study.report.text.find(sentence) for sentence in _rewritten()}
        for region in study.regions:
            inside = [sentence for sentence in _rewritten() if sentence in region.finding]
            inside.sort(key=region.finding.find)
            assert " ".join(inside) == region.finding
            assert [places[sentence] for sentence in inside] == sorted(places[sentence] for sentence in inside)
            orders += len(inside) > 1
            assert regions(capped[study.id])[region.name].finding == inside[0]
        firsts = [places[next(s for s in _rewritten() if region.finding.startswith(s))] for region in study.regions]
        assert firsts == sorted(firsts)
    assert orders
    assert {(d["unit"], d["reason"]) for d in funnel["discarded"]} >= {("phrases", "beyond the cap of a region")}


def _rewritten():
    texts = (without_priors(clean_text(text)) for text, _, _ in SENTENCES)
    return [text for text in texts if text]


def test_one_film_of_a_report(plain):
    every, _ = read(plain)
    one, funnel = read(plain, one_film=True)
    assert len({study.image.parent for study in every.values()}) == len(one) == plain.reports
    assert drops(funnel)["another film of the report is used"] == len(every) - len(one)


def test_without_chest_imagenome_there_are_reports_only(tree):
    studies, funnel = read(tree, graphs=False)
    assert all(study.regions == () for study in studies.values())
    assert tree.quirks["gold patient"] in studies
    assert lines(funnel)["pairs with a scene graph"] == 0
    with pytest.raises(ValueError, match="imagenome"):
        read(tree, graphs=False, gold_boxes=True)


def test_version_2_1_0_and_unpacked_scene_graphs(tmp_path):
    zipped = make_tree(tmp_path / "a", 40, quirks=False)
    other = make_tree(tmp_path / "b", 40, quirks=False, version="2.1.0", zipped=False)
    assert not (other.imagenome / "silver_dataset" / "scene_graph.zip").exists()
    (metadata,) = other.mimic.glob("*metadata*")
    (other.mimic / "mimic-cxr-2.1.0-metadata.csv").write_bytes(gzip.decompress(metadata.read_bytes()))
    metadata.unlink()
    first, second = read(zipped)[0], read(other)[0]
    assert [study.regions for study in first.values()] == [study.regions for study in second.values()]
    assert list(first) == list(second)

    nested = other.imagenome / "silver_dataset" / "scene_graph"
    nested.rename(tmp_path / "moved")
    (tmp_path / "moved").rename(nested.with_name("x"))
    nested.mkdir()
    nested.with_name("x").rename(nested / "scene_graph")
    assert [study.regions for study in read(other)[0].values()] == [study.regions for study in first.values()]
    silver, _ = read(other, imagenome=other.imagenome / "silver_dataset")
    assert list(silver) == list(first)


def test_a_study_of_the_labelled_test_set_does_not_train(tmp_path):
    tree = make_tree(tmp_path, 4, quirks=False, version="2.1.0")
    studies, _ = read(tree)
    chosen = next(iter(studies.values()))
    path = tree.mimic / "mimic-cxr-2.1.0-test-set-labeled.csv"
    path.write_text(f"study_id,Airspace Opacity\n{chosen.image.parent.name[1:]},1.0\n")
    studies, funnel = read(tree)
    assert chosen.id not in studies
    assert drops(funnel)["leak guard: study of the labelled test set"] >= 1


def test_reports_from_their_zip_file(plain, tmp_path):
    expected, _ = read(plain)
    archive = tmp_path / "mimic-cxr-reports.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in plain.mimic.rglob("s*.txt"):
            out.write(path, path.relative_to(plain.mimic))
        out.writestr("../../files/p10/p10000032/evil.txt", "no report")
    studies, _ = read(plain, reports=archive)
    assert studies == expected
    empty = tmp_path / "empty.zip"
    zipfile.ZipFile(empty, "w").close()
    studies, funnel = read(plain, reports=empty)
    assert studies == {}
    assert drops(funnel)["no report"] == plain.frontal
    (tmp_path / "not.zip").write_bytes(b"no zip file")
    with pytest.raises(RecordError, match="not a sound zip file"):
        read(plain, reports=tmp_path / "not.zip")


def test_reports_from_the_published_table_of_sections(plain, tmp_path):
    expected, _ = read(plain)
    path = tmp_path / "mimic_cxr_sectioned.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["study", "impression", "findings", "last_paragraph", "comparison"])
        for report in sorted(plain.mimic.rglob("s*.txt"), reverse=True):
            sections = split_report(report.read_text())
            table.writerow([report.stem, sections.impression, sections.findings, None, "\xe9, ___"])
        table.writerow(["x", "", "", "", ""])
    studies, funnel = read(plain, reports=path)
    assert studies == expected
    assert problems(funnel)["not a report's row"]["count"] == 1
    study = next(iter(studies.values()))
    text = path.read_text()
    path.write_text(text.replace(study.image.parent.name, "s00000000"))
    studies, funnel = read(plain, reports=path)
    assert study.id not in studies
    assert drops(funnel)["no report"] >= 1
    path.write_text("study,findings\n")
    with pytest.raises(RecordError, match="no such column"):
        read(plain, reports=path)
    with pytest.raises(RecordError, match="unpack"):
        read(plain, reports=tmp_path / "mimic_cxr_sectioned.csv.gz")


def test_gold_boxes_are_read_by_name(tree):
    folder = tree.imagenome / "gold_dataset"
    folder.mkdir(exist_ok=True)
    film = tree.quirks["addendum"]
    # the published order of columns is x1, x2, y1, y2
    (folder / "gold_bbox_coordinate_annotations_1000images.csv").write_text(
        "image_id,x1,y1,x2,y2,width,height,bbox_name,annot_id,original_x1,original_x2,original_y1,original_y2\n"
        f"{film}.dcm,0,0,1,1,1,1,right lung,1,10,110,20,220\n"
        f"{film}.dcm,0,0,1,1,1,1,left lung,1,nan,110,20,220\n"
    )
    studies, funnel = read(tree, gold_boxes=True)
    found = regions(studies[film])
    box = found["right lung"].box
    assert (box.x1, box.y1, box.x2, box.y2) == (10, 20, 110, 220)
    assert found["left lung"].box is None
    assert problems(funnel)["not a box"]["examples"][0].startswith(str(folder))


def test_tables_with_broken_rows(tree, built):
    _, funnel = built
    found = problems(funnel)
    assert found["film listed twice"]["count"] == 1
    assert found["not a film's id"]["count"] == 2
    assert "../../../../etc/passwd" in " ".join(found["not a film's id"]["examples"])
    assert found["not a number of 8 digits"]["count"] == 1
    (example,) = found["unknown split"]["examples"]
    assert "split.csv.gz, row " in example
    assert "field 'split'" in example
    assert "'holdout'" in example


def test_a_table_that_is_cut_off_gives_its_rows_and_says_so(tmp_path):
    tree = make_tree(tmp_path, 300, quirks=False)
    every, _ = read(tree, graphs=False)
    (path,) = tree.mimic.glob("*metadata*")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    studies, funnel = read(tree, graphs=False)
    assert 0 < len(studies) < len(every)
    (example,) = problems(funnel)["damaged gzip file, the rest of it is lost"]["examples"]
    assert example.startswith(f"{path}, row ")

    path.write_bytes(data)
    (path,) = tree.mimic.glob("*split*")
    path.write_bytes(path.read_bytes()[:-2000])
    studies, funnel = read(tree, graphs=False)
    assert drops(funnel)["no split"] > 0  # a film whose split is lost is no training film
    assert len(studies) < len(every)


def test_strict_stops_at_the_first(tree):
    with pytest.raises(RecordError, match=r"metadata\.csv\.gz, row \d+, field"):
        read(tree, strict=True)


def test_a_film_in_two_splits_does_not_train(tmp_path):
    tree = make_tree(tmp_path, 2, quirks=False)
    (path,) = tree.mimic.glob("*split*")
    rows = list(csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))
    again = [*rows[1][:3], "test"]
    path.write_bytes(gzip.compress(("\n".join(",".join(row) for row in [rows[0], again, *rows[1:]]) + "\n").encode()))
    studies, _ = read(tree)
    assert {study.split for study in studies.values()} == {"test"}


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="metadata"):
        read(make_tree(tmp_path / "a", 0, quirks=False), root=tmp_path)
    tree = make_tree(tmp_path / "b", 1, quirks=False)
    (tree.imagenome / "silver_dataset" / "splits" / "images_to_avoid.csv").unlink()
    with pytest.raises(FileNotFoundError, match="images_to_avoid"):
        read(tree)
    (tree.imagenome / "silver_dataset" / "scene_graph.zip").unlink()
    with pytest.raises(FileNotFoundError, match="scene graphs"):
        read(tree)
    (path,) = tree.mimic.glob("*metadata*")
    path.write_bytes(gzip.compress(b"dicom_id,subject_id\n"))
    with pytest.raises(RecordError, match="no such column"):
        read(tree)


def test_a_film_travels_to_another_process(plain):
    context = BuildContext(out=plain.mimic, seed=0)
    items = list(load_adapters()["mimic_cxr"].studies(context, root=plain.mimic, imagenome=plain.imagenome))
    assert context.total == len(items) == plain.frontal
    for item in items[:3]:
        copy = pickle.loads(pickle.dumps(item))
        assert copy.read(context) == item.read(context)
    assert len(pickle.dumps(items)) / len(items) < 2500  # bytes


def test_a_build_of_it(tree, tmp_path):
    arguments = ["--root", tree.mimic, "--imagenome", tree.imagenome, "--out", tmp_path / "out", "--stage", "grpo"]
    result = CliRunner().invoke(app, ["data", "build", "mimic_cxr", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert "213,073" in result.output
    assert list((tmp_path / "out").glob("grpo_train*.parquet"))
