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
"""The accuracy-gated reward: hand-computed cases, and the properties that the paper promises."""

import itertools
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

import hydra_configs
from reward_plugins.accuracy_format import Problem, problem_of
from reward_plugins.accuracy_gate import AccuracyGateOptions, score
from reward_plugins.accuracy_options import Mode, margin
from tests.rewards.trajectories import CALL, HEART, RIGHT, WRONG, rollout
from verl_cxr import resolvers
from verl_cxr.question import Kind, Question
from verl_cxr.trajectory import MALFORMED, Call, Trajectory

OPTIONS = AccuracyGateOptions()
MODES = get_args(Mode)

#                                     accuracy  ungated_cxr  ungated_tool  ungated  gated
TABLE: list[tuple[str, Trajectory, tuple[float, ...]]] = [
    ("right, agrees, 2 calls", rollout(RIGHT, calls=2, shown={"ctr": 0.58}), (1.2, 1.7, 1.1, 1.6, 1.6)),
    ("wrong, agrees, 2 calls", rollout(WRONG, calls=2, shown={"ctr": 0.58}), (0.2, 0.7, 0.1, 0.6, 0.2)),
    ("right, contradicts", rollout(RIGHT, shown={"ctr": 0.42}), (1.2, 1.2, 1.2, 1.2, 1.2)),
    ("right, withheld", rollout(RIGHT, withheld={"ctr": 0.58}), (1.2, 1.2, 1.2, 1.2, 1.2)),
    ("right, no evidence, 5 calls", rollout(RIGHT, calls=5), (1.2, 1.2, 0.95, 0.95, 0.95)),
    ("right, 9 calls cost as 5", rollout(RIGHT, calls=9), (1.2, 1.2, 0.95, 0.95, 0.95)),
    ("wrong, 5 calls", rollout(WRONG, calls=5), (0.2, 0.2, -0.05, -0.05, 0.2)),
    ("right, no tags, 1 call", rollout("Heart enlarged. A", calls=1), (1.0, 1.0, 0.95, 0.95, 0.95)),
    ("nothing", rollout(""), (0, 0, 0, 0, 0)),
]


@pytest.mark.parametrize(("trajectory", "rewards"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_rewards_by_mode(trajectory: Trajectory, rewards: tuple[float, ...]) -> None:
    found = [score(trajectory, HEART, AccuracyGateOptions(mode=mode)).reward for mode in MODES_IN_ORDER]
    assert found == pytest.approx(list(rewards))


MODES_IN_ORDER: tuple[Mode, ...] = ("accuracy", "ungated_cxr", "ungated_tool", "ungated", "gated")


def test_consistency_is_the_share_of_the_applicable_measurements() -> None:
    question = replace(HEART, extra={"measurement": ["ctr", "lfa", "shift"]})
    text = "<think>Cardiomegaly. The lungs are symmetric.</think><answer>A</answer>"
    shown = {"ctr": 0.58, "lfa": -0.1, "shift": 0.0}
    record = score(rollout(text, shown=shown), question, OPTIONS)
    assert (record.applicable, record.agreeing, record.contradicted) == (3, 2, 0)  # of the shift it says nothing
    assert record.consistency == pytest.approx(2 / 3)
    record = score(rollout(text, shown=shown | {"lfa": 0.9}), question, OPTIONS)
    assert (record.agreeing, record.contradicted) == (1, 1)


def test_a_measurement_that_is_shown_but_not_relevant_counts_nothing() -> None:
    record = score(rollout(RIGHT, shown={"ctr": 0.58}), replace(HEART, extra={"measurement": None}), OPTIONS)
    assert (record.exposed, record.applicable, record.consistency) == (1, 0, 0.0)


def test_the_letter_of_an_answer_stands_for_its_text() -> None:
    text = "<think>See the ratio.</think><answer>A</answer>"
    assert score(rollout(text, shown={"ctr": 0.58}), HEART, OPTIONS).agreeing == 1
    assert score(rollout(text, shown={"ctr": 0.42}), HEART, OPTIONS).contradicted == 1


def test_yes_and_no_stand_for_the_question() -> None:
    question = Question("heart", (), "Is the heart enlarged?", (), ("yes",), Kind.CLOSED)
    for answer, agreeing, contradicted in (("Yes", 1, 0), ("No", 0, 1)):
        text = f"<think>See the ratio.</think><answer>{answer}</answer>"
        record = score(rollout(text, shown={"ctr": 0.58}), question, OPTIONS)
        assert (record.agreeing, record.contradicted) == (agreeing, contradicted)


HALLUCINATED = [
    ("CTR 0.58.", {}, {"ctr": 0.58}, True),
    ("CTR 0.51.", {}, {"ctr": 0.58}, True),  # any number, not only the one that was withheld
    ("The ratio is 0.58.", {}, {"ctr": 0.58}, False),
    ("CTR 0.58.", {"ctr": 0.58}, {}, False),
    ("CTR 0.58 and LFA -0.2.", {"ctr": 0.58}, {"lfa": -0.2}, True),
    ("The CTR is not available; above 0.5 it would be abnormal.", {}, {"ctr": 0.58}, False),
    ("Cardiomegaly.", {}, {"ctr": 0.58}, False),
    ("CTR 0.58.", {}, {}, True),  # the gate was never asked, so nothing was shown
    ("mediastinal shift of 3 cm", {}, {"shift": 0.1}, True),
]


@pytest.mark.parametrize(("rationale", "shown", "withheld", "flagged"), HALLUCINATED)
def test_a_number_for_a_measurement_that_was_not_shown_is_flagged(
    rationale: str, shown: dict[str, float], withheld: dict[str, float], flagged: bool
) -> None:
    text = f"<think>{rationale}</think><answer>A</answer>"
    record = score(rollout(text, shown=shown, withheld=withheld), HEART, OPTIONS)
    assert record.hallucinated_measurement is flagged
    assert record.numbers()["hallucinated_measurement"] == flagged


def test_why_a_measurement_was_withheld_is_told() -> None:
    record = score(rollout(withheld={"ctr": 0.58}), HEART, OPTIONS)
    assert (record.gate_asked, record.gate_open, record.withheld) == (True, False, 1)
    assert record.gate_reasons == ("not_pa",)
    assert score(rollout(), HEART, OPTIONS).gate_asked is False


FORMATS = [
    (RIGHT, None),
    ("The heart is wide. <answer>A</answer>\n", None),
    ("<answer>A</answer>", Problem.NO_RATIONALE),
    ("<think> </think><answer>A</answer>", Problem.NO_RATIONALE),
    ("The heart is wide. A", Problem.MISSING_TAG),
    ("The heart is wide. <answer>A", Problem.MISSING_TAG),
    ("The heart is wide. </answer>A<answer>", Problem.MISSING_TAG),
    ("Wide. <answer>B</answer> <answer>A</answer>", Problem.REPEATED_TAG),
    ("Wide. <answer>A</answer> I am sure.", Problem.TEXT_AFTER_ANSWER),
    ("Wide. <answer> </answer>", Problem.EMPTY_ANSWER),
    ('Wide. <tool_call>{"name": "roi_crop"}</tool_call><answer>A</answer>', Problem.CALL_IN_ANSWER),
]


@pytest.mark.parametrize(("text", "problem"), FORMATS, ids=[text[:50] for text, _ in FORMATS])
def test_format(text: str, problem: Problem | None) -> None:
    assert problem_of(rollout(text)) is problem


def test_a_cut_response_and_a_malformed_call_are_not_well_formed() -> None:
    assert problem_of(rollout(cut=True)) is Problem.CUT
    call = Call("", {}, refused=f"{MALFORMED}: not JSON")
    assert problem_of(rollout(calls=(CALL, call))) is Problem.MALFORMED_CALL
    refused = Call("roi_crop", {}, refused="over_budget")
    assert problem_of(rollout(calls=(refused,))) is None
    assert score(rollout(calls=(CALL, refused)), HEART, OPTIONS).refused_calls == 1


# --- properties

TEXTS = st.one_of(
    st.sampled_from(
        [RIGHT, WRONG, "", "A", "C", "A or B", "<answer>A</answer>", "CTR 0.58. Cardiomegaly", "I cannot say."]
    ),
    st.builds(
        "<think>{} {}</think><answer>{}</answer>".format,
        st.sampled_from(
            ["CTR 0.58.", "CTR 0.42.", "No cardiomegaly.", "Cardiomegaly.", "LFA -0.3", "Mediastinal shift."]
        ),
        st.sampled_from(["", "The right lung is larger.", "No mediastinal shift.", "thoracic shift 0.1"]),
        st.sampled_from(["A", "B", "C", "Cardiomegaly", "A, B", "none"]),
    ),
    st.text(max_size=60),
)
VALUES = st.dictionaries(st.sampled_from(["ctr", "lfa", "shift"]), st.sampled_from([-0.6, -0.1, 0.0, 0.1, 0.42, 0.58]))
WORLDS = st.fixed_dictionaries(
    {
        "text": TEXTS,
        "calls": st.integers(0, 12),
        "shown": VALUES,
        "cut": st.booleans(),
    }
)
CHOICES = st.builds(
    lambda calls, share, lambda_m, form: AccuracyGateOptions(
        lambda_m=lambda_m,
        max_calls=calls,
        lambda_t=0.99 * share / calls if calls else share,
        format_weight=form * 0.99 * (1 - (0.99 * share if calls else 0)),
    ),
    st.integers(0, 20), st.floats(0, 1), st.floats(0, 10), st.floats(0, 1),
)  # fmt: skip


@given(worlds=st.tuples(WORLDS, WORLDS), options=CHOICES)
def test_every_right_answer_outranks_every_wrong_one(worlds: Any, options: AccuracyGateOptions) -> None:
    question = replace(HEART, extra={"measurement": ["ctr", "lfa", "shift"]})
    one, other = (score(rollout(**world), question, options) for world in worlds)
    least = margin(options.lambda_t, options.max_calls, options.format_weight)
    if one.correct and not other.correct:
        assert one.reward - other.reward >= least - 1e-9 > -1e-9
    if not one.correct:
        assert one.reward in (0.0, options.format_weight)


@pytest.mark.parametrize(
    ("shown", "calls", "form"), itertools.product(({}, {"ctr": 0.42}, {"ctr": 0.58}), (0, 5, 50), (0, 1))
)
def test_the_worst_right_answer_outranks_the_best_wrong_one(shown: dict[str, float], calls: int, form: int) -> None:
    best_wrong = max(
        score(rollout(WRONG, shown=s, calls=n), HEART, OPTIONS).reward for s in ({}, {"ctr": 0.58}) for n in (0, 5)
    )
    text = RIGHT if form else "A"
    assert score(rollout(text, shown=shown, calls=calls), HEART, OPTIONS).reward > best_wrong + 0.5


@given(
    world=WORLDS,
    more=st.integers(1, 5),
    refused=st.sampled_from([None, "over_budget", MALFORMED]),
    mode=st.sampled_from(MODES),
)
def test_more_calls_never_pay(world: Any, more: int, refused: str | None, mode: Mode) -> None:
    options = AccuracyGateOptions(mode=mode)
    before = rollout(**world)
    after = replace(before, calls=(*before.calls, *[replace(CALL, refused=refused)] * more))
    assert score(after, HEART, options).reward <= score(before, HEART, options).reward


@given(world=WORLDS, hidden=VALUES, mode=st.sampled_from(MODES))
def test_nothing_is_earned_from_what_was_withheld(world: Any, hidden: dict[str, float], mode: Mode) -> None:
    """The reward is the same whatever was measured and withheld, and never more than if nothing had been measured."""
    options = AccuracyGateOptions(mode=mode)
    question = replace(HEART, extra={"measurement": ["ctr", "lfa", "shift"]})
    nothing = score(rollout(**world | {"shown": {}}), question, options)
    record = score(rollout(**world | {"shown": {}}, withheld=hidden), question, options)
    assert record.reward == nothing.reward
    assert record.consistency == 0
    assert not any(each.agrees or each.contradicts for each in record.measurements)


@given(world=WORLDS)
def test_every_record_has_the_same_finite_numbers(world: Any) -> None:
    record = score(rollout(**world), HEART, OPTIONS)
    assert record.numbers().keys() == score(rollout(), HEART, OPTIONS).numbers().keys()
    assert all(type(value) is float and abs(value) < 1e9 for value in record.numbers().values())
    assert 0 <= record.consistency <= 1
    assert record.to_dict("heart").keys() == score(rollout(), HEART, OPTIONS).to_dict("heart").keys()


def test_negative_control_ungated_lets_a_wrong_answer_outrank_a_right_one() -> None:
    """The property above is of the gate, not of the test: the paper's ablation breaks it."""
    options = AccuracyGateOptions(mode="ungated", lambda_m=2.0)
    wrong = score(rollout(WRONG, shown={"ctr": 0.58}), HEART, options).reward
    assert wrong > score(rollout("A", calls=5), HEART, options).reward


# --- options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"lambda_t": 0.2}, r"lambda_t \* max_calls = 0\.2 \* 5 = 1 must be less than 1.*lower lambda_t below 0\.2"),
        ({"max_calls": 20}, r"0\.05 \* 20 = 1 must be less than 1"),
        ({"format_weight": 0.75}, r"format_weight=0\.75 must be less than 1 - lambda_t \* max_calls = 0\.75"),
        ({"lambda_m": -0.1}, "lambda_m=-0.1: use a number from 0 up"),
        ({"lambda_t": float("nan")}, "use a number from 0 up"),
        ({"lambda_t": "0.05"}, "use a number"),
        ({"max_calls": 2.5}, "max_calls=2.5: use a whole number"),
        ({"mode": "soft"}, "mode='soft': use one of accuracy, ungated_cxr"),
    ],
)
def test_options_that_break_the_invariant_are_refused_in_every_mode(options: dict[str, Any], problem: str) -> None:
    for mode in ("gated", "ungated"):
        with pytest.raises(ValueError, match=problem):
            AccuracyGateOptions(**{"mode": mode} | options)


FILE = Path(next(iter(hydra_configs.__path__))) / "reward" / "accuracy_gate.yaml"


def test_the_reward_file_holds_every_option_with_its_default() -> None:
    written = yaml.safe_load(FILE.read_text())
    del written["margin"]
    assert list(written.items()) == list(asdict(OPTIONS).items())
    assert all("#" in line for line in FILE.read_text().splitlines())


def test_a_configuration_that_breaks_the_invariant_does_not_resolve() -> None:
    resolvers.register()
    config = OmegaConf.create({"cxr": {"reward": OmegaConf.load(FILE)}})
    assert OmegaConf.to_container(config, resolve=True)["cxr"]["reward"]["margin"] == pytest.approx(0.55)  # type: ignore[index,call-overload]
    for key, value in (("lambda_t", 0.3), ("max_calls", 20), ("format_weight", 0.8)):
        broken = OmegaConf.merge(config, {"cxr": {"reward": {key: value}}})
        with pytest.raises(InterpolationResolutionError, match="must be less than 1"):
            OmegaConf.to_container(broken, resolve=True)
