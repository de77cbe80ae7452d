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
"""The accuracy-gated reward of X-Ragent: a right answer first, then evidence used rightly, at little cost.

R = R_format + R_acc * (1 + lambda_m R_CXR - lambda_t R_tool)

- R_acc is 1 for a right answer (:mod:`verl_cxr.answers`), else 0.
- R_CXR = sum a_k s_k / max(1, sum a_k), in [0, 1]: of the measurements that bear on the question and were shown
  (a_k = r_k b_k), the share that rationale and answer agree with (s_k, :mod:`reward_plugins.agreement`). Nothing is
  earned from a measurement that was withheld.
- R_tool counts the tool calls that the policy made, refused ones and repetitions included, up to K_max.

Every right answer outranks every wrong one, whatever else the two do; options that would break this are refused. Pure:
a question, a trajectory and options go in, one record comes out.
"""

from __future__ import annotations

from reward_plugins.accuracy_format import problem_of, rationale_of
from reward_plugins.accuracy_options import AccuracyGateOptions
from reward_plugins.accuracy_record import AccuracyRecord, MeasurementScore
from reward_plugins.agreement import Stance, read, stance
from reward_plugins.relevance import MeasurementTable, load_table
from verl_cxr.answers import extract, is_right
from verl_cxr.measure import Evidence
from verl_cxr.question import Kind, Question
from verl_cxr.trajectory import Trajectory

__all__ = ["AccuracyGateOptions", "AccuracyRecord", "MeasurementScore", "score"]

_SILENT = Stance(agrees=False, contradicts=False)


def score(trajectory: Trajectory, question: Question, options: AccuracyGateOptions) -> AccuracyRecord:
    """Score one trajectory; nothing about it raises.

    Args:
        trajectory: what the policy wrote and was given.
        question: the question, with its right answer.
        options: see :class:`AccuracyGateOptions`.
    """
    text = trajectory.answer_text
    extracted = extract(text, question)
    problem, correct = problem_of(trajectory), is_right(extracted, question) is True
    measurements = _measurements(trajectory, question, extracted.answer, load_table(options.table))
    applicable = [each for each in measurements if each.relevant and each.exposed]
    agreeing = sum(each.agrees for each in applicable)
    consistency = agreeing / max(1, len(applicable))
    charged = min(len(trajectory.calls), options.max_calls)
    evidence = trajectory.evidence
    return AccuracyRecord(
        reward=_reward(options, problem is None, correct, consistency, charged),
        format=problem is None,
        correct=correct,
        consistency=consistency,
        tool_calls=charged,
        answered=extracted.answer is not None,
        calls=len(trajectory.calls),
        refused_calls=sum(call.refused is not None for call in trajectory.calls),
        gate_asked=evidence is not None,
        gate_open=evidence is not None and evidence.decision.open,
        relevant=sum(each.relevant for each in measurements),
        exposed=sum(each.exposed for each in measurements),
        applicable=len(applicable),
        agreeing=agreeing,
        contradicted=sum(each.contradicts for each in applicable),
        withheld=0 if evidence is None else len(evidence.withheld),
        hallucinated_measurement=any(each.hallucinated for each in measurements),
        turns=len(trajectory.turns),
        answer_chars=len(text),
        answer=extracted.answer,
        answer_reason=extracted.reason.value,
        problem=None if problem is None else problem.value,
        gate_reasons=_gate_reasons(trajectory.evidence),
        measurements=measurements,
    )


def _reward(options: AccuracyGateOptions, formed: bool, correct: bool, consistency: float, calls: int) -> float:
    accuracy = float(correct)
    total = options.format_weight * formed + accuracy
    gate = accuracy if options.mode == "gated" else 1.0
    if options.mode in ("gated", "ungated", "ungated_cxr"):
        total += gate * options.lambda_m * consistency
    if options.mode in ("gated", "ungated", "ungated_tool"):
        total -= gate * options.lambda_t * calls
    return total


def _gate_reasons(evidence: Evidence | None) -> tuple[str, ...]:
    reasons = () if evidence is None else evidence.unavailable.values()
    return tuple(dict.fromkeys(reason.value for some in reasons for reason in some))


def _measurements(
    trajectory: Trajectory, question: Question, answer: tuple[str, ...] | None, table: MeasurementTable
) -> tuple[MeasurementScore, ...]:
    """What the text of a trajectory says about each measurement of the table."""
    evidence = trajectory.evidence
    shown: dict[str, float] = {} if evidence is None else {each.name: each.value for each in evidence.exposed}
    backend = None if evidence is None else evidence.backends.get("masks")
    relevant = table.relevant(question)
    closed = question.kind is Kind.CLOSED and answer is not None
    said = read(
        "\n\n".join([rationale_of(trajectory.answer_text), *(f"{part}." for part in answer or ())]),
        table,
        asked="\n".join([question.question, *question.options]),
        denied=answer[0].lower() == "no" if closed and answer else None,
    )
    scores = []
    for name, measure in table.measures.items():
        exposed = name in shown
        held = stance(said[name], shown[name], measure, backend) if exposed else _SILENT
        scores.append(
            MeasurementScore(
                name=name,
                relevant=name in relevant,
                exposed=exposed,
                agrees=held.agrees,
                contradicts=held.contradicts,
                hallucinated=bool(said[name].quoted) and not exposed,
            )
        )
    return tuple(scores)
