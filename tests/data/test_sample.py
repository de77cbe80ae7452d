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
"""Sub-samples: exact, nested, stratified, and the same whatever the order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.data.facets import facets, require_facets
from verl_cxr.data.sample import Sample, choose, priority, share, strata
from verl_cxr.study import RegionFinding, Report, Study


def drawn(ids, seed, count, groups=None):
    kept = choose(np.array([priority(seed, name) for name in ids], np.uint64), count, groups)
    return {name for name, keep in zip(ids, kept, strict=True) if keep}


IDS = [f"s{number}" for number in range(500)]


def test_a_sample_depends_on_ids_and_seed_alone():
    assert priority(7, "s1") == 0xAF6FF06CA1C13E46  # on every machine, for ever
    first = drawn(IDS, 7, 100)
    assert first == drawn(IDS[::-1], 7, 100)
    assert len(first) == 100
    assert first < drawn(IDS, 7, 200)
    assert first != drawn(IDS, 8, 100)
    assert drawn(IDS, 7, 1000) == set(IDS)


def test_shares_are_uniform():
    shares = np.array([share(0, name, purpose="validate") for name in IDS])
    assert 0 <= shares.min() < shares.max() < 1
    assert np.histogram(shares, 5, (0, 1))[0] == pytest.approx([100] * 5, abs=30)


def test_strata_keep_their_share():
    groups = ["PA"] * 250 + ["AP"] * 200 + ["none"] * 50
    kept = drawn(IDS, 0, 50, groups)
    assert [sum(name in kept for name in IDS[a:b]) for a, b in ((0, 250), (250, 450), (450, 500))] == [25, 20, 5]


def test_remainders_are_dealt_to_the_largest():
    # 7 of 10 rows, in groups of 5, 3 and 2: 3.5, 2.1 and 1.4 rows; the first has the largest remainder
    groups = ["a"] * 5 + ["b"] * 3 + ["c"] * 2
    kept = drawn(IDS[:10], 0, 7, groups)
    assert [sum(name in kept for name in IDS[a:b]) for a, b in ((0, 5), (5, 8), (8, 10))] == [4, 2, 1]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=80), st.data())
def test_a_stratified_sample_is_exact(groups, data):
    count = data.draw(st.integers(0, len(groups)))
    kept = drawn(IDS[: len(groups)], 0, count, groups)
    assert len(kept) == count
    for group in set(groups):
        size = groups.count(group)
        taken = sum(name in kept for name, other in zip(IDS, groups, strict=False) if other == group)
        assert abs(taken - count * size / len(groups)) < 1


def test_the_rarest_label_stands_for_a_row():
    rows = [[["PA"], ["opacity"]], [["PA"], ["opacity", "pneumothorax"]], [["AP"], ["opacity", "effusion"]],
            [["AP"], ["effusion"]]]  # fmt: skip
    assert strata(rows) == [("PA", "opacity"), ("PA", "pneumothorax"), ("AP", "effusion"), ("AP", "effusion")]
    assert strata([]) == []


def test_counts():
    assert [Sample(fraction=0.25).count("sft", rows) for rows in (0, 1, 8, 10, 14)] == [0, 0, 2, 2, 4]
    assert Sample(limit=5).count("sft", 3) == 3
    assert Sample(limit={"sft": 5}).count("sft", 9) == 5
    assert Sample(limit={"sft": 5}).count("grpo", 9) == 9
    assert Sample().count("sft", 9) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [({"limit": 1, "fraction": 0.5}, "not both"), ({"limit": 0}, "at least 1"), ({"limit": {"sft": 0}}, "at least 1"),
     ({"fraction": 0.0}, "above 0"), ({"fraction": 1.1}, "at most 1"), ({"fraction": float("nan")}, "above 0"),
     ({"stratify": ("view",)}, "nothing to stratify")],
)  # fmt: skip
def test_samples_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        Sample(**options)


def test_facets_of_a_study():
    study = Study("s", None, 10, 10, "AP", "train", Report(findings="Small left pleural effusion. No pneumothorax."),
                  (RegionFinding("Lt lung", None, "Consolidation."),))  # fmt: skip
    assert facets(study, ["view", "label", "region", "source"]) == [
        ("AP",), ("pleural effusion",), ("left lung",), ("not stated",),
    ]  # fmt: skip
    silent = Study("s", None, 10, 10, None, None, Report(), ())
    assert facets(silent, ["view", "label", "region"]) == [("not stated",), ("no finding",), ("no region",)]
    with pytest.raises(ValueError, match=r"'veiw': use some of view"):
        require_facets(["view", "veiw"])
