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
"""Edge cases of the cascade, each with a reward worked out by hand, through the function and through `verl-cxr score`.

The film is 1000 x 1000 pixels, so that the 0-1000 frame of the responses and the annotation's pixels agree. R and L are
the annotated boxes of the study PAIR, 200 x 200 each; HALF_R, QUARTER_R and THIRD_R have that IoU with R.
"""

# A table reads best with one case a row:
# ruff: noqa: E501

import json
from collections import defaultdict
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from reward_plugins.cascade import CascadeOptions, score
from verl_cxr.cli import app
from verl_cxr.facts import make_scorer
from verl_cxr.geometry import RELATIVE_1000
from verl_cxr.study import Study

R, L = [100, 100, 300, 300], [600, 100, 800, 300]
HALF_R = [100, 100, 200, 300]  # 20,000 of 40,000
QUARTER_R = [100, 100, 200, 200]  # 10,000 of 40,000: exactly tau
OVER_R = [100, 100, 200, 201]  # 10,100 of 40,000: just above tau
THIRD_R = [200, 100, 400, 300]  # 20,000 of 60,000
FAR = [700, 700, 900, 900]  # meets neither
CORNER = [900, 900, 1000, 1000]


def study(name, *regions, findings="small left effusion", width=1000):
    rows = [{"name": n, "box": box, "frame": "pixel_xyxy" if box else None, "finding": f} for n, box, f in regions]
    return {"id": name, "width": width, "height": 1000, "report": {"findings": findings}, "regions": rows}


STUDIES = {
    record["id"]: record
    for record in (
        study("PAIR", ("right lung", R, "clear"), ("left lung", L, "small effusion")),
        study("HEART", ("cardiac silhouette", R, "enlarged")),
        study("CORNER", ("left lower lung zone", CORNER, "atelectasis")),
        study("SILENT", ("right lung", R, "")),
        study("HALF-SILENT", ("right lung", R, ""), ("left lung", L, "small effusion")),
        study("NECK", ("right lung", R, "clear"), ("neck", None, "goitre")),
        study("TWICE", ("right lung", QUARTER_R, "scar"), ("R lung", [200, 200, 300, 300], "nodule")),
        study("BARE", findings="normal"),
        study("MUTE", ("right lung", R, "clear"), findings=None),
        study("WIDE", ("right lung", [200, 100, 600, 300], "clear"), width=2000),
        study("OWN", ("Gastric Bubble", R, "large")),
    )
}


def say(*regions, answer="small left effusion"):
    think = json.dumps([{"region": name, "box": box, "finding": finding} for name, box, finding in regions])
    return f"<think>{think}</think><answer>{answer}</answer>"


def think(text):
    return f"<think>{text}</think><answer>small left effusion</answer>"


RIGHT, LEFT = ("right lung", R, "clear"), ("left lung", L, "small effusion")
PERFECT = say(RIGHT, LEFT)


class Case(NamedTuple):
    id: str
    study: str
    response: str
    expected: float
    why: str
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed


def case(id, study, response, expected, why, **options):
    return Case(id, study, response, expected, why, options)


CASES = [
    # --- the formula: mean over annotated regions of IoU + [IoU > 0.25] F1
    case("perfect", "PAIR", PERFECT, 2, "(2 + 2) / 2"),
    case("order", "PAIR", say(LEFT, RIGHT), 2, "the order of regions is irrelevant"),
    case("wrong findings", "PAIR", say(("right lung", R, "x"), ("left lung", L, "y")), 1, "(1 + 1) / 2"),
    case("one missing", "PAIR", say(RIGHT), 1, "(2 + 0) / 2: the mean is over all annotated regions"),
    case("none named", "PAIR", say(), 0, "an empty list passes the gate and earns nothing"),
    case("half box", "PAIR", say(("right lung", HALF_R, "clear"), LEFT), 1.75, "(0.5 + 1 + 2) / 2"),
    case("half box, wrong", "PAIR", say(("right lung", HALF_R, "x"), LEFT), 1.25, "(0.5 + 0 + 2) / 2"),
    case("third", "PAIR", say(("right lung", THIRD_R, "clear"), LEFT), (1 / 3 + 3) / 2, "IoU 1/3 > tau"),
    case("at tau", "PAIR", say(("right lung", QUARTER_R, "clear"), LEFT), 1.125, "0.25 is not above 0.25: (0.25 + 2) / 2"),
    case("over tau", "PAIR", say(("right lung", OVER_R, "clear"), LEFT), 1.62625, "(0.2525 + 1 + 2) / 2"),
    case("far box", "PAIR", say(("right lung", FAR, "clear"), LEFT), 1, "a right finding in a wrong place: (0 + 2) / 2"),
    case("copied finding", "PAIR", say(("right lung", R, "small effusion"), LEFT), 1.5, "(1 + 0 + 2) / 2"),
    case("swapped findings", "PAIR", say(("right lung", R, "small effusion"), ("left lung", L, "clear")), 1, "IoU only"),
    case("empty finding said", "PAIR", say(("right lung", R, ""), LEFT), 1.5, "F1 of nothing against 'clear' is 0"),
    case("finding left out", "PAIR", think(json.dumps([{"region": "right lung", "box": R}])), 0.5, "(1 + 0 + 0) / 2"),
    case("case and full stop", "HEART", say(("cardiac silhouette", R, "Enlarged.")), 2, "exact compares normalised text"),
    # --- names
    case("aliases", "PAIR", say(("R lung", R, "clear"), ("Lung, LEFT", L, "small effusion")), 2, "the same regions"),
    case("plural", "PAIR", say(("right lungs", R, "clear"), ("left-sided lung", L, "small effusion")), 2, "the same"),
    case("heart", "HEART", say(("Heart", R, "enlarged")), 2, "an alias of the cardiac silhouette"),
    case("left heart", "HEART", say(("left heart", R, "enlarged")), 0, "a region of its own"),
    case("sides swapped", "PAIR", say(("left lung", R, "clear"), ("right lung", L, "small effusion")), 0, "no overlap"),
    case("no side", "PAIR", say(("lung", R, "clear"), LEFT), 1, "'lung' is neither: right lung is missing"),
    case("own region set", "OWN", say(("gastric  bubble", R, "large")), 2, "unknown names match by normal form"),
    # --- the format gate: reward 0
    case("no tags", "PAIR", "The lungs are clear.", 0, "missing_tag"),
    case("cut short", "PAIR", PERFECT.removesuffix("</answer>"), 0, "missing_tag"),
    case("twice", "PAIR", PERFECT + PERFECT, 0, "repeated_tag"),
    case("nested", "PAIR", f"<think>{PERFECT}</think>", 0, "repeated_tag"),
    case("answer first", "PAIR", "<answer>a</answer><think>[]</think>", 0, "tag_order"),
    case("preface", "PAIR", "Sure: " + PERFECT, 0, "text_outside_tags"),
    case("prose", "PAIR", think("The right lung is clear."), 0, "not_json"),
    case("nan", "PAIR", think('[{"region": "right lung", "box": [100, 100, NaN, 300]}]'), 0, "not_json"),
    case("one object", "PAIR", think(json.dumps({"region": "right lung", "box": R})), 0, "not_a_list"),
    case("no box", "PAIR", think('[{"region": "right lung", "finding": "clear"}]'), 0, "missing_box"),
    case("one of two without box", "PAIR", say(RIGHT, ("left lung", None, "small effusion")), 0, "missing_box"),
    case("three numbers", "PAIR", say(("right lung", [100, 100, 300], "clear")), 0, "bad_box"),
    case("true", "PAIR", say(("right lung", [100, True, 300, 300], "clear")), 0, "bad_box"),
    case("number as text", "PAIR", say(("right lung", [100, 100, 300, "300"], "clear")), 0, "bad_box"),
    case("code fence", "PAIR", think(f"\n```json\n{json.dumps([{'finding': 'clear', 'box': R, 'region': 'right lung'}])}\n```"),
         1, "fences, white space and key order are forgiven: (2 + 0) / 2"),
    case("empty report", "PAIR", say(RIGHT, LEFT, answer=""), 2, "the gate asks for the tags, the cascade for the regions"),
    # --- boxes
    case("reversed box", "PAIR", say(("right lung", [300, 300, 100, 100], "clear"), LEFT), 1, "no area, IoU 0: (0 + 2) / 2"),
    case("flat box", "PAIR", say(("right lung", [100, 100, 300, 100], "clear"), LEFT), 1, "no area, IoU 0"),
    case("flat box refused", "PAIR", say(("right lung", [100, 100, 300, 100], "clear"), LEFT), 0, "degenerate_box",
         degenerate="reject"),
    case("overrun", "CORNER", say(("left lower lung zone", [900, 900, 1100, 1100], "atelectasis")), 2, "clipped to the film"),
    case("overrun earns nothing", "CORNER", say(("left lower lung zone", [900, 900, 1100, 1100], "atelectasis")), 0, "IoU 0",
         overrun="zero"),
    case("outside", "CORNER", say(("left lower lung zone", [1000, 900, 1100, 1000], "atelectasis")), 0, "nothing is left"),
    case("huge", "CORNER", say(("left lower lung zone", [-1e308, -1e308, 1e308, 1e308], "atelectasis")), 0.01,
         "clipped to the whole film: 10,000 of 1,000,000"),
    case("0-1000", "WIDE", say(("right lung", [100, 100, 300, 300], "clear")), 2, "x is relative to the width of 2000"),
    case("pixels as 0-1000", "WIDE", say(("right lung", [200, 100, 600, 300], "clear")), 0.2,
         "read as 400-1200: 40,000 of 200,000"),
    # --- a region predicted twice
    case("worst: box", "PAIR", say(RIGHT, ("right lung", FAR, "clear"), LEFT), 1, "(0 + 2) / 2: hedging costs"),
    case("worst: finding", "PAIR", say(RIGHT, ("right lung", R, "x"), LEFT), 1.5, "(1 + 0 + 2) / 2"),
    case("worst: of both", "PAIR", say(("right lung", R, "x"), ("right lung", HALF_R, "clear"), LEFT), 1.25,
         "the worse box of one, the worse finding of the other: (0.5 + 0 + 2) / 2"),
    case("worst: same again", "PAIR", say(RIGHT, RIGHT, LEFT), 2, "a plain repetition costs nothing"),
    case("worst: by alias", "PAIR", say(RIGHT, ("Rt lung", FAR, "clear"), LEFT), 1, "one region under two names"),
    case("best", "PAIR", say(("right lung", FAR, "x"), RIGHT, LEFT), 2, "the good one counts", duplicates="best"),
    case("best of both", "PAIR", say(("right lung", R, "x"), ("right lung", HALF_R, "clear"), LEFT), 2,
         "the better box of one, the better finding of the other", duplicates="best"),
    case("first good", "PAIR", say(RIGHT, ("right lung", FAR, "x"), LEFT), 2, "the second is not read", duplicates="first"),
    case("first bad", "PAIR", say(("right lung", FAR, "x"), RIGHT, LEFT), 1, "the second is not read", duplicates="first"),
    case("union", "PAIR", say(("right lung", HALF_R, "clear"), ("right lung", [200, 100, 300, 300], "clear"), LEFT), 2,
         "two halves make the box; one distinct finding", duplicates="union"),
    case("union of findings", "PAIR", say(RIGHT, ("right lung", R, "a nodule"), LEFT), 1.5, "'a nodule clear' is not 'clear'",
         duplicates="union"),
    case("union with nothing", "PAIR", say(RIGHT, ("right lung", [0, 0, 0, 0], "clear"), LEFT), 2,
         "a box without area does not stretch the union", duplicates="union"),
    case("annotated twice", "TWICE", say(("right lung", R, "scar nodule")), 2, "the annotation's rows are united"),
    # --- a region that is not annotated
    case("extra ignored", "PAIR", say(RIGHT, LEFT, ("spine", FAR, "x")), 2, "as in the paper"),
    case("extra penalised", "PAIR", say(RIGHT, LEFT, ("spine", FAR, "x")), 4 / 3, "(2 + 2 + 0) / 3", unannotated="penalise"),
    case("extra at half weight", "PAIR", say(RIGHT, LEFT, ("spine", FAR, "x")), 1.6, "4 / 2.5", unannotated="penalise",
         unannotated_weight=0.5),
    case("extra twice", "PAIR", say(RIGHT, LEFT, ("spine", FAR, "x"), ("Spine", R, "y")), 4 / 3, "one region: 4 / 3",
         unannotated="penalise"),
    case("described without box", "NECK", say(RIGHT, ("neck", FAR, "goitre")), 2, "not annotated with a box, yet not invented",
         unannotated="penalise"),
    case("box-less is not counted", "NECK", say(RIGHT), 2, "the neck has no box to find"),
    # --- empty findings, and F1 that is undefined
    case("both silent", "SILENT", say(("right lung", R, "")), 2, "agreement that there is nothing to say: F1 1"),
    case("both silent: zero", "SILENT", say(("right lung", R, "")), 1, "1 + 0", no_entity="zero"),
    case("both silent: skip", "SILENT", say(("right lung", R, "")), 1, "no F1 left to average", no_entity="skip"),
    case("invented", "SILENT", say(("right lung", R, "a nodule")), 1, "F1 of a text against nothing is 0"),
    case("invented, with another", "HALF-SILENT", say(("right lung", R, "a nodule"), LEFT), 1.5, "(1 + 0 + 2) / 2"),
    case("silence is no evidence", "HALF-SILENT", say(("right lung", R, "a nodule"), LEFT), 2, "IoU 2/2, F1 1/1",
         empty_finding="skip"),
    case("skip leaves the mean", "HALF-SILENT", say(("right lung", R, ""), ("left lung", L, "x")), 1, "IoU 2/2, F1 0/1",
         no_entity="skip"),
    case("zero stays in the mean", "HALF-SILENT", say(("right lung", R, ""), LEFT), 1.5, "IoU 2/2, F1 (0 + 1)/2",
         no_entity="zero"),
    case("skip needs the gate", "HALF-SILENT", say(("right lung", FAR, ""), LEFT), 1, "IoU 1/2, F1 (0 + 1)/2",
         no_entity="skip"),
    # --- a study with nothing to compare
    case("no region", "BARE", say(answer="normal"), 0, "never full marks for an unverifiable study"),
    case("no region, invented", "BARE", say(RIGHT, answer="normal"), 0, "unverifiable"),
    case("no region, answer", "BARE", say(answer="Normal."), 1, "the report can be compared", verify="answer"),
    case("no report", "MUTE", say(RIGHT), 0, "unverifiable", verify="answer"),
    case("no report, both", "MUTE", say(RIGHT), 2, "the reasoning part alone", verify="both"),
    # --- Table 6: parts
    case("spatial", "PAIR", say(("right lung", HALF_R, "x"), ("left lung", L, "y")), 0.75, "(0.5 + 1) / 2", parts="spatial"),
    case("factual", "PAIR", PERFECT, 1, "(1 + 1) / 2", parts="factual"),
    case("factual is gated", "PAIR", say(("right lung", QUARTER_R, "clear"), LEFT), 0.5, "(0 + 1) / 2", parts="factual"),
    case("factual, gate off", "PAIR", say(("right lung", FAR, "clear"), LEFT), 1, "wherever the box lies", parts="factual",
         gate=False),
    case("gate off", "PAIR", say(("right lung", FAR, "clear"), LEFT), 1.5, "(0 + 1 + 2) / 2", gate=False),
    case("gate off, missing", "PAIR", say(LEFT), 1, "a missing region has no finding to count", gate=False),
    case("format only", "PAIR", say(("spine", FAR, "x")), 1, "well-formed", parts="none"),
    case("format only, malformed", "PAIR", "x", 0, "the gate comes first", parts="none"),
    # --- Table 4: what is verified
    case("answer", "PAIR", say(), 1, "the report is right, the regions are not looked at", verify="answer"),
    case("answer wrong", "PAIR", say(RIGHT, LEFT, answer="normal"), 0, "the report is wrong", verify="answer"),
    case("answer malformed", "PAIR", "small left effusion", 0, "the gate comes first", verify="answer"),
    case("both", "PAIR", PERFECT, 3, "2 + 1", verify="both"),
    case("both, report wrong", "PAIR", say(RIGHT, LEFT, answer="normal"), 2, "2 + 0", verify="both"),
    case("both, weighted", "PAIR", say(RIGHT), 2.5, "0.5 * 1 + 2 * 1", verify="both", reasoning_weight=0.5, answer_weight=2.0),
    # --- Table 5: tau
    case("tau 0", "PAIR", say(("right lung", QUARTER_R, "clear"), LEFT), 1.625, "(0.25 + 1 + 2) / 2", tau=0.0),
    case("tau 0, no overlap", "PAIR", say(("right lung", FAR, "clear"), LEFT), 1, "0 is not above 0", tau=0.0),
    case("tau 0.5", "PAIR", say(("right lung", HALF_R, "clear"), LEFT), 1.25, "0.5 is not above 0.5: (0.5 + 2) / 2", tau=0.5),
    case("tau 1", "PAIR", PERFECT, 1, "nothing is above 1: IoU only", tau=1.0),
]  # fmt: skip

REASONS = {"missing_tag", "repeated_tag", "tag_order", "text_outside_tags", "not_json", "not_a_list", "missing_box", "bad_box",
           "degenerate_box"}  # fmt: skip


def check(case, reward, row):
    assert reward == pytest.approx(case.expected, abs=1e-12), case.why
    if case.why in REASONS:
        assert (row["format"], row["reason"]) == (0, case.why)
    if case.why == "unverifiable":
        assert row["unverifiable"] == 1


def test_the_table_is_a_table():
    assert len(CASES) >= 40
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_by_the_function(case):
    study = Study.from_dict(STUDIES[case.study])
    options = CascadeOptions(**case.options)
    record = score(case.response, study, options=options, frame=RELATIVE_1000, facts=make_scorer("exact"))
    check(case, record.reward, record.to_dict(study.id))


def test_by_the_command(tmp_path):
    studies = tmp_path / "S.jsonl"
    studies.write_text("".join(json.dumps(record) + "\n" for record in STUDIES.values()))
    groups = defaultdict(list)
    for case in CASES:
        groups[tuple(sorted({"tau": 0.25, **case.options}.items()))].append(case)
    for options, cases in groups.items():
        responses, out = tmp_path / "R.jsonl", tmp_path / "O.jsonl"
        responses.write_text("".join(json.dumps({"id": c.study, "response": c.response}) + "\n" for c in cases))
        words = ["score", "--reward", "cascade", "--studies", studies, "--responses", responses, "--facts", "exact"]
        for key, value in options:
            words += ["--tau", value] if key == "tau" else ["--option", f"{key}={value}"]
        result = CliRunner().invoke(app, [str(word) for word in [*words, "--out", out]])
        assert result.exit_code == 0, result.output
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert [row["id"] for row in rows] == [c.study for c in cases]
        for case, row in zip(cases, rows, strict=True):
            check(case, row["reward"], row)
