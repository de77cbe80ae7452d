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
"""CSV tables, row by row."""

import gzip

import pytest

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.tables import find_table, read_rows
from verl_cxr.files import RecordError


@pytest.fixture
def context(tmp_path):
    return BuildContext(out=tmp_path, seed=0)


def test_columns_are_read_by_name_with_their_row(tmp_path, context):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfa,b,c\n1,2,3\n\n"4\n4",5,6\n7\n8,9,10,11\n')
    assert list(read_rows(path, ["c", "a"], context)) == [(2, ("3", "1")), (5, ("6", "4\n4")), (7, ("10", "8"))]
    (problem,) = context.funnel.to_dict()["problems"]
    assert problem["problem"] == "too few cells"
    assert "row 6" in problem["examples"][0]


def test_a_missing_column_stops(tmp_path, context):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(RecordError, match=r"a\.csv, row 1, field 'c': no such column: the table has a, b"):
        list(read_rows(path, ["c"], context))
    path.write_text("")
    with pytest.raises(RecordError, match="no such column"):
        list(read_rows(path, ["c"], context))


def test_a_cut_gzip_file_gives_what_is_left(tmp_path, context):
    path = tmp_path / "a.csv.gz"
    rows = "a\n" + "".join(f"{number * 7919 % 10007}\n" for number in range(5000))
    path.write_bytes(gzip.compress(rows.encode())[:-400])
    found = list(read_rows(path, ["a"], context))
    assert 0 < len(found) < 5000
    assert [cells for _, cells in found] == [(line,) for line in rows.split("\n")[1 : len(found) + 1]]
    assert context.funnel.problems == 1
    path.write_bytes(b"not gzip")
    with pytest.raises(RecordError, match="not a CSV table"):
        list(read_rows(path, ["a"], context))


def test_a_cell_without_end_is_a_broken_row(tmp_path, context):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1" * 200_000 + ",2\n3,4\n")
    assert list(read_rows(path, ["a"], context)) == [(3, ("3",))]
    assert context.funnel.to_dict()["problems"][0]["problem"] == "not a row of CSV"
    strict = BuildContext(out=tmp_path, seed=0, strict=True)
    with pytest.raises(RecordError, match="row 2"):
        list(read_rows(path, ["a"], strict))


def test_the_newest_table_of_a_pattern_is_taken(tmp_path):
    assert find_table(tmp_path, "m-2.*.0-split") is None
    for name in ("m-2.0.0-split.csv.gz", "m-2.0.0-split.csv.gz.part", "m-2.1.0-split.csv", "m-3.0.0-split.csv"):
        (tmp_path / name).touch()
    assert find_table(tmp_path, "m-2.*.0-split").name == "m-2.1.0-split.csv"
