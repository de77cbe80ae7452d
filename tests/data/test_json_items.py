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
"""JSON arrays and objects of any size, member by member: the same as reading them whole, whatever the chunks."""

import gzip
import json
import math
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import problems

from verl_cxr.data import json_items as module
from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.json_items import json_items, json_members, read_document
from verl_cxr.files import RecordError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def context(strict=False):
    return BuildContext(out=Path("out"), seed=0, strict=strict)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("json")


@given(
    items=st.lists(VALUES, max_size=6), chunk=st.integers(1, 40), indent=st.sampled_from([None, 1]), plain=st.booleans()
)
def test_items_are_those_of_the_whole(folder, items, chunk, indent, plain):
    path = folder / "a.json"
    path.write_text(json.dumps(items, indent=indent, ensure_ascii=not plain), encoding="utf-8", errors="replace")
    whole = json.loads(path.read_text(encoding="utf-8"))
    with patch.object(module, "_CHUNK", chunk):
        assert list(json_items(path, context(strict=True))) == list(enumerate(whole, start=1))


@pytest.mark.parametrize("chunk", range(1, 12))
@pytest.mark.parametrize("number", ["12", "1.5", "-1.25e-12", "1E+5", "1e5", "0.0", "-7"])
def test_numbers_that_a_chunk_cuts(folder, number, chunk):
    path = folder / "numbers.json"
    path.write_text(f"[{number},{number} , {number}]")
    with patch.object(module, "_CHUNK", chunk):
        assert [item for _, item in json_items(path, context(strict=True))] == [float(number)] * 3


@given(members=st.dictionaries(st.text(max_size=8), VALUES, max_size=5), chunk=st.integers(1, 40))
def test_members_are_those_of_the_whole(folder, members, chunk):
    path = folder / "o.json"
    path.write_text(json.dumps(members), encoding="utf-8")
    with patch.object(module, "_CHUNK", chunk):
        read = list(json_members(path, context(strict=True)))
    assert [(key, value) for _, key, value in read] == list(members.items())


@given(items=st.lists(VALUES, min_size=1, max_size=5), cut=st.floats(0, 0.999), chunk=st.integers(1, 64))
def test_of_a_file_that_is_cut_off_the_members_before_the_cut(folder, items, cut, chunk):
    path = folder / "cut.json"
    text = json.dumps(items)
    path.write_text(text[: max(1, int(len(text) * cut))], encoding="utf-8")
    told = context()
    with patch.object(module, "_CHUNK", chunk):
        read = [item for _, item in json_items(path, told)]
    # A number that is cut off may read as a shorter one; it is the last then.
    assert read[:-1] == items[: max(0, len(read) - 1)]
    assert told.funnel.problems == 1


def test_a_gzipped_file_with_a_byte_order_mark(folder):
    path = folder / "a.json.gz"
    path.write_bytes(gzip.compress("\ufeff [1, {}]\n".encode()))
    assert list(json_items(path, context(strict=True))) == [(1, 1), (2, {})]


def test_nan_of_pandas(folder):
    path = folder / "nan.json"
    path.write_text('[{"option_2": NaN}]')
    ((_, item),) = json_items(path, context(strict=True))
    assert math.isnan(item["option_2"])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("[1, 2, x, 4]", [1, 2]),
        ("[1 2]", [1]),
        ('[1, {"a": }]', [1]),
        ('[1, {"a" 2}]', [1]),
        ("[1,]", [1]),
        ("[" * 100_000, []),
        ("[1, " + "9" * 10_000 + "]", [1]),
    ],
)
def test_what_is_not_json_is_reported_with_its_row(folder, text, read):
    path = folder / "bad.json"
    path.write_text(text)
    told = context()
    assert [item for _, item in json_items(path, told)] == read
    (problem,) = problems(told.funnel.to_dict())
    assert f"bad.json, row {len(read) + 1}: not JSON from here on" in problem
    with pytest.raises(RecordError, match="not JSON from here on"):
        list(json_items(path, context(strict=True)))


def test_a_broken_member_in_the_middle_of_a_large_file_is_found_at_once(folder):
    path = folder / "large.json"
    path.write_text("[" + '{"a" 1},' + ",".join(["{}"] * 1_000_000) + "]")
    told = context()
    assert list(json_items(path, told)) == []
    assert told.funnel.problems == 1


def test_a_member_without_end_does_not_fill_the_memory(folder):
    path = folder / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'[1, "')
        for _ in range(4):
            file.write(b" " * (1 << 20))
    told = context()
    with patch.object(module, "_LARGEST", 1 << 21), patch.object(module, "_CHUNK", 1 << 18):
        assert [item for _, item in json_items(path, told)] == [1]
    assert "a member has more than" in problems(told.funnel.to_dict())[0]


@pytest.mark.parametrize("text", ['{"a": 1}', '"text"', "5", "null", ""])
def test_a_file_that_holds_no_array(folder, text):
    path = folder / "other.json"
    path.write_text(text)
    with pytest.raises(RecordError, match="the file must hold an array, not"):
        list(json_items(path, context()))


def test_a_damaged_gzip_file(folder):
    path = folder / "damaged.json.gz"
    path.write_bytes(gzip.compress(json.dumps(list(range(100_000))).encode())[:1000])
    told = context()
    assert len(list(json_items(path, told))) < 100_000
    assert told.funnel.problems == 1
    path.write_bytes(b"not gzip")
    with pytest.raises(RecordError):
        list(json_items(path, context(strict=True)))


def test_a_missing_file(folder):
    with pytest.raises(FileNotFoundError):
        list(json_items(folder / "none.json", context()))
    with pytest.raises(FileNotFoundError):
        read_document(folder / "none.json")


@pytest.mark.parametrize("data", [b"{", b"[" * 100_000, b"\xff\xfe", b""])
def test_a_document_that_is_not_json(folder, data):
    path = folder / "document.json"
    path.write_bytes(data)
    with pytest.raises(RecordError, match="not JSON"):
        read_document(path)


def test_a_document_that_is_too_large(folder):
    path = folder / "document.json.gz"
    path.write_bytes(gzip.compress(b" " * 5000))
    with patch.object(module, "_DOCUMENT", 4096), pytest.raises(RecordError, match="too large"):
        read_document(path)
    path.write_bytes(gzip.compress(b"[1]" * 500)[:20])
    with pytest.raises(RecordError, match="cannot be read"):
        read_document(path)
