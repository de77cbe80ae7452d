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
"""What the demo says about two validations."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from verl_cxr.agent_report import Validation, counterfactual, gate_table, outcome, outcome_table
from verl_cxr.measure import Evidence, GateDecision, GateReason
from verl_cxr.trajectory import Trajectory, write_trajectories

KEYS = ("format", "gate_open", "consistency", "hallucinated_measurement", "refused_calls")


def dump(folder: Path, step: int, numbers: dict[str, tuple[float, float]]) -> Path:
    """A validation of questions ``{id: (share right, calls)}``, two rollouts each; even ones are AP, odd ones PA."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for at, (name, (right, calls)) in enumerate(numbers.items()):
        truth = {"id": name, "question": "Is it?", "answer": ["yes"], "kind": "closed"}
        truth |= {"view": "PA" if at % 2 else "AP", "extra": {"needs": "measurement"}}
        for rollout in range(2):
            row: dict[str, Any] = dict.fromkeys(KEYS, 1.0)
            row |= {"gts": json.dumps(truth), "correct": float(rollout < 2 * right), "calls": calls}
            row["score"] = 0.2 + row["correct"] * (1 - 0.05 * calls)
            lines.append(json.dumps(row))
    path = folder / f"{step}.jsonl"
    path.write_text("\n".join(lines))
    return path


def shown(table: Any) -> str:
    console = Console(width=200)
    with console.capture() as caught:
        console.print(table)
    return caught.get()


NAMES = [f"q{at}" for at in range(40)]


@pytest.mark.parametrize(
    ("before", "after", "better", "words"),
    [
        ((0.5, 2.0), (1.0, 2.0), True, "raised accuracy"),
        ((0.5, 2.0), (0.5, 1.0), True, "cut tool calls at equal accuracy"),
        ((0.5, 2.0), (0.5, 2.0), False, "did NOT"),
        ((1.0, 2.0), (0.5, 0.0), False, "did NOT"),  # fewer calls, and less right
    ],
)
def test_the_verdict(
    tmp_path: Path, before: tuple[float, float], after: tuple[float, float], better: bool, words: str
) -> None:
    for step, numbers in ((0, before), (40, after)):
        dump(tmp_path, step, dict.fromkeys(NAMES, numbers))
    found = outcome(*Validation.first_and_last(tmp_path))
    assert found.better is better
    assert words in str(found)


def test_calls_are_split_by_what_the_base_model_knows(tmp_path: Path) -> None:
    before = Validation.read(dump(tmp_path / "a", 0, {name: (0.5, float(at < 10)) for at, name in enumerate(NAMES)}))
    base = Validation.read(dump(tmp_path / "b", 0, {name: (float(at < 10), 0.0) for at, name in enumerate(NAMES)}))
    text = shown(outcome_table(before, before, base))
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line.count("│") > 3}
    assert "1.000" in rows["tool calls where the base model is right"]
    assert "0.000" in rows["tool calls where the base model is wrong"]
    assert "40" in rows["accuracy"]


def test_the_counterfactual_counts_what_the_gate_saved(tmp_path: Path) -> None:
    gated = Validation.read(dump(tmp_path / "a", 0, dict.fromkeys(NAMES, (1.0, 0.0))))
    wrong = {name: (float(at % 4 > 0), 0.0) for at, name in enumerate(NAMES)}
    forced = Validation.read(dump(tmp_path / "b", 0, wrong))
    text = shown(counterfactual(gated, forced))
    assert "20 questions" in text  # the AP ones
    assert "10, 0" in text  # of which every second is wrong without the gate
    with pytest.raises(ValueError, match="different questions"):
        counterfactual(gated, Validation.read(dump(tmp_path / "c", 0, {"other": (1.0, 0.0)})))


def test_the_gates_decisions_are_counted_by_film(tmp_path: Path) -> None:
    decisions = {"a": GateDecision(True, view="PA"), "b": GateDecision(False, (GateReason.NOT_PA,), view="AP")}
    rows = [Trajectory(name, ("x", "y"), evidence=Evidence(made)) for name, made in decisions.items() for _ in range(4)]
    write_trajectories(tmp_path / "validate-40.jsonl", rows)
    text = shown(gate_table(tmp_path, 40))
    assert "2 films" in text
    assert "not_pa 1" in text


def test_a_run_without_a_validation_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no validation"):
        Validation.first_and_last(tmp_path)
