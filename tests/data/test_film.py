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
"""Films of every format: what is shown, and what is refused with which words."""

import contextlib
import hashlib
import io
import pickle
import struct
import sys
import zlib
from importlib.metadata import PackageNotFoundError, files
from itertools import product

import numpy as np
import pytest
from dicom_files import write_dicom
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.uid import DeflatedExplicitVRLittleEndian

from verl_cxr.dicom.orientation import Orientation
from verl_cxr.film import Film, FilmError, film_head, film_size, open_image, read_film
from verl_cxr.geometry import Box, pixel_frame

RAMP = np.arange(0, 4096, 256).reshape(2, 8)
"""Values 0, 256, ..., 3840 of 12 bits."""


def shown(path):
    return read_film(path).pixels


def real(name):
    """A file of the package pydicom-data."""
    try:
        return next(str(file.locate()) for file in files("pydicom-data") if file.name == name)
    except PackageNotFoundError:
        pytest.skip("pydicom-data is not installed")


# Pictures


@pytest.mark.parametrize("name", ["film.png", "film.jpg", "film.bmp", "film.tif"])
def test_a_grey_picture_is_taken_as_it_is(tmp_path, name):
    path = tmp_path / name
    Image.fromarray(np.full((5, 7), 100, np.uint8)).save(path)
    film = read_film(path)
    assert film_head(path).plain
    assert film_size(path) == (7, 5)
    assert film.pixels.dtype == np.uint8
    assert film.pixels.tolist() == [[100] * 7] * 5
    assert (film.spacing, film.view, film.path) == (None, None, path)
    assert film.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert open_image(path).mode == "L"


def test_colours_are_kept_for_training_and_become_grey_to_be_measured(tmp_path):
    path = tmp_path / "blue.png"
    Image.fromarray(np.full((2, 2, 3), (0, 0, 200), np.uint8)).save(path)
    assert open_image(path).mode == "RGB"
    assert shown(path).tolist() == [[23, 23], [23, 23]]  # 0.114 x 200


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "LA", "CMYK"])
def test_other_modes_of_eight_bits(tmp_path, mode):
    path = tmp_path / ("film.tif" if mode == "CMYK" else "film.png")
    Image.new("L", (3, 2), 255).convert(mode).save(path)
    assert film_head(path).plain
    assert open_image(path).mode in ("L", "RGB")
    assert shown(path).tolist() == [[255] * 3] * 2


def test_more_than_eight_bits_are_stretched_from_the_smallest_to_the_largest_value(tmp_path):
    path = tmp_path / "film.png"
    Image.fromarray(np.array([[1000, 2000], [3000, 2000]], np.uint16)).save(path)
    head = film_head(path)
    assert not head.plain  # verl would show it white
    assert head.size == (2, 2)
    assert shown(path).tolist() == [[0, 128], [255, 128]]
    Image.fromarray(np.full((2, 2), 40_000, np.uint16)).save(path)
    assert shown(path).tolist() == [[0, 0], [0, 0]]


def test_a_float_picture_that_is_not_finite_is_refused(tmp_path):
    path = tmp_path / "film.tif"
    Image.fromarray(np.array([[0.0, np.nan]], np.float32)).save(path)
    with pytest.raises(FilmError, match="unknown kind"):
        read_film(path)


def test_exif_orientation_is_not_followed_as_verl_does_not_either(tmp_path):
    path = tmp_path / "film.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (8, 4)).save(path, exif=exif)
    assert film_size(path) == (8, 4) == Image.open(path).size
    assert shown(path).shape == (4, 8)


# DICOM


def test_values_without_a_window_are_stretched(tmp_path):
    path = write_dicom(tmp_path / "film.dcm", RAMP)
    assert film_size(path) == (8, 2)
    assert not film_head(path).plain
    assert shown(path).ravel().tolist() == [17 * value for value in range(16)]
    assert open_image(path).mode == "L"


def test_monochrome1_is_inverted(tmp_path):
    path = write_dicom(tmp_path / "film.dcm", RAMP, photometric="MONOCHROME1")
    assert shown(path).ravel().tolist() == [255 - 17 * value for value in range(16)]


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        # PS3.3 C.11.2.1.2: ((x - (c - 0.5)) / (w - 1) + 0.5) x 255 with c = 2048, w = 4096
        ("LINEAR", 1024, 63.78),
        ("LINEAR", 3072, 191.28),
        # C.11.2.1.3.2: ((x - c) / w + 0.5) x 255
        ("LINEAR_EXACT", 1024, 63.75),
        # C.11.2.1.3.1: 255 / (1 + exp(-4 (x - c) / w))
        ("SIGMOID", 2048, 127.5),
        ("SIGMOID", 3072, 186.4),
    ],
)
def test_windows_follow_the_formulas_of_the_standard(tmp_path, function, value, expected):
    pixels = np.array([[0, 4095], [value, value]])
    tags = {"WindowCenter": 2048, "WindowWidth": 4096, "VOILUTFunction": function}
    path = write_dicom(tmp_path / "film.dcm", pixels, **tags)
    assert shown(path)[1, 0] == pytest.approx(expected, abs=0.51)


def test_a_window_does_not_depend_on_the_values_that_occur(tmp_path):
    # A stretch would make these black and white.
    path = write_dicom(tmp_path / "film.dcm", [[1024, 3072]], WindowCenter=2048, WindowWidth=4096)
    assert shown(path).tolist() == [[64, 191]]


def test_of_several_windows_the_first_is_used(tmp_path):
    tags = {"WindowCenter": [2048, 100], "WindowWidth": [4096, 10]}
    assert shown(write_dicom(tmp_path / "film.dcm", [[1024, 3072]], **tags)).tolist() == [[64, 191]]


@pytest.mark.parametrize("width", [0, -5])
def test_a_window_that_cannot_be_counts_as_none(tmp_path, width):
    path = write_dicom(tmp_path / "film.dcm", RAMP, WindowCenter=2048, WindowWidth=width)
    assert shown(path).ravel().tolist() == [17 * value for value in range(16)]


def test_a_window_of_width_one_is_a_step(tmp_path):
    path = write_dicom(tmp_path / "film.dcm", [[99, 100, 101]], WindowCenter=100, WindowWidth=1)
    assert shown(path).tolist() == [[0, 255, 255]]


def test_rescale_comes_before_the_window(tmp_path):
    # 2 x - 100: stored 50 and 150 become 0 and 200, of a window from 0 to 200.
    tags = {"RescaleSlope": 2, "RescaleIntercept": -100, "VOILUTFunction": "LINEAR_EXACT"}
    path = write_dicom(tmp_path / "film.dcm", [[50, 100, 150]], WindowCenter=100, WindowWidth=200, **tags)
    assert shown(path).tolist() == [[0, 128, 255]]


def lut(data, first=0, bits=16, entry="<u2"):
    item = Dataset()
    item.LUTDescriptor = [len(data), first, bits]
    item.LUTData = np.asarray(data, entry).tobytes()
    return item


def test_a_table_of_values_comes_before_a_window(tmp_path):
    tags = {"VOILUTSequence": [lut([0, 0, 1000, 4000], first=10)], "WindowCenter": 2048, "WindowWidth": 4096}
    path = write_dicom(tmp_path / "film.dcm", [[9, 10, 11, 12, 13, 4000]], **tags)
    assert shown(path).tolist() == [[0, 0, 0, 64, 255, 255]]


def test_a_table_of_more_than_256_entries_of_eight_bits(tmp_path):
    table = [value // 4 for value in range(1024)]
    path = write_dicom(tmp_path / "film.dcm", [[0, 400, 1023]], VOILUTSequence=[lut(table, bits=8, entry="u1")])
    assert shown(path).tolist() == [[0, 100, 255]]


def test_padding_does_not_count_in_the_stretch(tmp_path):
    path = write_dicom(tmp_path / "film.dcm", [[0, 1000, 2000, 1500]], PixelPaddingValue=0)
    assert shown(path).tolist() == [[0, 0, 255, 128]]


def test_a_film_in_colour(tmp_path):
    pixels = np.full((2, 3, 3), (10, 20, 30), np.uint8)
    path = write_dicom(tmp_path / "film.dcm", pixels, photometric="RGB")
    assert open_image(path).mode == "RGB"
    assert np.asarray(open_image(path))[0, 0].tolist() == [10, 20, 30]


ARROW = np.array([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("directions", "expected"),
    [
        (["L", "F"], [[1, 2, 3], [4, 5, 6]]),
        (["R", "F"], [[3, 2, 1], [6, 5, 4]]),
        (["L", "H"], [[4, 5, 6], [1, 2, 3]]),
        (["R", "H"], [[6, 5, 4], [3, 2, 1]]),
        (["F", "L"], [[1, 4], [2, 5], [3, 6]]),  # rows lead to the feet: turned by a quarter
        (["F", "R"], [[4, 1], [5, 2], [6, 3]]),
        (["H", "L"], [[3, 6], [2, 5], [1, 4]]),
        (["A", "F"], [[1, 2, 3], [4, 5, 6]]),  # lateral films look either way
        (["P", "F"], [[1, 2, 3], [4, 5, 6]]),
        (["LA", "FA"], [[1, 2, 3], [4, 5, 6]]),
        (["L", "A"], [[1, 2, 3], [4, 5, 6]]),  # not upright anyway
        (None, [[1, 2, 3], [4, 5, 6]]),
        ("", [[1, 2, 3], [4, 5, 6]]),
        (["X", "F"], [[1, 2, 3], [4, 5, 6]]),
    ],
)
def test_films_are_put_upright(tmp_path, directions, expected):
    tags = {} if directions is None else {"PatientOrientation": directions}
    path = write_dicom(tmp_path / "film.dcm", ARROW, PixelSpacing=[0.1, 0.2], **tags)
    film, head = read_film(path), film_head(path)
    assert np.argsort(np.argsort(film.pixels.ravel())).reshape(film.pixels.shape).tolist() == [
        [value - 1 for value in row] for row in expected
    ]
    assert head.size == film.pixels.shape[::-1]
    assert film.spacing == ((0.2, 0.1) if head.orientation.transposed else (0.1, 0.2))


@given(
    turn=st.sampled_from([Orientation(*flags) for flags in product([False, True], repeat=3)]),
    corner=st.tuples(st.integers(0, 3), st.integers(0, 5)),
    size=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_boxes_move_along_with_the_pixels(turn, corner, size):
    stored = np.zeros((10, 8), np.uint8)
    (x, y), (width, height) = corner, size
    stored[y : y + height, x : x + width] = 255
    box = turn.box(Box(x, y, x + width, y + height, pixel_frame(8, 10)))
    upright = turn.apply(stored)
    assert (box.frame.width, box.frame.height) == upright.shape[::-1]
    inside = np.zeros_like(upright)
    inside[int(box.y1) : int(box.y2), int(box.x1) : int(box.x2)] = 255
    assert (inside == upright).all()


@pytest.mark.parametrize(
    ("tag", "view"),
    [
        ("PA", "PA"),
        ("AP", "AP"),
        ("LL", "LATERAL"),
        ("RL", "LATERAL"),
        ("LATERAL", "LATERAL"),
        ("LLO", None),
        ("", None),
    ],
)
def test_the_view_is_what_the_tag_says(tmp_path, tag, view):
    assert read_film(write_dicom(tmp_path / "film.dcm", RAMP, ViewPosition=tag)).view == view


def test_spacing_of_the_detector_stands_in_for_that_of_the_patient(tmp_path):
    path = write_dicom(tmp_path / "film.dcm", RAMP, ImagerPixelSpacing=[0.14, 0.14])
    assert read_film(path).spacing == (0.14, 0.14)
    path = write_dicom(tmp_path / "film.dcm", RAMP, PixelSpacing=[0, 0])
    assert read_film(path).spacing is None


# Real films


def test_the_real_chest_film(tmp_path):
    film = read_film(real("RG1_UNCR.dcm"))
    assert film.pixels.shape == (1955, 1841)
    assert film.view == "PA"
    assert film.spacing is None
    # MONOCHROME1: lungs are darker than the mediastinum and the abdomen below.
    right_lung, mediastinum, abdomen = (
        film.pixels[560:700, 480:700],
        film.pixels[800:1100, 850:950],
        film.pixels[1600:, 300:500],
    )
    assert right_lung.mean() < 150 < 200 < mediastinum.mean()
    assert abdomen.mean() > 200
    assert (shown(real("RG1_J2KR.dcm")) == film.pixels).all()  # the same film, compressed without loss


def test_a_real_film_that_was_stored_mirrored():
    # The right leg of a patient; its marker, an R, can be read when Patient Orientation, R\F, is followed.
    head = film_head(real("RG3_UNCR.dcm"))
    assert head.orientation == Orientation(mirrored=True)


@pytest.mark.parametrize("name", ["vlut_04.dcm", "mlut_18.dcm"])
def test_real_tables_use_the_whole_grey_scale(name):
    pixels = shown(real(name))
    assert (pixels.min(), pixels.max()) == (0, 255)


# What is refused


def test_a_missing_file(tmp_path):
    for read in (film_head, open_image, read_film):
        with pytest.raises(FilmError, match=r"nowhere.png: image file missing") as error:
            read(tmp_path / "nowhere.png")
        assert error.value.reason == "image file missing"


def test_what_is_no_image(tmp_path):
    path = tmp_path / "film.png"
    path.write_text("<html>404</html>")
    with pytest.raises(FilmError, match="not an image file"):
        read_film(path)
    path.write_bytes(b"")
    with pytest.raises(FilmError, match="not an image file"):
        film_size(path)
    with pytest.raises(FilmError, match="unreadable"):
        read_film(tmp_path)
    with pytest.raises(FilmError, match="unreadable"):
        read_film("a\0b")


@pytest.mark.parametrize("name", ["film.png", "film.jpg", "film.dcm"])
def test_a_file_cut_off_anywhere_is_refused_and_never_shown_in_part(tmp_path, name):
    path = tmp_path / name
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40))
    if name.endswith("dcm"):
        write_dicom(path, pixels)
    else:
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    whole = path.read_bytes()
    for length in [*range(0, 400, 13), len(whole) // 2, len(whole) - 100]:
        path.write_bytes(whole[:length])
        with pytest.raises(FilmError):
            read_film(path)


@given(data=st.data())
def test_damaged_dicom_files_fail_in_one_way(tmp_path_factory, data):
    path = write_dicom(tmp_path_factory.mktemp("film") / "film.dcm", RAMP, WindowCenter=2048, WindowWidth=4096)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(132, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    for read in (film_head, read_film):
        with contextlib.suppress(FilmError, ImportError):
            read(path)


def png_of(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + header
    head = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + head + struct.pack(">I", 4) + b"IDAT" + bytes(8)


@pytest.mark.parametrize("size", [(60_000, 60_000), (20_000, 6_000)])
def test_a_picture_that_claims_too_many_pixels(tmp_path, size):
    path = tmp_path / "film.png"
    path.write_bytes(png_of(*size))
    for read in (film_size, read_film):
        with pytest.raises(FilmError, match="too many pixels"):
            read(path)


def test_a_dicom_file_that_claims_too_many_pixels(tmp_path):
    path = write_dicom(tmp_path / "film.dcm", RAMP, Rows=20_000, Columns=20_000)
    for read in (film_size, read_film):
        with pytest.raises(FilmError, match="too many pixels"):
            read(path)


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({"NumberOfFrames": 2}, "several frames"),
        ({"Rows": 0}, "without an image"),
        ({"Rows": None}, "without an image"),
        ({"PixelData": None}, "without pixels"),
        ({"BitsAllocated": 7}, "unreadable"),
    ],
)
def test_a_dicom_file_of_something_else(tmp_path, tags, reason):
    with pytest.raises(FilmError, match=reason):
        read_film(write_dicom(tmp_path / "film.dcm", RAMP, **tags))


def test_a_deflated_dicom_file_is_not_inflated(tmp_path):
    path = write_dicom(tmp_path / "film.dcm", RAMP)
    content = path.read_bytes()
    old, new = b"1.2.840.10008.1.2.1\0", DeflatedExplicitVRLittleEndian.encode() + b"\0"
    at = content.index(old)
    length = struct.unpack_from("<H", content, at - 2)[0]
    body = content[: at - 2] + struct.pack("<H", len(new)) + new + content[at + length :]
    path.write_bytes(body)
    with pytest.raises(FilmError, match="deflated"):
        film_size(path)


def test_a_missing_package_is_no_fault_of_the_film(tmp_path, monkeypatch):
    path = write_dicom(tmp_path / "film.dcm", RAMP)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(ImportError, match=r"pip install 'verl-cxr\[dicom\]'"):
        read_film(path)


def test_a_missing_decoder_is_no_fault_of_the_film(tmp_path):
    try:
        read_film(real("JPEG-LL.dcm"))
    except ImportError as error:
        assert "python-gdcm" in str(error)  # noqa: PT017 - where the decoder is installed, there is no error
    assert film_size(real("JPEG-LL.dcm")) == (256, 1024)


def test_an_error_crosses_processes():
    error = pickle.loads(pickle.dumps(FilmError("image file missing", "a.png")))
    assert (str(error), error.reason) == ("a.png: image file missing", "image file missing")


def test_a_film_names_its_file(tmp_path):
    buffer = io.BytesIO()
    Image.new("L", (1, 1)).save(buffer, "PNG")
    path = tmp_path / "one.png"
    path.write_bytes(buffer.getvalue())
    assert isinstance(read_film(str(path)), Film)
    assert read_film(str(path)).path == path
