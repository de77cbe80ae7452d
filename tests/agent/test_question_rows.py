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
"""Rows of questions and demonstrations, and the questions about phantoms."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward_plugins.accuracy_gate import AccuracyGateOptions, score
from tool_plugins.case import Case
from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.phantom_questions import AP_MAGNIFICATION, phantom_question
from verl_cxr.data.question_rows import AgentRows, Demonstration
from verl_cxr.question import Kind, Question, read_questions, write_questions
from verl_cxr.trajectory import Call, Trajectory, write_trajectories


def question(path: Path, **changes: Any) -> Question:
    base = Question("q", (path,), "Is it?", (), ("yes",), Kind.CLOSED, split="val", view="PA")
    return replace(base, **changes)


@pytest.fixture
def film(tmp_path: Path) -> Path:
    Image.new("L", (64, 48)).save(tmp_path / "film.png")
    return tmp_path / "film.png"


def drafts(record: Any, folder: Path, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    context = BuildContext(out=folder, seed=0)
    maker = AgentRows(("agent_sft", "agent_grpo"), "mine", films=folder / "films", **options)
    made = maker.drafts(record, context)
    return made, context.funnel.to_dict()


def test_a_question_is_a_row_for_reinforcement_alone(film: Path, tmp_path: Path) -> None:
    made, funnel = drafts(question(film), tmp_path)
    assert [(draft.stage, draft.split) for draft in made] == [("agent_grpo", "validate")]
    row = made[0].row
    assert row["prompt"][0]["content"].startswith("<image>\nIs it?\n")
    assert "at most 5" in row["prompt"][0]["content"]
    assert row["images"] == [{"image": str(film)}]
    assert Case.from_row(row["extra_info"]).films[0].path == film
    assert Case.from_row(row["extra_info"]["tools_kwargs"]["roi_crop"]["create_kwargs"]).films[0].path == film
    assert [drop["reason"] for drop in funnel["dropped"]] == ["question without a demonstration"]


def test_a_demonstration_alternates_policy_and_environment(film: Path, tmp_path: Path) -> None:
    picture = tmp_path / "q-0.png"
    Image.new("RGB", (64, 64)).save(picture)
    trajectory = Trajectory("q", ("plan", "answer"), observations=("1. roi_crop: Crop.\n<image>\nMeasurements.",))
    made, _ = drafts(Demonstration(question(film), trajectory, (picture,)), tmp_path)
    sft = made[0].row
    assert [message["role"] for message in sft["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert sft["images"] == [{"image": str(film)}, {"image": str(picture)}]
    placeholders = sum(message["content"].count("<image>") for message in sft["messages"])
    assert placeholders == len(sft["images"])  # or verl refuses the row


@pytest.mark.parametrize("pictures", [0, 2])
def test_a_demonstration_needs_each_of_its_pictures(film: Path, tmp_path: Path, pictures: int) -> None:
    trajectory = Trajectory("q", ("plan", "answer"), observations=("<image>",))
    made, funnel = drafts(Demonstration(question(film), trajectory, (film,) * pictures), tmp_path)
    assert [draft.stage for draft in made] == ["agent_grpo"]
    assert [drop["reason"] for drop in funnel["dropped"]] == ["demonstration whose pictures are missing"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: (), "question without a film"),
        (lambda path: (path.parent / "none.png",), "image file missing"),
    ],
)
def test_a_question_without_a_film_is_counted(film: Path, tmp_path: Path, make: Any, reason: str) -> None:
    made, funnel = drafts(question(film, images=make(film)), tmp_path)
    assert made == []
    assert [drop["reason"] for drop in funnel["dropped"]] == [reason]


def test_a_film_of_16_bits_is_written_again_for_verl_and_kept_for_the_tools(tmp_path: Path) -> None:
    deep = tmp_path / "deep.png"
    Image.fromarray(np.arange(64 * 48, dtype=np.uint16).reshape(48, 64) * 16).save(deep)
    made, _ = drafts(question(deep), tmp_path)
    row = made[0].row
    assert row["extra_info"]["films"] == [str(deep)]
    assert row["images"] == [{"image": made[0].films[0].target}]
    made[0].films[0].do()
    with Image.open(row["images"][0]["image"]) as written:
        assert (written.mode, written.size) == ("L", (64, 48))


def test_two_films_have_two_placeholders(film: Path, tmp_path: Path) -> None:
    made, _ = drafts(question(film, images=(film, film)), tmp_path)
    assert made[0].row["prompt"][0]["content"].startswith("<image><image>\n")
    assert len(made[0].row["extra_info"]["films"]) == 2


# ---- phantoms


def test_a_built_folder_holds_both_stages_and_its_questions(agent_data: Path) -> None:
    sizes = {path.name: pq.read_metadata(path).num_rows for path in agent_data.glob("*.parquet")}
    splits = {"train": 24, "validate": 8}
    assert sizes == {
        f"agent_{stage}_{name}.parquet": count for stage in ("sft", "grpo") for name, count in splits.items()
    }
    assert len(list(read_questions(agent_data / "questions.jsonl"))) == 32


def test_questions_are_of_all_kinds_views_and_needs() -> None:
    found = [phantom_question(0, at, split="train", images=Path("/x")) for at in range(300)]
    assert {asked.question.kind for asked in found} == {Kind.MULTIPLE_CHOICE, Kind.CLOSED, Kind.TWO_OPTION}
    assert {asked.question.view for asked in found} == {"PA", "AP", "LATERAL"}
    needs = Counter(asked.question.extra["needs"] for asked in found)
    assert set(needs) == {"measurement", "crop", "nothing"}
    assert min(needs.values()) > 30
    again = phantom_question(0, 7, split="train", images=Path("/x"))
    assert again.question == found[7].question
    assert np.array_equal(again.phantom.image, found[7].phantom.image)


def test_an_ap_film_magnifies_the_heart() -> None:
    for at in range(200):
        asked = phantom_question(1, at, split="train", images=Path("/x"))
        if asked.question.category == ("heart",):
            anatomy = asked.phantom.truth.anatomy
            ratio = anatomy.cardiothoracic_ratio / (AP_MAGNIFICATION if anatomy.view == "AP" else 1)
            assert asked.question.answer == ("yes" if ratio > 0.5 else "no",)


def test_the_expert_is_right_and_calls_too_often(agent_data: Path) -> None:
    """Its trajectories earn all that there is to earn but the cost of their calls."""
    from verl_cxr.data.phantom_demonstrations import phantom_demonstrations

    context = BuildContext(out=agent_data.parent / "expert", seed=3)
    calls = []
    for record in phantom_demonstrations(context, count=40, validate=0):
        found = score(record.trajectory, record.question, AccuracyGateOptions())
        assert (found.correct, found.format, found.contradicted) == (True, True, 0)
        assert not found.hallucinated_measurement
        assert found.consistency == (1 if found.applicable else 0)
        calls.append(found.calls)
    assert 1 < np.mean(calls) < 3
    assert min(calls) == 0


def test_the_command_builds_rows_of_ones_own_questions(film: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from verl_cxr.cli import app

    write_questions(tmp_path / "q.jsonl", [question(film, id="a", split="train"), question(film, id="b")])
    Image.new("RGB", (64, 64)).save(tmp_path / "a-0.png")
    call = Call("roi_crop", {"region": "left lung"}, observation="Crop.", images=("a-0.png",))
    told = Trajectory("a", ("plan", "answer"), (call,), ("1. roi_crop: Crop.\n<image>",))
    write_trajectories(tmp_path / "t.jsonl", [told])
    command = ["data", "agent", "--questions", tmp_path / "q.jsonl", "--demonstrations", tmp_path / "t.jsonl"]
    done = CliRunner().invoke(app, [*map(str, command), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    sizes = {path.name: pq.read_metadata(path).num_rows for path in (tmp_path / "out").glob("*.parquet")}
    assert sizes == {
        "agent_sft_train.parquet": 1,
        "agent_grpo_train.parquet": 1,
        "agent_grpo_validate.parquet": 1,
    }
