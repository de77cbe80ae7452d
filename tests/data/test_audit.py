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
"""What two sets share, and the guard that keeps one out of the other."""

import json

import pytest
from mimic_tree import make_tree
from PIL import Image
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.data.audit import FilmSet, LeakGuard, compare, read_set
from verl_cxr.study import read_studies


@pytest.fixture
def sets(tmp_path):
    """Two files of studies: film `c2` copies `a1`, `a2` is in both, patient p3 has a film in each."""

    def film(name, shade, size=32):
        Image.new("L", (size, size), shade).save(tmp_path / f"{name}.png")

    def record(name, patient, image=None, **more):
        known = {"patient": patient} if patient else {}
        return {"id": name, "image": f"{image or name}.png", "width": 32, "height": 32, "regions": []} | known | more

    for shade, name in enumerate(("a1", "a2", "a3", "b3", "b4")):
        film(name, 40 * shade)
    (tmp_path / "c2.png").write_bytes((tmp_path / "a1.png").read_bytes())
    first = [record("a1", "p1"), record("a2", None), record("a3", "p3", split="validate")]
    second = [record("c2", "p2"), record("a2", None), record("b3", "p3"), record("b4", "p4"), record("gone", "p5")]
    for name, rows in (("first", first), ("second", second)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "first.jsonl", tmp_path / "second.jsonl"


def test_patients_films_and_contents(sets):
    overlap = compare(*map(read_set, sets))
    assert overlap.patients == ("p3",)
    assert overlap.films == ("a2",)
    assert overlap.contents == (("a1", "c2"), ("a2", "a2"))
    assert overlap.without_patient == 2
    assert overlap.unreadable == 1
    assert overlap


def test_splits(sets):
    first, second = sets
    assert compare(read_set(first, {"train"}), read_set(second)).patients == ()
    assert read_set(first, {"validate"}).films == {"a3"}
    assert not compare(read_set(first, {"validate"}), read_set(first, {"train"}))


def test_only_films_of_one_size_are_opened(tmp_path, monkeypatch):
    first, second = FilmSet(), FilmSet()
    for films, names in ((first, ("aa", "b")), (second, ("ccc", "d"))):
        for name in names:
            (tmp_path / name).write_text(name)
            films.add(name, None, tmp_path / name)
    opened = []
    monkeypatch.setattr("verl_cxr.data.audit._digest", lambda file: opened.append(file.name) or b"x")
    assert compare(first, second).contents == (("b", "d"),)
    assert sorted(opened) == [str(tmp_path / "b"), str(tmp_path / "d")]


def test_a_file_that_vanishes_is_counted(tmp_path):
    (tmp_path / "x").write_text("x")
    first, second = FilmSet(), FilmSet()
    first.add("a", "p", tmp_path / "x")
    second.add("b", "q", b"x")
    assert compare(first, second).contents == (("a", "b"),)
    (tmp_path / "x").unlink()
    assert compare(first, second).unreadable == 1


def test_guard(sets):
    first, second = sets
    guard = LeakGuard([read_set(second)])
    reasons = [guard.reason(study) for study in read_studies(first)]
    assert reasons == [
        "leak guard: copy of a guarded film",
        "leak guard: film of a guarded set",
        "leak guard: patient of a guarded set",
    ]
    assert [LeakGuard([]).reason(study) for study in read_studies(first)] == [None] * 3
    guard = LeakGuard([read_set(first)])
    assert [guard.reason(study) for study in read_studies(second)][3:] == [None, None]


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


@pytest.mark.parametrize("embed", [[], ["--embed-images"]])
def test_a_built_set_shares_nothing_between_its_splits(tmp_path, embed):
    tree = make_tree(tmp_path / "tree", 80)
    out = tmp_path / "out"
    built = run("build", "mimic_cxr", "--root", tree.mimic, "--imagenome", tree.imagenome, "--out", out, *embed)
    assert built.exit_code == 0, built.output
    result = run("audit", out, out, "--split-first", "train", "--split-second", "validate,test")
    assert result.exit_code == 0, result.output
    films = read_set(out)
    assert films.without_patient == films.unreadable == 0
    assert tree.quirks["gold patient"] not in films.films

    report = tmp_path / "audit.json"
    result = run("audit", out, next(iter(sorted(out.glob("sft_train*.parquet")))), "--out", report)
    assert result.exit_code == 1
    found = json.loads(report.read_text())
    assert found["films"]["shared"] == found["contents"]["shared"] == len(read_set(out, {"train"}).films)
    assert found["patients"]["shared"] > 0


def test_a_build_trains_on_nothing_of_a_guarded_set(tmp_path):
    tree = make_tree(tmp_path / "tree", 12, quirks=False)
    arguments = ["build", "mimic_cxr", "--root", tree.mimic, "--stage", "sft", "--out"]
    assert run(*arguments, tmp_path / "all").exit_code == 0
    films = read_set(tmp_path / "all")
    patient = sorted(films.patients)[0]
    guarded = films.patients[patient]
    (tmp_path / "eval.jsonl").write_text(
        json.dumps({"id": "other", "width": 9, "height": 9, "regions": [], "patient": patient}) + "\n"
    )
    result = run(*arguments, tmp_path / "guarded", "--guard", tmp_path / "eval.jsonl")
    assert result.exit_code == 0, result.output
    assert read_set(tmp_path / "guarded").films == films.films - guarded
    assert not compare(read_set(tmp_path / "guarded"), read_set(tmp_path / "eval.jsonl"))
    card = json.loads((tmp_path / "guarded" / "card.json").read_text())
    assert {"stage": "all", "reason": "leak guard: patient of a guarded set", "studies": len(guarded)} in card[
        "funnel"
    ]["dropped"]
    (tmp_path / "empty").mkdir()
    assert run(*arguments, tmp_path / "x", "--guard", tmp_path / "empty").exit_code == 2


def test_an_audit_of_nothing_is_an_error(sets, tmp_path):
    result = run("audit", *sets, "--split-second", "tset")
    assert result.exit_code == 2
    assert "proves nothing" in result.output
    (tmp_path / "empty").mkdir()
    assert run("audit", sets[0], tmp_path / "empty").exit_code == 2
    (tmp_path / "x.jsonl").write_text("{}\n")
    assert run("audit", sets[0], tmp_path / "x.jsonl").exit_code == 2
