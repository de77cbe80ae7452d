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
"""Whatever a policy writes: a score or a rejection, in bounded time, never an exception."""

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_plugins.cascade import CascadeOptions, score
from verl_cxr.facts import make_scorer
from verl_cxr.geometry import RELATIVE_1000, Box, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study

FILM = pixel_frame(1000, 1000)
STUDY = Study(
    "s",
    None,
    1000,
    1000,
    None,
    None,
    Report("Clear.", None),
    (RegionFinding("right lung", Box(100, 100, 300, 300, FILM), "clear"),),
)
EVERY_OPTION = [
    CascadeOptions(),
    CascadeOptions(duplicates="best", verify="both", measure_all=True),
    CascadeOptions(duplicates="union", unannotated="penalise", overrun="zero", gate=False),
    CascadeOptions(duplicates="first", parts="factual", no_entity="skip", empty_finding="skip", degenerate="reject"),
]


def wrapped(think, answer="Clear."):
    return f"<think>{think}</think><answer>{answer}</answer>"


def region(box="[100, 100, 300, 300]", name="right lung", finding="clear"):
    return json.dumps({"region": name, "finding": finding})[:-1] + f', "box": {box}}}'


MANY = range(10_000)
HOSTILE = {
    "nan": wrapped(f"[{region('[NaN, 1, 2, 3]')}]"),
    "infinity": wrapped(f"[{region('[-Infinity, 1, 2, Infinity]')}]"),
    "1e308": wrapped(f"[{region('[-1e308, -1e308, 1e308, 1e308]')}]"),
    "1e999": wrapped(f"[{region('[0, 0, 1e999, 1]')}]"),
    "5e-324": wrapped(f"[{region('[0, 0, 5e-324, 5e-324]')}]"),
    "huge int": wrapped(f"[{region('[0, 0, ' + '9' * 5000 + ', 1]')}]"),
    "20-digit int": wrapped(f"[{region('[0, 0, 99999999999999999999, 1]')}]"),
    "10,000 regions of one name": wrapped("[" + ", ".join(region() for _ in MANY) + "]"),
    "10,000 boxes of one name": wrapped("[" + ", ".join(region(f"[100, 100, 300, {i}]") for i in MANY) + "]"),
    "10,000 findings of one name": wrapped("[" + ", ".join(region(finding=f"f{i}") for i in MANY) + "]"),
    "10,000 names": wrapped("[" + ", ".join(region(name=f"region {i}") for i in MANY) + "]"),
    "nested lists": wrapped("[" * 100_000 + "]" * 100_000),
    "nested objects": wrapped('[{"region": ' * 100_000),
    "nested box": wrapped(f"[{region('[' * 2000 + ']' * 2000)}]"),
    "1 MB of text": "the lungs are clear " * 50_000,
    "1 MB of thought": wrapped("a" * 1_000_000),
    "1 MB of spaces": wrapped(" " * 1_000_000),
    "1 MB of name": wrapped(f"[{region(name='right lung ' * 100_000)}]"),
    "1 MB of finding": wrapped(f"[{region(finding='clear ' * 200_000)}]"),
    "1 MB of report": wrapped(f"[{region()}]", "clear " * 200_000),
    "1 MB of tags": "<think>" * 150_000,
    "1 MB of almost tags": "<think" * 180_000,
    "1 MB of fences": wrapped("```" * 350_000),
    "lone surrogate": wrapped(f"[{region(name=chr(0xD800))}]"),
    "lone surrogate, raw": wrapped('[{"region": "\ud800", "box": [1, 2, 3, 4]}]', "\udfff"),
    "null bytes": wrapped("\x00[\x00]\x00", "\x00"),
    "byte order mark": "\ufeff" + wrapped(f"[{region()}]"),
    "right to left": wrapped(f"[{region(name=chr(0x202E) + 'right lung')}]", "\u202e"),
    "combining marks": wrapped(f"[{region(name='r' + chr(0x301) * 50_000)}]"),
    "ligatures that grow": wrapped(f"[{region(name=chr(0xFDFA) * 50_000)}]"),
    "special tokens": wrapped(f"[{region()}]") + "<|im_end|>",
}


@pytest.mark.parametrize("options", EVERY_OPTION, ids=["default", "best", "union", "first"])
@pytest.mark.parametrize("response", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_score_or_a_rejection_in_bounded_time(response, options):
    start = time.perf_counter()
    record = score(response, STUDY, options=options, frame=RELATIVE_1000, facts=make_scorer("exact"))
    assert time.perf_counter() - start < 5  # a bound, not a measurement: each takes milliseconds
    assert 0 <= record.reward <= 3
    assert record.format or record.reward == 0
    assert all(math.isfinite(number) for number in record.numbers().values())
    json.dumps(record.to_dict("s"))


def test_ten_thousand_good_repetitions_still_count_once():
    record = score(
        HOSTILE["10,000 regions of one name"], STUDY, options=CascadeOptions(), frame=RELATIVE_1000,
        facts=make_scorer("exact"),
    )  # fmt: skip
    assert (record.reward, record.duplicate_regions) == (2.0, 9999)


@given(st.text(), st.sampled_from(EVERY_OPTION))
def test_any_text_inside_or_outside_the_tags(text, options):
    for response in (text, wrapped(text), wrapped("[]", text), wrapped(f"[{region(name=text, finding=text)}]")):
        record = score(response, STUDY, options=options, frame=RELATIVE_1000, facts=make_scorer("exact"))
        assert 0 <= record.reward <= 3


number = st.floats(allow_nan=False, allow_infinity=False) | st.integers()


@given(st.lists(number, min_size=4, max_size=4), st.sampled_from(EVERY_OPTION))
def test_any_box(numbers, options):
    response = wrapped(f"[{region(json.dumps(numbers))}]")
    record = score(response, STUDY, options=options, frame=RELATIVE_1000, facts=make_scorer("exact"))
    assert 0 <= record.reward <= 3
    assert all(0 <= region.iou <= 1 for region in record.regions)
