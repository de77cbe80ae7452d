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
"""The view backends: stated views, files of readings, and a process that may do anything."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from chests import film

from verl_cxr.measure import ViewError, ViewReading, certain, make_view
from verl_cxr.measure.view import view_name
from verl_cxr.measure.view.kept import KeptViews
from verl_cxr.measure.view.opencxr import OpencxrView

STAND_IN = Path(__file__).with_name("stand_in_sorter.py")
FILM = film(64, 48)


def write(path, *rows):
    path.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
    return path


@pytest.mark.parametrize(
    ("text", "view"),
    [("PA", "PA"), ("ap supine", "AP"), ("AP_ERECT", "AP"), ("L", "LATERAL"), ("Lateral", "LATERAL"), ("LL", "LATERAL"),
     ("notCXR", "OTHER"), ("frontal", None), ("", None), ("P A", "PA")],
)  # fmt: skip
def test_labels_as_data_sets_write_them(text, view):
    assert view_name(text) == view


def test_a_view_that_nobody_states_is_not_known():
    assert make_view("metadata").read(FILM) == ViewReading()
    assert make_view("metadata").read(replace(FILM, view="PA")) == ViewReading()  # a DICOM tag is not believed


def test_a_tag_is_believed_when_asked_and_yields_to_a_record(tmp_path):
    tagged = replace(FILM, view="PA")
    assert make_view("metadata", dicom=True).read(tagged) == certain("PA")
    records = write(tmp_path / "s.jsonl", {"id": "film", "view": "LATERAL"})
    assert make_view("metadata", dicom=True, records=records, view="AP").read(tagged) == certain("LATERAL")
    assert make_view("metadata", dicom=True, view="AP").read(tagged) == certain("AP")


def test_records_are_studies_or_questions(tmp_path):
    records = write(
        tmp_path / "s.jsonl",
        {"id": "a", "image": "images/one.png", "view": "PA"},
        {"id": "q1", "images": ["images/two.png"], "view": "AP"},
        {"id": "q2", "images": ["images/two.png"], "view": "AP"},
        {"id": "q3", "images": ["images/two.png", "images/three.png"], "view": "PA"},
        {"id": "b", "image": "images/four.png", "view": None},
    )
    backend = make_view("metadata", records=records)
    read = {name: backend.read(replace(FILM, path=tmp_path / "images" / f"{name}.png")).view
            for name in ("one", "two", "three", "four")}  # fmt: skip
    assert read == {"one": "PA", "two": "AP", "three": None, "four": None}
    assert backend.read(replace(FILM, path=Path("/copied/one.png"))).view == "PA"


def test_two_views_of_one_film_are_refused(tmp_path):
    records = write(tmp_path / "s.jsonl", {"image": "a.png", "view": "PA"}, {"image": "a.png", "view": "AP"})
    with pytest.raises(ViewError, match=r"row 2: .*AP here and PA"):
        make_view("metadata", records=records)


READING = {"probabilities": {"PA": 0.6, "AP": 0.3, "LATERAL": 0.1, "OTHER": 0.0}, "rotated": 0.2}


def test_a_file_of_readings(tmp_path):
    by_hash = READING | {"sha256": "f" * 64}
    backend = make_view("precomputed", file=write(tmp_path / "v.jsonl", READING | {"id": "film"}, by_hash))
    assert backend.read(FILM) == ViewReading(READING["probabilities"], rotated=0.2)
    assert backend.read(replace(FILM, path=Path("/other.png"), sha256="f" * 64)).view == "PA"
    assert backend.read(replace(FILM, path=Path("/other.png"))) == ViewReading()


@pytest.mark.parametrize(
    "rows",
    [[READING], [{"id": "a", "probabilities": {}}], [READING | {"id": "a"}, READING | {"id": "a"}]],
)
def test_a_damaged_file_of_readings_names_the_row(rows, tmp_path):
    with pytest.raises(ViewError, match="row"):
        make_view("precomputed", file=write(tmp_path / "v.jsonl", *rows))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("guess", {}, "metadata, precomputed, opencxr"),
        ("metadata", {"view": "frontal"}, "not a view"),
        ("metadata", {"cache": "/tmp/x"}, "no use for a cache"),
        ("precomputed", {}, "file"),
        ("opencxr", {}, "python=INTERPRETER"),
        ("opencxr", {"python": "a", "command": ["b"]}, "python=INTERPRETER"),
        ("opencxr", {"python": "a", "film_s": 0}, "film_s"),
    ],
)
def test_a_wrong_choice_says_what_would_be_right(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_view(name, **options)


# --- the process


def sorter(mode, *, starts=None, **options):
    command = [sys.executable, str(STAND_IN), mode, *([str(starts)] if starts else [])]
    return OpencxrView(command=command, **({"film_s": 20.0, "start_s": 20.0} | options))


@pytest.mark.parametrize("mode", ["good", "chatter"])
def test_the_answer_of_the_process(mode):
    backend = sorter(mode)
    reading = backend.read(FILM)
    assert reading.probabilities == {"PA": 0.9, "AP": 0.06, "LATERAL": 0.03, "OTHER": 0.01}
    assert (reading.rotated, reading.inverted, reading.flipped) == (pytest.approx(0.02), 0.25, 0.125)
    assert backend.read(FILM) == reading  # the same process answers again
    backend.close()


def test_a_process_that_dies_once_is_started_again(tmp_path):
    backend = sorter("dies_once", starts=tmp_path / "starts")
    assert backend.read(FILM).view == "PA"
    backend.read(FILM)
    assert (tmp_path / "starts").read_text() == "xx"
    backend.close()


def test_a_process_that_keeps_dying_is_given_up_with_what_it_said(tmp_path):
    backend = sorter("dies", starts=tmp_path / "starts", restarts=1)
    with pytest.raises(ViewError, match="ended with code 1: Segmentation fault"):
        backend.read(FILM)
    assert (tmp_path / "starts").read_text() == "xx"


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("no_start", {"restarts": 0}, "no module named tensorflow"),
        ("slow_start", {"start_s": 0.3, "restarts": 0}, "more than 0.3 s to be ready"),
        ("hangs", {"film_s": 0.3, "restarts": 0}, "more than 0.3 s for a film"),
        ("flood", {"restarts": 0}, "no answer"),
        ("error", {}, "could not sort a film: ValueError: too small"),
        ("nan", {}, "no answer of OpenCXR's form"),
        ("short", {}, "no answer of OpenCXR's form"),
        ("missing", {}, "no answer of OpenCXR's form"),
        ("null", {}, "no answer of OpenCXR's form"),
    ],
)
def test_a_process_that_misbehaves_is_an_error_and_not_an_unknown_view(mode, options, message):
    backend = sorter(mode, **options)
    with pytest.raises(ViewError, match=message):
        backend.read(FILM)
    backend.close()


def test_a_command_that_is_not_there():
    with pytest.raises(ViewError, match="cannot start /no/such/python"):
        OpencxrView(python="/no/such/python").read(FILM)


def test_the_process_ends_with_its_backend():
    backend = sorter("good")
    backend.read(FILM)
    process = backend._process._popen
    assert process.poll() is None
    backend.close()
    assert process.poll() is not None


def test_threads_share_one_process(tmp_path):
    backend = sorter("good", starts=tmp_path / "starts")
    found = []
    threads = [threading.Thread(target=lambda: found.append(backend.read(FILM))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 6
    assert (tmp_path / "starts").read_text() == "x"
    backend.close()


def test_the_worker_speaks_the_protocol(tmp_path):
    """The real worker, in front of an opencxr of ours that prints as the real one does."""
    package = tmp_path / "opencxr"
    (package / "utils").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import os\n"
        "class algorithms: image_sorter = 'ImageSorterAlgorithm'\n"
        "class Sorter:\n"
        "    def run(self, pixels):\n"
        "        print('1/1 [====]'); os.system('echo from below')\n"
        "        return {'Type': 'AP', 'Type_Probs_PA_AP_lateral_notCXR': [0.25, 0.5, 0.125, 0.125],\n"
        "                'Rotation_Probs_0_90_180_270': [1.0, 0.0, 0.0, 0.0], 'Inversion_Probs_No_Yes': [1.0, 0.0],\n"
        "                'Lateral_Flip_Probs_No_Yes': [1.0, 0.0]}\n"
        "def load(name):\n"
        "    assert name == 'ImageSorterAlgorithm'\n"
        "    return Sorter()\n"
    )
    (package / "utils" / "__init__.py").write_text("")
    (package / "utils" / "file_io.py").write_text(
        "from PIL import Image\n"
        "def read_file(path):\n"
        "    assert Image.open(path).size == (64, 48)\n"
        "    return 'pixels', 1, ''\n"
    )
    worker = Path(OpencxrView(python=sys.executable).command[1])
    run = (
        f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); "
        f"runpy.run_path({str(worker)!r}, run_name='__main__')"
    )
    backend = OpencxrView(command=[sys.executable, "-c", run])
    reading = backend.read(FILM)
    assert reading.view == "AP"
    assert reading.probabilities["PA"] == 0.25
    assert reading.rotated == 0
    backend.close()


def test_the_worker_needs_nothing_of_this_package():
    worker = Path(OpencxrView(python=sys.executable).command[1])
    imports = [
        line.split()[1] for line in worker.read_text().splitlines() if line.strip().startswith(("import ", "from "))
    ]
    assert set(imports) <= {"json", "os", "sys", "typing", "opencxr", "opencxr.utils.file_io"}


def test_readings_are_kept_on_disk(tmp_path):
    class Counting:
        name, calls = "counting", 0

        def read(self, asked):
            self.calls += 1
            return certain("PA")

    first, second = Counting(), Counting()
    assert KeptViews(first, folder=tmp_path).read(FILM) == KeptViews(second, folder=tmp_path).read(FILM)
    assert (first.calls, second.calls) == (1, 0)
    (file,) = tmp_path.rglob("*.json")
    file.write_text("{")
    assert KeptViews(second, folder=tmp_path).read(FILM) == certain("PA")
    assert second.calls == 1
