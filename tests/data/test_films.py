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
"""Image files: what is refused, how one is scaled, and the names of written ones."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from verl_cxr.data.films import FilmJob, film_name, fitted, look_at
from verl_cxr.film import FilmError, FilmHead


@pytest.fixture
def film(tmp_path):
    """A grey ramp of 200 x 100 pixels, as JPEG and as PNG."""
    pixels = np.tile(np.linspace(0, 255, 200, dtype=np.uint8), (100, 1))
    for suffix in ("jpg", "png"):
        Image.fromarray(pixels).save(tmp_path / f"film.{suffix}")
    return tmp_path


def test_the_head_of_a_file(film):
    assert look_at(film / "film.jpg") == look_at(film / "film.png") == FilmHead(200, 100, plain=True)
    Image.fromarray(np.full((4, 6), 40000, np.uint16)).save(film / "deep.png")
    assert look_at(film / "deep.png") == FilmHead(6, 4, plain=False)  # PIL would make it white
    (film / "padded.jpg").write_bytes((film / "film.jpg").read_bytes() + b"\0" * 30)
    assert look_at(film / "padded.jpg").size == (200, 100)


@pytest.mark.parametrize("name", ["film.jpg", "film.png"])
@pytest.mark.parametrize("kept", [0.3, 0.7, 0.999])
def test_a_file_that_is_cut_off(film, name, kept):
    data = (film / name).read_bytes()
    (film / name).write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(FilmError, match=r"cut off|unreadable"):
        look_at(film / name)


def bomb(path, side):
    """A small PNG that claims `side` x `side` pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def test_files_that_are_no_films(film):
    (film / "text.jpg").write_text("no film")
    (film / "empty.png").touch()
    bomb(film / "bomb.png", 60_000)
    for name, reason in [
        ("text.jpg", "not an image"), ("empty.png", "not an image"), ("bomb.png", "too many pixels"),
        ("absent.png", "missing"),
    ]:  # fmt: skip
        with pytest.raises(FilmError, match=reason):
            look_at(film / name)
        with pytest.raises(FilmError, match=r"missing|unreadable|not an image|too many"):
            FilmJob(str(film / name), None, 10, 10).do()
    with pytest.raises(FilmError, match="unreadable"):
        look_at(film)


@pytest.mark.parametrize(
    ("size", "max_side", "expected"),
    [((200, 100), 50, (50, 25)), ((100, 300), 150, (50, 150)), ((200, 100), 200, (200, 100)),
     ((200, 100), None, (200, 100)), ((3000, 2), 100, (100, 1))],
)  # fmt: skip
def test_the_fitted_size(size, max_side, expected):
    assert fitted(*size, max_side) == expected


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_a_film_is_scaled_in_its_own_format(film, suffix):
    target = film / "out" / f"small.{suffix}"
    assert FilmJob(str(film / f"film.{suffix}"), str(target), 50, 25).do() is None
    with Image.open(target) as image:
        assert (image.size, image.mode) == ((50, 25), "L")
        assert image.format == {"jpg": "JPEG", "png": "PNG"}[suffix]
        expected = np.linspace(0, 255, 200).reshape(50, 4).mean(axis=1)
        assert np.abs(np.asarray(image)[12] - expected).max() < 4
    embedded = FilmJob(str(film / f"film.{suffix}"), None, 50, 25).do()
    assert embedded == target.read_bytes()
    assert FilmJob(str(film / f"film.{suffix}"), None, None, None).do() == (film / f"film.{suffix}").read_bytes()


def test_names_are_safe_and_tell_ids_apart():
    assert film_name("s1", "a/b.jpeg") == "s1.jpg"
    assert film_name("s1", "a/b.dcm") == "s1.png"
    names = [film_name(name, "x.png") for name in ("../a", "..\\a", "_a", "a/b", "a_b", "a" * 300, "a" * 301, ".", "é")]
    assert len(set(names)) == len(names)


@given(st.text(min_size=1, max_size=300))
def test_no_id_leaves_the_folder(name):
    made = film_name(name, "x.png")
    assert "/" not in made
    assert "\0" not in made
    assert made not in (".", "..")
    assert len(made.encode()) < 255
    assert not made.startswith(".")
