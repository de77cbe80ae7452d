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
"""Files of a folder or of a zip file, hostile ones included."""

import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.data.members import MemberError, Place, ZipIndex, read_place

PATTERN = r"(?:[^/]+/)*([0-9]+)\.txt"


def archive(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return ZipIndex(path, PATTERN)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_members_are_found_by_key_and_read_by_place(tmp_path, compression):
    index = archive(tmp_path / "a.zip", {"x/2.txt": b"two", "1.txt": b"one" * 1000, "x/y/10.txt": b""}, compression)
    assert len(index) == 3
    assert read_place(index.place("1"), limit=5000) == b"one" * 1000
    assert read_place(index.place("2"), limit=5000) == b"two"
    assert read_place(index.place("10"), limit=5000) == b""
    assert index.place("3") is None
    assert index.place("") is None


def test_others_are_passed_over(tmp_path):
    index = archive(tmp_path / "a.zip", {"1.json": b"", "../../2.txt": b"", "a.txt": b"", "/etc/3.txt": b""})
    assert index.place("1") is None
    assert index.place("2") is not None  # a key, not a path: nothing is written anywhere
    assert len(archive(tmp_path / "b.zip", {})) == 0
    assert ZipIndex(tmp_path / "b.zip", PATTERN).place("1") is None


@given(st.dictionaries(st.from_regex(r"[0-9]{1,6}", fullmatch=True), st.binary(max_size=300), max_size=20))
def test_what_was_written_is_read(tmp_path_factory, members):
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    index = archive(path, {f"d/{key}.txt": data for key, data in members.items()})
    assert {key: read_place(index.place(key), limit=300) for key in members} == members


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_a_bomb_is_refused_before_it_is_inflated(tmp_path, compression):
    index = archive(tmp_path / "a.zip", {"1.txt": b" " * 2_000_000}, compression)
    with pytest.raises(MemberError, match="too large"):
        read_place(index.place("1"), limit=1000)
    assert read_place(index.place("1"), limit=2_000_000) == b" " * 2_000_000


def test_a_bomb_that_understates_its_size_is_refused(tmp_path):
    path = tmp_path / "a.zip"
    archive(path, {"1.txt": b" " * 2_000_000})
    data = bytearray(path.read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", 10)  # the uncompressed size that it claims
    path.write_bytes(bytes(data))
    with pytest.raises(MemberError, match="too large"):
        read_place(ZipIndex(path, PATTERN).place("1"), limit=1000)


@pytest.mark.parametrize("field", ["offset", "data", "checksum", "method"])
def test_damage_is_an_error_of_that_member(tmp_path, field):
    path = tmp_path / "a.zip"
    archive(path, {"1.txt": b"some text" * 40, "2.txt": b"two"})
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\x01\x02")
    if field == "offset":
        data[first + 42 : first + 46] = struct.pack("<I", 7)
    elif field == "data":
        data[40:44] = b"\xff\xff\xff\xff"
    elif field == "checksum":
        data[first + 16 : first + 20] = b"\0\0\0\0"
    else:
        data[8:10] = struct.pack("<H", 99)
    path.write_bytes(bytes(data))
    index = ZipIndex(path, PATTERN)
    with pytest.raises(MemberError, match=r"a\.zip at byte"):
        read_place(index.place("1"), limit=1000)
    assert read_place(index.place("2"), limit=1000) == b"two"


def test_not_a_zip_file(tmp_path):
    path = tmp_path / "a.zip"
    for data in (b"", b"PK", b"PK\x05\x06" + b"\xff" * 18):
        path.write_bytes(data)
        with pytest.raises(MemberError, match=r"a\.zip"):
            ZipIndex(path, PATTERN)


def test_a_file_of_its_own(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"12345")
    assert read_place(Place(path), limit=5) == b"12345"
    with pytest.raises(MemberError, match="too large"):
        read_place(Place(path), limit=4)
    with pytest.raises(FileNotFoundError):
        read_place(Place(tmp_path / "b.txt"), limit=4)
