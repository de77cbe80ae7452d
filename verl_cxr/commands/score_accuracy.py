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
"""``verl-cxr score --reward accuracy-gated``: trajectories about questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from reward_plugins.accuracy_gate import AccuracyGateOptions, score
from reward_plugins.relevance import load_table
from verl_cxr.commands.shared import means
from verl_cxr.question import read_questions
from verl_cxr.trajectory import TrajectoryError, read_trajectories

__all__ = ["AccuracyScoring"]

_SUMMARY = {
    "reward": "reward",
    "format": "format",
    "right": "correct",
    "answered": "answered",
    "R_CXR": "consistency",
    "tool calls": "calls",
    "refused calls": "refused_calls",
    "gate open": "gate_open",
    "hallucinated measurement": "hallucinated_measurement",
}


class AccuracyScoring:
    """The accuracy-gated reward over files.

    Args:
        questions: JSONL of questions.
        settings: options as texts.

    Raises:
        ValueError: a wrong option, or numbers that let a wrong answer outrank a right one.
    """

    def __init__(self, questions: Path, settings: Mapping[str, str]) -> None:
        self.questions = questions
        self.options = AccuracyGateOptions.from_text(settings)
        load_table(self.options.table)

    def rows(self, responses: Path) -> list[dict[str, Any]]:
        """One row a trajectory, in order.

        Raises:
            RecordError: the first question or trajectory that is none, or a trajectory about no question of the file.
        """
        read = list(read_trajectories(responses))
        wanted = {trajectory.id for trajectory in read}
        known = {question.id: question for question in read_questions(self.questions) if question.id in wanted}
        for trajectory in read:
            if trajectory.id not in known:
                problem = f"{trajectory.id!r} is not the id of a question of {self.questions}"
                raise TrajectoryError("id", problem, file=str(responses))
        return [score(each, known[each.id], self.options).to_dict(each.id) for each in read]

    def summary(self, rows: Sequence[Mapping[str, Any]]) -> Table:
        """Means over trajectories."""
        return means(rows, _SUMMARY, title=f"{len(rows)} trajectories, mode: {self.options.mode}")
