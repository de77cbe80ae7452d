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
"""The text of a trace: rendering, parsing, and each reason of the format gate."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.geometry import PERCENT, RELATIVE_1000, Box, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study
from verl_cxr.trace import FormatReason, Rejection, Trace, TraceFormat, parse, reference_trace, render

FILM = pixel_frame(2000, 3000)
ONE = '[{"region": "right lung", "box": [1, 2, 3, 4], "finding": "Clear."}]'
LUNG = Trace((RegionFinding("right lung", Box(1, 2, 3, 4, RELATIVE_1000), "Clear."),), "Normal.")


def wrapped(think, answer="Normal."):
    return f"<think>{think}</think><answer>{answer}</answer>"


def test_the_form_of_the_text():
    assert render(LUNG, RELATIVE_1000) == wrapped(ONE)


def test_rendering_converts_into_the_frame():
    trace = Trace((RegionFinding("spine", Box(200, 300, 1000.4, 1500.6, FILM), "Straight."),), "")
    assert '"box": [100, 100, 500, 500]' in render(trace, RELATIVE_1000)
    assert '"box": [200, 300, 1000, 1501]' in render(trace, FILM)
    assert '"box": [10.0, 10.0, 50.02, 50.02]' in render(trace, PERCENT)


def test_rendering_keeps_letters_and_stays_on_one_line():
    trace = Trace((RegionFinding("spine", Box(0, 0, 9, 9, FILM), "naïve\n“line”"),), " two\nlines ")
    assert "naïve\\n“line”" in render(trace, FILM)
    assert parse(render(trace, FILM), FILM) == Trace(trace.regions, "two\nlines")


def test_what_cannot_be_written():
    with pytest.raises(ValueError, match="'neck' has no box"):
        render(Trace((RegionFinding("neck", None, "Clear."),), ""), FILM)
    with pytest.raises(ValueError, match="contains </think>"):
        render(Trace((RegionFinding("neck", Box(0, 0, 1, 1, FILM), "</think>"),), ""), FILM)
    with pytest.raises(ValueError, match="contains <answer>"):
        render(Trace((), "see <answer>"), FILM)


@pytest.mark.parametrize(
    "text",
    [
        wrapped(ONE),
        f"\n <think>\n{ONE}\n</think>\n\n<answer>\n Normal. </answer>\n",
        wrapped(f"```json\n{ONE}\n```"),
        wrapped(f"```\n{ONE}```"),
        wrapped(f"```JSON {ONE}```"),
        f"```\n{wrapped(ONE)}\n```",
        wrapped('[{"finding": "Clear.", "box": [1, 2, 3, 4], "region": "right lung"}]'),
        wrapped('[{"finding":"Clear.","box":[1.0,2e0,3,4],"region":"right lung","sure":true}]'),
    ],
)
def test_what_is_forgiven(text):
    assert parse(text, RELATIVE_1000) == LUNG


def test_an_absent_or_null_finding_is_an_empty_one():
    for finding in ("", ', "finding": null', ', "finding": ""'):
        trace = parse(wrapped(f'[{{"region": "neck", "box": [1, 2, 3, 4]{finding}}}]'), FILM)
        assert trace == Trace((RegionFinding("neck", Box(1, 2, 3, 4, FILM), ""),), "Normal.")


def test_an_empty_list_and_an_empty_report_pass_the_gate():
    assert parse(wrapped("[]", ""), FILM) == Trace((), "")


def test_boxes_are_read_as_written():
    trace = parse(wrapped('[{"region": "neck", "box": [9, -5, 3, 1e308]}]'), FILM)
    assert trace.regions[0].box == Box(9, -5, 3, 1e308, FILM)


def region(text):
    return wrapped("[" + text + "]")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "missing_tag"),
        ("The lungs are clear.", "missing_tag"),
        (f"<think>{ONE}</think>", "missing_tag"),
        (f"<think>{ONE}<answer>Normal.</answer>", "missing_tag"),
        (f"<think>{ONE}</think><answer>Normal.", "missing_tag"),
        (f"{ONE}</think><answer>Normal.</answer>", "missing_tag"),
        (f"<THINK>{ONE}</THINK><answer>Normal.</answer>", "missing_tag"),
        (wrapped(f"<think>{ONE}"), "repeated_tag"),
        (wrapped(ONE) * 2, "repeated_tag"),
        (wrapped(ONE, "<answer>Normal.</answer>"), "repeated_tag"),
        (region('{"region": "neck", "box": [1, 2, 3, 4], "finding": "</think>"}'), "repeated_tag"),
        (f"<answer>Normal.</answer><think>{ONE}</think>", "tag_order"),
        (f"<think><answer>{ONE}</think>Normal.</answer>", "tag_order"),
        ("</think><think></answer><answer>", "tag_order"),
        ("Sure! " + wrapped(ONE), "text_outside_tags"),
        (wrapped(ONE) + " I hope this helps.", "text_outside_tags"),
        (f"<think>{ONE}</think> so <answer>Normal.</answer>", "text_outside_tags"),
        (wrapped(""), "not_json"),
        (wrapped("I see the lungs."), "not_json"),
        (wrapped(ONE + " done"), "not_json"),
        (wrapped("[{'region': 'neck', 'box': [1, 2, 3, 4]}]"), "not_json"),
        (region('{"region": "neck", "box": [1, 2, 3, NaN]}'), "not_json"),
        (region('{"region": "neck", "box": [1, 2, 3, Infinity]}'), "not_json"),
        (region('{"region": "neck", "box": [1, 2, 3, 1e999]}'), "not_json"),
        (region('{"region": "neck", "box": [1, 2, 3, 4]},'), "not_json"),
        (region('{"region": "neck", "box": [1, 2, 3, 4]'), "not_json"),
        (wrapped('{"region": "neck", "box": [1, 2, 3, 4]}'), "not_a_list"),
        (wrapped("null"), "not_a_list"),
        (region('"neck"'), "not_a_region"),
        (region("null"), "not_a_region"),
        (region('[{"region": "neck", "box": [1, 2, 3, 4]}]'), "not_a_region"),
        (region('{"box": [1, 2, 3, 4]}'), "not_a_region"),
        (region('{"region": " ", "box": [1, 2, 3, 4]}'), "not_a_region"),
        (region('{"region": 7, "box": [1, 2, 3, 4]}'), "not_a_region"),
        (region('{"region": "neck", "finding": "Clear."}'), "missing_box"),
        (region('{"region": "neck", "box": null}'), "missing_box"),
        (region('{"region": "neck", "box": []}'), "bad_box"),
        (region('{"region": "neck", "box": [1, 2, 3]}'), "bad_box"),
        (region('{"region": "neck", "box": [1, 2, 3, 4, 5]}'), "bad_box"),
        (region('{"region": "neck", "box": [1, 2, 3, "4"]}'), "bad_box"),
        (region('{"region": "neck", "box": [1, 2, 3, true]}'), "bad_box"),
        (region('{"region": "neck", "box": [1, 2, 3, null]}'), "bad_box"),
        (region('{"region": "neck", "box": [1, 2, 3, [4]]}'), "bad_box"),
        (region('{"region": "neck", "box": "1, 2, 3, 4"}'), "bad_box"),
        (region('{"region": "neck", "box": {"x1": 1}}'), "bad_box"),
        (region('{"region": "neck", "box": [1, 2, 3, 4], "finding": ["Clear."]}'), "bad_finding"),
        (region('{"region": "a", "box": [1, 2, 3, 4]}, {"region": "b"}'), "missing_box"),
    ],
)
def test_each_reason_of_the_gate(text, reason):
    rejection = parse(text, RELATIVE_1000)
    assert isinstance(rejection, Rejection)
    assert rejection.reason == FormatReason(reason)
    assert 0 < len(rejection.detail) <= 200


def test_frames_of_a_trace():
    assert TraceFormat().frame_for(2000, 3000) == RELATIVE_1000
    assert TraceFormat("pixel_original").frame_for(2000, 3000) == FILM
    assert TraceFormat("pixel_processed").frame_for(2000, 3000, (448, 672)) == pixel_frame(448, 672)
    with pytest.raises(ValueError, match="needs the"):
        TraceFormat("pixel_processed").frame_for(2000, 3000)
    with pytest.raises(ValueError, match="unknown trace frame 'pixels'"):
        TraceFormat("pixels")


def test_the_reference_names_each_located_region_once():
    box, below = Box(0, 0, 10, 10, FILM), Box(0, 20, 10, 30, FILM)
    regions = (
        RegionFinding("Heart", box, "Large."),
        RegionFinding("neck", None, "Clear."),
        RegionFinding("cardiac silhouette", below, "Round."),
        RegionFinding("heart", None, "Large."),
        RegionFinding("right lung", box, ""),
    )
    study = Study("s", None, 2000, 3000, None, None, Report("A.", None), regions)
    assert reference_trace(study) == Trace(
        (RegionFinding("Heart", Box(0, 0, 10, 30, FILM), "Large. Round."), RegionFinding("right lung", box, "")), "A."
    )


text_without_tags = st.text(alphabet=st.characters(codec="utf-8"), max_size=20).filter(lambda t: "<" not in t)
corner = st.integers(-2000, 4000)
regions = st.builds(
    lambda name, x1, y1, x2, y2, finding: RegionFinding(name, Box(x1, y1, x2, y2, FILM), finding),
    text_without_tags.filter(str.strip), corner, corner, corner, corner, text_without_tags,
)  # fmt: skip


@given(st.lists(regions, max_size=5), text_without_tags.map(str.strip))
def test_what_is_rendered_is_parsed_again(regions, report):
    trace = Trace(tuple(regions), report)
    assert parse(render(trace, FILM), FILM) == trace


@given(st.text(max_size=300))
def test_any_text_is_a_trace_or_a_rejection(text):
    assert isinstance(parse(text, FILM), Rejection)
    assert isinstance(parse(wrapped(text), FILM), (Trace, Rejection))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["region", "box", "finding", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_a_trace_or_a_rejection(value):
    assert isinstance(parse(wrapped(json.dumps(value)), FILM), (Trace, Rejection))
    assert isinstance(parse(wrapped(json.dumps([value])), FILM), (Trace, Rejection))
