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
"""A build that is killed, and the same build again: no row twice, none lost, the same bytes."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data.mimic_tree import Tree, make_tree
from verl_cxr.data import build as building
from verl_cxr.data.adapters import Adapter, BuildContext
from verl_cxr.data.build import Plan, build
from verl_cxr.data.engine import Processes, RayTasks
from verl_cxr.data.parts import Parts
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions
from verl_cxr.data.sample import Sample
from verl_cxr.data.workshop import FOLDER, BusyFolderError, OtherSettingsError, Workshop
from verl_cxr.files import RecordError
from verl_cxr.study import read_studies


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return make_tree(tmp_path_factory.mktemp("tree"), 1200, seed=3)


@pytest.fixture
def root(tmp_path):
    """41 studies of 30 x 20 pixels, three a patient; the last repeats an id."""
    folder = tmp_path / "mine"
    folder.mkdir()
    rows = []
    for number in range(41):
        Image.new("L", (30, 20), number).save(folder / f"{number}.png")
        rows.append({
            "id": f"s{number}", "image": f"{number}.png", "width": 30, "height": 20, "view": "PA",
            "patient": f"p{number // 3}", "report": {"findings": f"Finding {number}."},
            "regions": [{"name": "left lung", "box": [3, 2, 15, 10], "frame": "pixel_xyxy", "finding": "Clear."}],
        })  # fmt: skip
    (folder / "studies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "studies.jsonl"


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(building, "PART_ITEMS", 4)


ADAPTER = Adapter("mine", "", lambda context, *, root: read_studies(root))


def run(root, out, *, adapter=ADAPTER, stages=(Stage.SFT, Stage.GRPO), embed=False, limit=20, said=None, **changes):
    context = BuildContext(out=out, seed=1, strict=changes.pop("strict", False))
    plan = Plan(sample=Sample(limit=limit), keep_records=True, **changes.pop("plan", {}))
    rows = RowOptions("mine", embed_images=embed)
    say = (lambda sentence: None) if said is None else said.append
    files = build(
        adapter, {"root": root}, context, stages=stages, rows=rows, plan=plan, say=say,
        max_side=15, validate_fraction=0.3, **changes,
    )  # fmt: skip
    return files, context.funnel.to_dict()


def contents(out):
    """Every file of a build, but for the name of its own folder, which rows with scaled films hold."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    if "card.json" in files:
        files["card.json"] = json.loads(files["card.json"]) | {"sha256": None}
    tables = {name: pq.read_table(out / name).to_pylist() for name in files if name.endswith(".parquet")}
    return files | {name: repr(rows).replace(str(out), "OUT") for name, rows in tables.items()}


class Crash(BaseException):
    """What a kill is to the code that it meets: nothing handles it."""


@pytest.mark.parametrize("embed", [False, True])
def test_a_crash_at_any_write_changes_nothing(root, tmp_path, monkeypatch, small_parts, embed):
    """41 studies in parts of 4 are 11 parts, each written as made and as filmed; then files are put in place."""
    expected_files, expected_funnel = run(root, tmp_path / "whole", embed=embed)
    expected = contents(tmp_path / "whole")
    out = tmp_path / "out"
    real_write, real_replace = Parts.write, os.replace
    crashes = []

    def crash_once(place):
        if place not in crashes:
            crashes.append(place)
            raise Crash

    def write(self, number, tables, state, kind="made"):
        if number % 3 == 1:
            crash_once((kind, number))
        real_write(self, number, tables, state, kind)
        if number % 3 == 2:
            crash_once((kind, number))

    def put(source, target):
        if Path(target).parent == out:
            crash_once(("place", Path(target).name))
        real_replace(source, target)

    monkeypatch.setattr(Parts, "write", write)
    monkeypatch.setattr("verl_cxr.data.workshop.os.replace", put)
    for _ in range(60):
        try:
            files, funnel = run(root, out, embed=embed)
            break
        except Crash:
            continue
    assert (files, funnel) == (expected_files, expected_funnel)
    assert contents(out) == expected
    assert {kind for kind, _ in crashes} == {"made", "filmed", "place"}
    assert len(crashes) >= 14
    assert not (out / FOLDER).exists()


def test_a_build_killed_by_the_system_goes_on(tree, tmp_path):
    """kill -9 of the command and, with it, of its workers; more than once."""
    command = [
        sys.executable, "-m", "verl_cxr.cli", "data", "build", "mimic_cxr", "--root", str(tree.mimic), "--imagenome",
        str(tree.imagenome), "--stage", "grpo",
    ]  # fmt: skip
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert subprocess.run([*command, "--out", str(whole)], capture_output=True, check=True)
    parts = Parts(out / FOLDER / "parts")
    for least in (1, 3):
        killed = subprocess.Popen(
            [*command, "--out", str(out), "--workers", "2"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + 60
        while len(parts.numbers()) < least and killed.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL, "it was over before it was killed"
        assert not list(out.glob("*.parquet"))
        group = killed.pid
        while _alive(group) and time.monotonic() < until:
            time.sleep(0.01)
        assert not _alive(group), "workers outlived the build"
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=True)
    assert "continuing the interrupted build" in done.stderr
    for path in whole.glob("*.parquet"):
        assert (out / path.name).read_bytes() == path.read_bytes()
    first, second = (json.loads((folder / "card.json").read_text()) for folder in (whole, out))
    assert first.pop("command") != second.pop("command")
    assert first == second


def _alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("engine", [Processes(2), RayTasks(2)], ids=["processes", "ray"])
def test_engines_give_the_same(root, tmp_path, engine, small_parts):
    expected = run(root, tmp_path / "one")
    assert run(root, tmp_path / "other", plan={"engine": engine}) == expected
    assert contents(tmp_path / "other") == contents(tmp_path / "one")


def test_an_error_of_a_worker_arrives_whole(root, tmp_path, small_parts):
    (root.parent / "30.png").write_bytes(b"no film")
    with pytest.raises(RecordError, match=r"30\.png, field 'image': not an image file: study s30"):
        run(root, tmp_path / "out", strict=True, plan={"engine": Processes(2)})
    assert not list((tmp_path / "out").glob("*.parquet"))


def interrupted(root, out, monkeypatch, **options):
    """Leave two parts of a build in `out`."""
    with monkeypatch.context() as patch:
        real = Parts.write

        def write(self, number, tables, state, kind="made"):
            if number == 2:
                raise Crash
            real(self, number, tables, state, kind)

        patch.setattr(Parts, "write", write)
        with pytest.raises(Crash):
            run(root, out, **options)


def test_an_interrupted_build_is_not_mixed_with_another(root, tmp_path, monkeypatch, small_parts):
    out = tmp_path / "out"
    interrupted(root, out, monkeypatch)
    with pytest.raises(OtherSettingsError, match=r"other settings \(limit: 20, now 30\).*--restart"):
        run(root, out, limit=30)
    said = []
    run(root, out, said=said)
    assert said == ["continuing the interrupted build: 2 parts are done"]
    expected = contents(out)

    interrupted(root, out, monkeypatch, limit=30)
    assert contents_without_work(out) == expected  # the finished build stays until the next one is whole
    said.clear()
    run(root, out, plan={"restart": True}, said=said)
    assert said == ["the interrupted build in this folder was thrown away"]
    assert contents(out) == expected


def contents_without_work(out):
    return {name: data for name, data in contents(out).items() if not name.startswith(FOLDER)}


def test_a_changed_input_starts_over(root, tmp_path, monkeypatch, small_parts):
    out, said = tmp_path / "out", []
    interrupted(root, out, monkeypatch)
    rows = root.read_text().splitlines()
    root.write_text("\n".join(rows[1:]) + "\n")
    run(root, out, said=said)
    assert said == ["the input changed since the interrupted build in this folder: starting over"]
    run(root, tmp_path / "fresh")
    assert contents(out) == contents(tmp_path / "fresh")


def test_parts_about_other_records_are_made_again(root, tmp_path, monkeypatch, small_parts):
    """Even where size and time of the input tell nothing: a part knows its ids."""
    out = tmp_path / "out"
    monkeypatch.setattr(building, "_inputs", lambda values: {})
    interrupted(root, out, monkeypatch)
    rows = root.read_text().splitlines()
    root.write_text("\n".join([*rows[:5], rows[40], *rows[5:40]]) + "\n")
    run(root, out)
    run(root, tmp_path / "fresh")
    assert contents(out) == contents(tmp_path / "fresh")


def test_two_builds_into_one_folder(root, tmp_path):
    with Workshop.opened(tmp_path / "out"), pytest.raises(BusyFolderError, match="another process is building"):
        run(root, tmp_path / "out")


def test_a_second_row_of_an_id_is_dropped_and_counted(root, tmp_path, small_parts):
    def twice(context, *, root):
        yield from read_studies(root)
        yield from read_studies(root)

    files, funnel = run(root, tmp_path / "out", adapter=replace(ADAPTER, studies=twice), limit=None)
    expected, _ = run(root, tmp_path / "once", limit=None)
    assert files == expected
    assert [drop for drop in funnel["dropped"] if drop["reason"] == "id occurs before"] == [
        {"stage": stage, "reason": "id occurs before", "studies": 41} for stage in ("grpo", "sft")
    ]
