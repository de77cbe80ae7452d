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
"""Bootstrap intervals: of means, of pooled numbers, of paired differences."""

import numpy as np
import pytest

from verl_cxr.evaluate.interval import mean_difference, mean_interval, pooled_difference, pooled_interval

VALUES = np.random.default_rng(1).normal(0.4, 0.1, 60)


def as_counts(values):
    return np.column_stack([values, np.ones(len(values))])


def mean(sums):
    return sums[..., 0] / sums[..., 1]


def test_a_mean_is_a_pooled_number():
    ours, expected = pooled_interval([as_counts(VALUES)], mean), mean_interval(VALUES)
    assert (ours.mean, ours.n) == (pytest.approx(expected.mean), 60)
    assert (ours.low, ours.high) == (pytest.approx(expected.low, abs=2e-3), pytest.approx(expected.high, abs=2e-3))
    # the normal approximation
    assert ours.high - ours.low == pytest.approx(2 * 1.96 * VALUES.std() / 60**0.5, rel=0.05)


def test_a_difference_is_paired():
    noise = np.random.default_rng(2).normal(0, 0.001, 60)
    ours, theirs = as_counts(VALUES + 0.01 + noise), as_counts(VALUES)
    paired = pooled_difference([ours], [theirs], mean)
    assert paired.mean == pytest.approx(0.01, abs=1e-3)
    assert paired.high - paired.low < 0.002  # the intervals of either are 25 times as wide
    assert paired.low > 0
    assert paired.wins == 1
    expected = mean_difference(VALUES + 0.01 + noise, VALUES)
    assert paired.low == pytest.approx(expected.low, abs=1e-4)
    same = pooled_difference([theirs], [theirs], mean)
    assert (same.mean, same.low, same.high, same.wins) == (0, 0, 0, 0)


def test_runs_share_their_units():
    """A second seed with the opposite noise cancels it in the mean over seeds; as separate units it would not."""
    noise = np.random.default_rng(3).normal(0, 0.2, 60)
    both = pooled_interval([as_counts(0.5 + noise), as_counts(0.5 - noise)], mean)
    assert (both.mean, both.low, both.high) == (pytest.approx(0.5), pytest.approx(0.5), pytest.approx(0.5))


def test_same_seed_same_interval():
    counts = [as_counts(VALUES)]
    assert pooled_interval(counts, mean) == pooled_interval(counts, mean)
    assert pooled_interval(counts, mean) != pooled_interval(counts, mean, seed=1)


def test_one_unit_has_no_spread_and_none_is_an_error():
    one = pooled_interval([as_counts([0.3])], mean)
    assert (one.mean, one.low, one.high, one.n) == (0.3, 0.3, 0.3, 1)
    for runs in ([], [np.empty((0, 2))], [as_counts(VALUES), as_counts(VALUES[1:])]):
        with pytest.raises(ValueError, match=r"no run|same units"):
            pooled_interval(runs, mean)


def test_resamples_in_which_the_number_is_undefined_do_not_count():
    counts = np.array([[0.5, 1.0], [0.0, 0.0], [0.0, 0.0]])  # defined for one unit of three
    with np.errstate(invalid="ignore"):
        found = pooled_interval([counts], mean)
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)
