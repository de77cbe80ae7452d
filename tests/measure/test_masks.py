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
"""The mask backends: files as people write them, phantoms, boxes; and results kept by hash."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from chests import anatomy, chest, film, film_of, outlines
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from verl_cxr.data.phantom import PhantomOptions, make_phantom
from verl_cxr.measure import MaskError, Outlines, make_masks
from verl_cxr.measure.masks.kept import KeptMasks, read_outlines, write_outlines
from verl_cxr.measure.masks.precomputed import PrecomputedMasks
from verl_cxr.measure.masks.rle import decode_rle, encode_rle

MASKS = chest(60, 40)


def save(path, mask):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(mask).save(path)


def as_folder(root):
    for name, mask in MASKS.items():
        save(root / "film" / f"{name.replace(' ', '_')}.png", mask)


def as_files(root):
    for name, mask in MASKS.items():
        save(root / f"film__{name.replace(' ', '_')}.png", np.uint8(mask) * 255)


def as_npz(root):
    np.savez(root / "film.npz", **{name: np.uint8(mask) for name, mask in MASKS.items()})


def as_json(root):
    record = {"size": [40, 60], "masks": {name: encode_rle(mask) for name, mask in MASKS.items()}}
    (root / "film.json").write_bytes(orjson.dumps(record))


@pytest.mark.parametrize("write", [as_folder, as_files, as_npz, as_json])
def test_every_form_gives_the_same_masks(write, tmp_path):
    write(tmp_path)
    found = PrecomputedMasks(tmp_path).outline(film(60, 40))
    assert set(found.masks) == set(MASKS)
    assert all((found.masks[name] == mask).all() for name, mask in MASKS.items())
    assert not found.sides_assumed
    assert found.backend == "precomputed"
    assert PrecomputedMasks(tmp_path).names() == ["film"]


def test_a_film_without_masks_has_none_and_another_films_masks_are_not_taken(tmp_path):
    as_files(tmp_path)
    other = replace(film(60, 40), path=Path("/films/fil.png"))
    assert PrecomputedMasks(tmp_path).outline(other).masks == {}


def test_names_of_structures_are_those_that_people_write(tmp_path):
    for name in ("Heart", "R_lung", "lung_left"):
        save(tmp_path / "film" / f"{name}.png", MASKS["right lung"])
    found = PrecomputedMasks(tmp_path).outline(film(60, 40))
    assert set(found.masks) == {"cardiac silhouette", "right lung", "left lung"}
    assert found.get("heart") is not None
    assert found.get("rt lung") is not None
    assert found.get("trachea") is None


def test_probabilities_become_a_mask_and_a_confidence(tmp_path):
    probability = np.where(MASKS["right lung"], 0.8, 0.1).astype(np.float32)
    np.savez(tmp_path / "film.npz", right_lung=probability, left_lung=np.zeros((40, 60)))
    found = PrecomputedMasks(tmp_path).outline(film(60, 40))
    assert (found.masks["right lung"] == MASKS["right lung"]).all()
    assert found.confidence == {"right lung": pytest.approx(0.8)}
    assert found.get("left lung") is None


def test_one_mask_of_both_lungs_is_parted_and_says_that_sides_are_assumed(tmp_path):
    save(tmp_path / "film.png", MASKS["right lung"] | MASKS["left lung"])
    found = PrecomputedMasks(tmp_path).outline(film(60, 40))
    assert found.sides_assumed
    assert (found.masks["right lung"] == MASKS["right lung"]).all()
    save(tmp_path / "film.png", MASKS["right lung"])  # a single lung: nobody knows which
    assert "right lung" not in PrecomputedMasks(tmp_path).outline(film(60, 40)).masks


def test_masks_must_fit_the_film(tmp_path):
    as_folder(tmp_path)
    assert PrecomputedMasks(tmp_path).outline(film(120, 80)).grid == (40, 60)  # half as large
    with pytest.raises(MaskError, match="another film"):
        PrecomputedMasks(tmp_path).outline(film(60, 60))
    assert PrecomputedMasks(tmp_path, stretched=True).outline(film(60, 60)).masks


def bad_png(root):
    save(root / "film__heart.png", np.uint8(np.arange(2400).reshape(40, 60) % 3))


def colour(root):
    Image.new("RGB", (60, 40)).save(root / "film__heart.png")


def cut_png(root):
    as_files(root)
    for file in root.glob("*.png"):
        file.write_bytes(file.read_bytes()[:60])


def two_sizes(root):
    save(root / "film__heart.png", MASKS["right lung"])
    save(root / "film__left_lung.png", MASKS["right lung"][:20])


def twice(root):
    save(root / "film__heart.png", MASKS["right lung"])
    save(root / "film__cardiac_silhouette.png", MASKS["right lung"])


def pickled(root):
    np.savez(root / "film.npz", heart=np.array([{"a": 1}], dtype=object))


def beyond_one(root):
    np.savez(root / "film.npz", heart=np.full((4, 4), 1.5))


def three_axes(root):
    np.savez(root / "film.npz", heart=np.zeros((4, 4, 3), dtype=bool))


def cut_npz(root):
    as_npz(root)
    (root / "film.npz").write_bytes((root / "film.npz").read_bytes()[:100])


def json_text(text):
    def write(root):
        (root / "film.json").write_text(text)

    return write


@pytest.mark.parametrize(
    "write",
    [
        bad_png, colour, cut_png, two_sizes, twice, pickled, beyond_one, three_axes, cut_npz, json_text("{"),
        json_text("[]"), json_text('{"size": [2, 2], "masks": {"heart": [3]}}'),
        json_text('{"size": [2, 2], "masks": {"heart": [2, -1, 3]}}'),
        json_text('{"size": [2, 2], "masks": {"heart": "~~"}}'), json_text('{"size": [2, 2], "masks": {"heart": 4}}'),
        json_text('{"size": [2.0, 2], "masks": {}}'), json_text('{"size": [2, 2], "masks": []}'),
        json_text('{"size": [1000000, 1000000], "masks": {"heart": [1000000000000]}}'),
    ],
)  # fmt: skip
def test_a_damaged_file_is_an_error_and_not_a_missing_mask(write, tmp_path):
    write(tmp_path)
    with pytest.raises(MaskError, match="film"):
        PrecomputedMasks(tmp_path).outline(film(60, 40))


def test_run_lengths_by_hand():
    """Down the columns, background first: 3 x 2 pixels with the last of column 0 and the first of column 1."""
    mask = decode_rle([2, 2, 2], 3, 2)
    assert mask.tolist() == [[False, True], [False, False], [True, False]]
    assert encode_rle(mask) == [2, 2, 2]
    assert (decode_rle("222", 3, 2) == mask).all()  # packed: each below 16 is one character, 48 + the number
    assert decode_rle([0, 4], 2, 2).all()


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_run_lengths_and_their_packed_text_come_back(height, width, data):
    bits = data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    mask = np.array(bits).reshape(height, width)
    assert (decode_rle(encode_rle(mask), height, width) == mask).all()
    coco = pytest.importorskip("pycocotools.mask")
    packed = coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
    assert (decode_rle(packed, height, width) == mask).all()


def test_phantom_masks_are_those_of_the_film():
    options = PhantomOptions(96, 80, views=("PA", "LATERAL"))
    backend = make_masks("phantom", views=("PA", "LATERAL"))
    for index in range(6):
        phantom = make_phantom(4, index, options=options)
        found = backend.outline(film_of(phantom))
        assert all((found.masks[name] == mask).all() for name, mask in phantom.masks.items())
        assert ("right lung" in found.masks) == (phantom.study.view == "PA")


def test_a_film_that_is_not_the_phantom_of_its_name_is_refused():
    phantom = make_phantom(4, 0, options=PhantomOptions(96, 80))
    changed = replace(film_of(phantom), pixels=phantom.image[::-1])
    with pytest.raises(MaskError, match="not the phantom of that name"):
        make_masks("phantom").outline(changed)
    with pytest.raises(MaskError, match="phantom-SEED-SPLIT-INDEX"):
        make_masks("phantom").outline(film(96, 80))


def test_the_spine_of_a_phantom_lies_on_its_midline():
    phantom = make_phantom(4, 1, options=PhantomOptions(128, 128))
    spine = make_masks("phantom").outline(film_of(phantom)).masks["spine"]
    middle = phantom.truth.anatomy.center_x * 128
    assert np.abs(np.flatnonzero(spine[64]).mean() + 0.5 - middle) < 8  # moved by lean and asymmetry, by no more
    assert anatomy().tilt == 0


def test_lung_boxes_are_stamped_degraded():
    pytest.importorskip("lungs_finder")
    path = Path(__file__).parents[3] / "shared" / "data" / "organ_masks" / "images" / "gb_010.jpg"
    if not path.is_file():
        pytest.skip("the shared data are not beside this checkout")
    from verl_cxr.film import read_film

    found = make_masks("haar").outline(read_film(path))
    assert found.degraded
    right, left = found.box("right lung"), found.box("left lung")
    assert right is not None
    assert left is not None
    assert right.x1 < left.x1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("biomedparse", {}, "cxas, precomputed, phantom, haar"),
        ("phantom", {"seed": 3}, "seed"),
        ("phantom", {"views": ["SIDE"]}, "views"),
        ("precomputed", {}, "folder"),
        ("phantom", {"cache": "/tmp/x"}, "no use for a cache"),
        ("phantom", {"remember": 0}, "remember"),
    ],
)
def test_a_wrong_choice_says_what_would_be_right(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_masks(name, **options)


def test_what_a_backend_needs_is_asked_for_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder of masks"):
        make_masks("precomputed", folder=tmp_path / "none")


# --- results kept


class Counting:
    name = "counting"

    def __init__(self):
        self.calls = 0

    def outline(self, asked):
        self.calls += 1
        return outlines(chest(60, 40), confidence={"right lung": 0.9}, degraded=True)


def named(number):
    return replace(film(60, 40), sha256=f"{number:064d}")


def test_a_film_is_outlined_once_and_the_oldest_is_forgotten():
    counting = Counting()
    backend = KeptMasks(counting, remember=2)
    for number in (1, 2, 1, 3, 1, 2):
        backend.outline(named(number))
    assert counting.calls == 4  # 1, 2, 3, and 2 again


def test_two_names_of_the_same_bytes_are_two_films():
    counting = Counting()
    backend = KeptMasks(counting)
    backend.outline(film(60, 40))
    backend.outline(replace(film(60, 40), path=Path("/films/other.png")))
    assert counting.calls == 2


def test_results_on_disk_come_back_the_same_and_a_damaged_one_is_made_again(tmp_path):
    first = KeptMasks(Counting(), folder=tmp_path).outline(film(60, 40))
    counting = Counting()
    second = KeptMasks(counting, folder=tmp_path).outline(film(60, 40))
    assert counting.calls == 0
    assert all((first.masks[name] == second.masks[name]).all() for name in first.masks)
    kept = ("width", "height", "backend", "confidence", "degraded", "sides_assumed", "grid")
    assert all(getattr(first, name) == getattr(second, name) for name in kept)
    (file,) = tmp_path.rglob("*.npz")
    file.write_bytes(file.read_bytes()[:200])
    assert KeptMasks(counting, folder=tmp_path).outline(film(60, 40)).masks
    assert counting.calls == 1
    assert read_outlines(file).degraded


def test_no_masks_are_a_result_too(tmp_path):
    write_outlines(tmp_path / "a.npz", Outlines({}, 5, 4, "precomputed"))
    assert read_outlines(tmp_path / "a.npz").masks == {}


def test_threads_that_ask_for_one_film_wait_for_the_first():
    started, go = threading.Event(), threading.Event()

    class Slow(Counting):
        def outline(self, asked):
            started.set()
            go.wait(5)
            return super().outline(asked)

    slow = Slow()
    backend = KeptMasks(slow)
    threads = [threading.Thread(target=backend.outline, args=(film(60, 40),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert started.wait(5)
    go.set()
    for thread in threads:
        thread.join(5)
    assert slow.calls == 1


def test_a_failure_is_not_kept():
    class Failing(Counting):
        def outline(self, asked):
            if self.calls == 0:
                self.calls += 1
                raise MaskError("once")
            return super().outline(asked)

    backend = KeptMasks(Failing())
    with pytest.raises(MaskError, match="once"):
        backend.outline(film(60, 40))
    assert backend.outline(film(60, 40)).masks


def test_masks_of_one_film_share_a_grid_and_are_boolean():
    with pytest.raises(MaskError, match="one grid"):
        Outlines({"a": np.zeros((2, 2), bool), "b": np.zeros((3, 2), bool)}, 2, 2, "x")
    with pytest.raises(MaskError, match="boolean"):
        Outlines({"a": np.zeros((2, 2))}, 2, 2, "x")


def test_a_box_is_in_the_films_pixels_and_leaves_specks_out():
    mask = np.zeros((40, 60), dtype=bool)
    mask[10:20, 30:50] = True
    mask[39, 0] = True
    box = Outlines({"right lung": mask}, 600, 200, "x").box("right lung")
    assert (box.x1, box.y1, box.x2, box.y2) == (300, 50, 500, 100)
    assert (box.frame.width, box.frame.height) == (600, 200)
