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
"""What holds of the cascade for every response, and what its record and its two phases promise."""

import json
import math
import zlib
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_plugins.cascade import CascadeOptions, RewardRecord, prepare, score
from verl_cxr.anatomy import load_vocabulary
from verl_cxr.facts import FactServiceError, make_scorer
from verl_cxr.geometry import RELATIVE_1000, Box, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study
from verl_cxr.trace import Trace, TraceFormat, reference_trace, render

EXACT = make_scorer("exact")
DEFAULT = CascadeOptions()
REGIONS = sorted(region.name for region in load_vocabulary().regions.values() if region.boxed)
FINDINGS = ["clear", "Small effusion.", "mild opacity", "a nodule", ""]


class PartialCredit:
    """Stand-in for a graded scorer: any F1 for two texts, 1 for equal ones, 0 for one empty, undefined for both."""

    name = "partial-credit"

    def score(self, pairs):
        def one(predicted, reference):
            if not predicted.strip() or not reference.strip():
                return None if predicted.strip() == reference.strip() else 0.0
            return 1.0 if predicted == reference else zlib.crc32(f"{predicted}|{reference}".encode()) % 100 / 100

        return [one(*pair) for pair in pairs]


def reward(response, study, options=DEFAULT, *, frame=None, facts=EXACT):
    frame = frame or pixel_frame(study.width, study.height)
    return score(response, study, options=options, frame=frame, facts=facts).reward


@st.composite
def boxes(draw, width, height, smallest=1):
    x1, y1 = draw(st.integers(0, width - smallest)), draw(st.integers(0, height - smallest))
    x2, y2 = draw(st.integers(x1 + smallest, width)), draw(st.integers(y1 + smallest, height))
    return Box(float(x1), float(y1), float(x2), float(y2), pixel_frame(width, height))


@st.composite
def studies(draw, smallest_share=0.0, findings=FINDINGS):
    width, height = draw(st.integers(200, 4000)), draw(st.integers(200, 4000))
    smallest = max(1, math.ceil(smallest_share * max(width, height)))
    if smallest > min(width, height):
        width = height = max(width, height)
    names = draw(st.lists(st.sampled_from(REGIONS), min_size=1, max_size=5, unique=True))
    regions = tuple(
        RegionFinding(name, draw(boxes(width, height, smallest)), draw(st.sampled_from(findings))) for name in names
    )
    return Study("s", None, width, height, "PA", "train", Report("Some findings.", None), regions)


@st.composite
def studies_and_traces(draw):
    """A study and a response that is right, shifted, wrong, repeated, missing or invented, region by region."""
    study = draw(studies())
    frame = pixel_frame(study.width, study.height)
    said = []
    for region in study.regions:
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
            dx, dy = draw(st.integers(-80, 80)), draw(st.integers(-80, 80))
            box = region.box
            shifted = Box(box.x1 + dx, box.y1 + dy, box.x2 + dx, box.y2 + dy, frame)
            finding = draw(st.sampled_from([region.finding, *FINDINGS]))
            said.append(RegionFinding(region.name, draw(st.sampled_from([box, shifted])), finding))
    for name in draw(st.lists(st.sampled_from(REGIONS), max_size=2)):
        said.append(RegionFinding(name, draw(boxes(study.width, study.height)), draw(st.sampled_from(FINDINGS))))
    return study, Trace(tuple(draw(st.permutations(said))), draw(st.sampled_from(["Some findings.", "Other.", ""])))


options_of_reasoning = st.builds(
    CascadeOptions,
    tau=st.sampled_from([0.0, 0.25, 0.5, 0.9]),
    parts=st.sampled_from(["joint", "spatial", "factual", "none"]),
    gate=st.booleans(),
    duplicates=st.sampled_from(["worst", "best", "first", "union"]),
    unannotated=st.sampled_from(["ignore", "penalise"]),
    empty_finding=st.sampled_from(["compare", "skip"]),
    no_entity=st.sampled_from(["one", "zero", "skip"]),
    overrun=st.sampled_from(["clip", "zero"]),
    degenerate=st.sampled_from(["zero", "reject"]),
    measure_all=st.booleans(),
)


# --- properties of the reward


@given(studies_and_traces(), options_of_reasoning)
def test_the_reward_lies_between_0_and_2(pair, options):
    study, trace = pair
    assert 0 <= reward(render(trace, trace_frame(study)), study, options, facts=PartialCredit()) <= 2


def trace_frame(study):
    return pixel_frame(study.width, study.height)


@given(studies())
def test_the_annotation_scores_exactly_2_in_pixels(study):
    assert reward(render(reference_trace(study), trace_frame(study)), study) == 2.0


@given(studies(smallest_share=0.1))
def test_the_annotation_scores_nearly_2_on_the_0_1000_grid(study):
    # 0.1 of the film is 100 units; rounding moves an edge by half a unit, so IoU >= (99 / 100)^2 at the worst
    text = render(reference_trace(study), RELATIVE_1000)
    assert 1.98 <= reward(text, study, frame=RELATIVE_1000) <= 2.0


@given(studies_and_traces(), options_of_reasoning, st.floats(0, 1), st.floats(0, 1))
def test_raising_tau_never_raises_the_reward(pair, options, one, other):
    study, trace = pair
    text = render(trace, trace_frame(study))
    low, high = sorted((one, other))
    at_low = reward(text, study, replace(options, tau=low), facts=PartialCredit())
    at_high = reward(text, study, replace(options, tau=high), facts=PartialCredit())
    assert at_high <= at_low + 1e-12


@given(studies_and_traces(), options_of_reasoning, st.data())
def test_the_order_of_regions_is_irrelevant(pair, options, data):
    study, trace = pair
    if options.duplicates == "first":
        options = replace(options, duplicates="worst")
    shuffled = Trace(tuple(data.draw(st.permutations(trace.regions))), trace.report)
    before = reward(render(trace, trace_frame(study)), study, options, facts=PartialCredit())
    after = reward(render(shuffled, trace_frame(study)), study, options, facts=PartialCredit())
    assert after == pytest.approx(before, abs=1e-12)


@given(studies_and_traces(), options_of_reasoning, st.data())
def test_adding_a_correct_region_never_lowers_the_reward(pair, options, data):
    study, trace = pair
    correct = data.draw(st.sampled_from(study.regions))
    named = any(region.name == correct.name for region in trace.regions)
    if named and options.duplicates == "union":
        return  # the union of a wrong box and the right one may be worse than either
    longer = Trace((*trace.regions, correct), trace.report)
    before = reward(render(trace, trace_frame(study)), study, options, facts=PartialCredit())
    after = reward(render(longer, trace_frame(study)), study, options, facts=PartialCredit())
    assert after >= before - 1e-12


@given(studies_and_traces(), options_of_reasoning, boxes(200, 200), st.sampled_from(FINDINGS))
def test_under_worst_naming_a_region_again_never_pays(pair, options, box, finding):
    study, trace = pair
    if not trace.regions:
        return
    options = replace(options, duplicates="worst")
    again = RegionFinding(trace.regions[0].name, Box(box.x1, box.y1, box.x2, box.y2, trace_frame(study)), finding)
    longer = Trace((*trace.regions, again), trace.report)
    before = reward(render(trace, trace_frame(study)), study, options, facts=PartialCredit())
    assert reward(render(longer, trace_frame(study)), study, options, facts=PartialCredit()) <= before + 1e-12


@given(studies(findings=["clear", "a nodule"]))
def test_negative_control_the_reward_is_not_constant(study):
    frame = trace_frame(study)
    away = tuple(RegionFinding(region.name, Box(0, 0, 1, 1, frame), "nonsense") for region in study.regions)
    assert reward(render(Trace(away, ""), frame), study) < 1.01
    assert reward(render(Trace((), ""), frame), study) == 0


# --- the record


STUDY = Study(
    "s",
    None,
    1000,
    1000,
    "PA",
    "train",
    Report("Clear. Effusion.", None),
    (
        RegionFinding("Right Lung", Box(100, 100, 300, 300, pixel_frame(1000, 1000)), "clear"),
        RegionFinding("left lung", Box(600, 100, 800, 300, pixel_frame(1000, 1000)), "effusion"),
    ),
)


def say(*regions, report="Clear. Effusion."):
    items = [{"region": name, "box": box, "finding": finding} for name, box, finding in regions]
    return f"<think>{json.dumps(items)}</think><answer>{report}</answer>"


def record(response, **options):
    return score(response, STUDY, options=CascadeOptions(**options), frame=RELATIVE_1000, facts=EXACT)


HALF = say(("right lung", [100, 100, 200, 300], "clear"))


def test_the_parts_of_a_record():
    assert record(HALF) == RewardRecord(
        reward=0.75,
        format=True,
        reasoning=0.75,
        spatial=0.25,
        factual=0.5,
        answer=None,
        n_regions=1,
        annotated_regions=2,
        missing_regions=1,
        iou_over_tau=0.5,
        report_chars=16,
        response_chars=len(HALF),
        regions=(("right lung", 0.5, 1.0, True, 1), ("left lung", 0.0, None, False, 0)),
    )


def test_a_row_of_the_output():
    row = record(HALF).to_dict("s")
    assert (row["id"], row["reward"], row["format"], row["answer"]) == ("s", 0.75, 1, None)
    assert row["regions"][0] == {"name": "right lung", "iou": 0.5, "f1": 1.0, "gated": True, "predicted": 1}
    assert json.loads(json.dumps(row)) == row


@pytest.mark.parametrize(
    "response", ["", HALF, say(), say(("right lung", [0, 0, 0, 0], None)), say(("spine", [1, 1, 2, 2], "x"), report="")]
)
@pytest.mark.parametrize("verify", ["reasoning", "answer", "both"])
@pytest.mark.parametrize("measure_all", [True, False])
def test_the_numeric_keys_are_fixed_finite_and_without_the_reward(response, verify, measure_all):
    numbers = record(response, verify=verify, measure_all=measure_all).numbers()
    assert numbers.keys() == record(HALF).numbers().keys()
    assert all(type(value) is float and math.isfinite(value) for value in numbers.values())
    assert "reward" not in numbers  # verl logs the reward under that key itself
    numeric = {field.name for field in fields(RewardRecord)} - {"reward", "reason", "detail", "regions"}
    assert numbers.keys() == numeric


def test_a_refused_response():
    refused = record("no tags")
    assert (refused.reward, refused.format, refused.reason, refused.regions) == (0.0, False, "missing_tag", ())
    assert (refused.missing_regions, refused.spatial, refused.answer) == (2, 0.0, None)
    assert prepare("no tags", STUDY, DEFAULT, RELATIVE_1000).pairs == ()


def test_the_counts():
    counted = record(
        say(
            ("right lung", [100, 100, 300, 300], "effusion"),  # the left lung's finding
            ("R lung", [100, 100, 100, 300], "clear"),  # again, without area
            ("spine", [-10, 0, 20, 20], "Effusion."),  # not annotated, beyond the film, a copied and misplaced finding
        )
    )
    assert (counted.n_regions, counted.missing_regions, counted.extra_regions, counted.duplicate_regions) == (
        3,
        1,
        1,
        1,
    )
    assert (counted.degenerate_boxes, counted.overrun_boxes) == (1, 1)
    assert counted.duplicate_findings == pytest.approx(1 / 3)
    assert counted.misplaced_findings == pytest.approx(2 / 3)


def test_no_study_without_region_gets_marks():
    bare = replace(STUDY, regions=(RegionFinding("neck", None, "clear"),))
    for parts in ("joint", "spatial", "factual"):
        scored = score(say(), bare, options=CascadeOptions(parts=parts), frame=RELATIVE_1000, facts=EXACT)
        assert (scored.reward, scored.unverifiable, scored.spatial, scored.numbers()["spatial"]) == (0, True, None, 0.0)


def test_only_what_is_needed_is_sent_to_the_scorer():
    response = say(("right lung", [100, 100, 300, 300], "clear"), ("left lung", [0, 0, 9, 9], "effusion"), report="r")

    def pairs(**options):
        return prepare(response, STUDY, CascadeOptions(**options), RELATIVE_1000).pairs

    lung, closed, report = ("clear", "clear"), ("effusion", "effusion"), ("r", "Clear. Effusion.")
    assert pairs() == (lung,)
    assert pairs(verify="both") == (lung, report)
    assert pairs(verify="answer") == (report,)
    assert pairs(parts="spatial") == pairs(parts="none") == ()
    assert pairs(measure_all=True) == pairs(measure_all=True, parts="spatial") == (lung, closed, report)


@given(studies_and_traces(), options_of_reasoning)
def test_measuring_more_does_not_change_the_reward(pair, options):
    study, trace = pair
    text = render(trace, trace_frame(study))
    more, less = (
        score(text, study, options=replace(options, measure_all=all_), frame=trace_frame(study), facts=PartialCredit())
        for all_ in (True, False)
    )
    assert (more.reward, more.spatial) == (less.reward, less.spatial)
    assert less.factual is None or more.factual == less.factual


def test_a_repeated_pair_is_scored_once():
    study = replace(STUDY, regions=tuple(replace(region, finding="clear") for region in STUDY.regions))
    trace = render(reference_trace(study), RELATIVE_1000)
    prepared = prepare(trace, study, DEFAULT, RELATIVE_1000)
    assert prepared.pairs == (("clear", "clear"),)
    assert prepared.finish([0.5]).reward == pytest.approx(1.5, abs=0.01)


def test_a_broken_scorer_is_never_a_low_reward():
    prepared = prepare(say(("right lung", [100, 100, 300, 300], "clear")), STUDY, DEFAULT, RELATIVE_1000)
    with pytest.raises(ValueError, match="0 F1 values for 1 pairs"):
        prepared.finish([])
    for f1 in (1.5, -0.1, math.nan):
        with pytest.raises(ValueError, match="lies in"):
            prepared.finish([f1])

    class Down:
        name = "down"

        def score(self, pairs):
            raise FactServiceError("the annotator is down")

    with pytest.raises(FactServiceError):
        score(HALF, STUDY, options=DEFAULT, frame=RELATIVE_1000, facts=Down())


def test_every_frame_gives_one_reward():
    trace = reference_trace(STUDY)
    for name in ("relative_1000", "pixel_original", "pixel_processed"):
        frame = TraceFormat(name).frame_for(1000, 1000, (500, 500))
        assert reward(render(trace, frame), STUDY, frame=frame) == pytest.approx(2.0)


# --- the options


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("tau", 1.5, "from 0 to 1"),
        ("tau", -0.1, "from 0 to 1"),
        ("tau", math.nan, "from 0 to 1"),
        ("tau", "0.25", "use a number"),
        ("tau", True, "use a number"),
        ("parts", "both", "joint, spatial, factual, none"),
        ("verify", "all", "reasoning, answer, both"),
        ("duplicates", "last", "worst, best, first, union"),
        ("unannotated", "punish", "ignore, penalise"),
        ("no_entity", 1, "one, zero, skip"),
        ("gate", "no", "true or false"),
        ("answer_weight", -1, "from 0 up"),
        ("unannotated_weight", math.inf, "from 0 up"),
    ],
)
def test_options_are_checked(option, value, words):
    with pytest.raises(ValueError, match=f"{option}=.*{words}"):
        CascadeOptions(**{option: value})


def test_options_from_a_command_line():
    assert CascadeOptions.from_text({}) == DEFAULT
    texts = {"tau": "0.5", "gate": "False", "parts": "factual", "measure_all": "true", "answer_weight": "2"}
    assert CascadeOptions.from_text(texts) == CascadeOptions(
        tau=0.5, gate=False, parts="factual", measure_all=True, answer_weight=2.0
    )
    with pytest.raises(ValueError, match="unknown option 'taw': use one of tau, parts"):
        CascadeOptions.from_text({"taw": "1"})
    with pytest.raises(ValueError, match="tau='high': use a number"):
        CascadeOptions.from_text({"tau": "high"})
    with pytest.raises(ValueError, match="gate='maybe': use true or false"):
        CascadeOptions.from_text({"gate": "maybe"})
