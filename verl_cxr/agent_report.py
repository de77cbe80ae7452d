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
"""What training changed in an evidence agent, from verl's dumps of validation rollouts and the agent's own log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import orjson
from rich.table import Table

from verl_cxr.evaluate.interval import Estimate, mean_difference, mean_interval
from verl_cxr.evaluate.rollouts import film_means
from verl_cxr.files import read_records
from verl_cxr.question import Question
from verl_cxr.trajectory import read_trajectories

__all__ = ["Outcome", "Validation", "counterfactual", "gate_table", "outcome", "outcome_table"]

_KEYS = (
    "reward",
    "correct",
    "calls",
    "format",
    "gate_open",
    "consistency",
    "hallucinated_measurement",
    "refused_calls",
)
_ROWS: Mapping[str, tuple[str, str]] = {
    "accuracy": ("correct", "all"),
    "reward": ("reward", "all"),
    "tool calls a question": ("calls", "all"),
    "tool calls where the base model is right": ("calls", "base right"),
    "tool calls where the base model is wrong": ("calls", "base wrong"),
    "tool calls where a measurement helps": ("calls", "measurement"),
    "tool calls where a crop helps": ("calls", "crop"),
    "tool calls where nothing is needed": ("calls", "nothing"),
    "accuracy where a measurement helps": ("correct", "measurement"),
    "accuracy where a crop helps": ("correct", "crop"),
    "well formed": ("format", "all"),
    "gate open": ("gate_open", "all"),
    "R_CXR": ("consistency", "all"),
    "hallucinated measurements": ("hallucinated_measurement", "all"),
}
_HALF = 0.5
Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Validation:
    """One validation: for each question the mean over its rollouts of each number of the reward.

    Attributes:
        step: of the trainer.
    """

    step: int
    means: Mapping[str, Numbers]
    questions: Mapping[str, Question]

    @classmethod
    def read(cls, dump: Path) -> Validation:
        """Read ``STEP.jsonl`` of verl's ``trainer.validation_data_dir``.

        Raises:
            RecordError: a row without one of the numbers, or without its question.
        """
        means = film_means(dump, list(_KEYS))
        questions = {}
        for _, row in read_records(dump):
            question = Question.from_dict(orjson.loads(str(row["gts"])))
            questions[question.id] = question
        return cls(int(dump.stem), means, questions)

    @classmethod
    def first_and_last(cls, dumps: Path) -> tuple[Validation, Validation]:
        """The first and the last validation of a run; the same one twice if there is but one.

        Raises:
            FileNotFoundError: there is none.
        """
        steps = sorted((path for path in dumps.glob("*.jsonl") if path.stem.isdigit()), key=lambda path: int(path.stem))
        if not steps:
            raise FileNotFoundError(f"{dumps} holds no validation")
        return cls.read(steps[0]), cls.read(steps[-1])

    def column(self, key: str, chosen: Callable[[str], bool] = lambda _: True) -> list[float]:
        """A number of each chosen question, in the order of their ids."""
        return [self.means[name][key] for name in sorted(self.means) if chosen(name)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Paired differences over questions, last validation less first."""

    accuracy: Estimate
    calls: Estimate
    reward: Estimate

    @property
    def better(self) -> bool:
        """Accuracy rose, or calls fell and accuracy did not, each beyond its 95 % interval."""
        return self.accuracy.low > 0 or (self.calls.high < 0 and self.accuracy.high >= 0)

    def __str__(self) -> str:
        if self.accuracy.low > 0:
            verdict = "GRPO raised accuracy"
        elif self.better:
            verdict = "GRPO cut tool calls at equal accuracy"
        else:
            verdict = "GRPO did NOT raise accuracy or cut calls at equal accuracy"
        return f"{verdict}: accuracy {self.accuracy}, calls {self.calls}, reward {self.reward}."


def outcome(before: Validation, after: Validation) -> Outcome:
    """What changed between two validations of the same questions.

    Raises:
        ValueError: the questions differ.
    """
    _require_same(before, after)
    accuracy, calls, reward = (
        mean_difference(after.column(key), before.column(key)) for key in ("correct", "calls", "reward")
    )
    return Outcome(accuracy, calls, reward)


def outcome_table(before: Validation, after: Validation, base: Validation) -> Table:
    """Accuracy, calls and reward before and after, by what a question needs and by whether the base model is right.

    Args:
        base: the policy before, without tools and measurements.

    Raises:
        ValueError: the questions differ.
    """
    _require_same(before, after)
    _require_same(before, base)
    table = Table(
        title=f"{len(before.means)} held-out questions about phantom films; answers sampled at temperature 1\n"
        "mean [95 % bootstrap interval over questions]"
    )
    for heading in ("", "questions", f"step {before.step}", f"step {after.step}"):
        table.add_column(heading)
    groups: dict[str, Callable[[str], bool]] = {
        "all": lambda _: True,
        "base right": lambda name: base.means[name]["correct"] >= _HALF,
        "base wrong": lambda name: base.means[name]["correct"] < _HALF,
    }
    for need in ("measurement", "crop", "nothing"):
        groups[need] = lambda name, need=need: before.questions[name].extra.get("needs") == need  # type: ignore[misc]
    for title, (key, group) in _ROWS.items():
        columns = [validation.column(key, groups[group]) for validation in (before, after)]
        if columns[0]:
            table.add_row(title, str(len(columns[0])), *(str(mean_interval(column)) for column in columns))
    return table


def gate_table(log: Path, step: int) -> Table:
    """The gate's decisions on the held-out films, by view and reason, from the agent's log."""
    films: dict[str, tuple[str, bool, tuple[str, ...]]] = {}
    for trajectory in read_trajectories(log / f"validate-{step}.jsonl"):
        if (evidence := trajectory.evidence) is not None:
            reasons = tuple(reason.value for reason in evidence.decision.reasons)
            films[trajectory.id] = (evidence.decision.view or "unknown", evidence.decision.open, reasons)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for view, is_open, reasons in films.values():
        counts[view]["open" if is_open else "withheld"] += 1
        counts[view].update(reasons)
    table = Table("view", "films", "open", "withheld", "reasons", title=f"The validity gate on {len(films)} films")
    for view, found in sorted(counts.items()):
        reasons_of = {name: n for name, n in found.most_common() if name not in ("open", "withheld")}
        told = ", ".join(f"{name} {n}" for name, n in reasons_of.items()) or "-"
        table.add_row(view, str(found["open"] + found["withheld"]), str(found["open"]), str(found["withheld"]), told)
    return table


def counterfactual(gated: Validation, forced: Validation) -> Table:
    """The same policy on the same films that are not PA, with the gate at work and forced open.

    Raises:
        ValueError: the questions differ, or none is about such a film.
    """
    _require_same(gated, forced)

    def about_measurements(name: str) -> bool:
        question = gated.questions[name]
        return question.view != "PA" and question.extra.get("needs") == "measurement"

    names = [name for name in sorted(gated.means) if about_measurements(name)]
    if not names:
        raise ValueError("there is no question about a measurement on a film that is not PA")
    table = Table(
        "",
        "accuracy",
        title=f"{len(names)} questions about a measurement on films that are not PA",
    )
    for title, validation in (("gate at work: withheld", gated), ("gate forced open", forced)):
        table.add_row(title, str(mean_interval(validation.column("correct", about_measurements))))
    columns = [validation.column("correct", about_measurements) for validation in (gated, forced)]
    table.add_row("difference by the gate", str(mean_difference(columns[0], columns[1])))
    corrected = sum(with_gate >= _HALF > without for with_gate, without in zip(*columns, strict=True))
    regressed = sum(without >= _HALF > with_gate for with_gate, without in zip(*columns, strict=True))
    table.add_row("questions corrected by the gate, and lost", f"{corrected}, {regressed}")
    shown = fmean(forced.column("gate_open", about_measurements))
    table.add_row("shown when forced", f"{shown:.0%}")
    return table


def _require_same(one: Validation, other: Validation) -> None:
    if one.means.keys() != other.means.keys():
        raise ValueError("the validations are about different questions")
