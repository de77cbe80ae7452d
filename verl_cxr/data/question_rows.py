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
"""Questions, and demonstrations of how to answer them, as verl's trainers read them: the rows of the evidence agent.

A question is a row for GRPO. A demonstration, which is a question with a trajectory about it, is a row for supervised
training besides: the user's message, and then by turns what the policy wrote and what it was given in between. verl's
data set trains on the policy's messages alone, so observations are masked. Abridged::

    {"data_source": "phantom",
     "messages": [{"role": "user", "content": "<image>\nIs the heart enlarged? ..."},
                  {"role": "assistant", "content": "The film is seen.\n<tool_call>...</tool_call>"},
                  {"role": "tool", "content": "1. roi_crop: Crop of ...\n<image>\nMeasurements of this film: ..."},
                  {"role": "assistant", "content": "The heart is enlarged. <answer>yes</answer>"}],
     "images": [{"image": "/data/images/a.png"}, {"image": "/data/pictures/a-0.png"}], "extra_info": {...}}

The films are given by path in `extra_info.films`, because tools read them; in `extra_info.tools_kwargs` once more, in
the form in which verl's own tool agent hands them to a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.films import FilmJob, film_name
from verl_cxr.data.maker import Draft, Origin
from verl_cxr.data.prompt import IMAGE_PLACEHOLDER
from verl_cxr.data.question_prompt import question_prompt
from verl_cxr.data.rows import split_name
from verl_cxr.film import FilmError, FilmHead, film_head
from verl_cxr.question import Question
from verl_cxr.trace import TraceFormat
from verl_cxr.trajectory import Trajectory

__all__ = ["AGENT_STAGES", "AgentRows", "Demonstration"]

AGENT_STAGES = ("agent_sft", "agent_grpo")

_TOOLS = ("region_parse", "roi_crop", "evidence_lookup")
_TOOL_KWARGS = pa.struct(
    [
        (
            "create_kwargs",
            pa.struct(
                [
                    ("box_frame", pa.string()),
                    ("films", pa.list_(pa.string())),
                    ("processed_sizes", pa.list_(pa.list_(pa.int64()))),
                ]
            ),
        )
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Demonstration:
    """A question, and how it was answered.

    Attributes:
        pictures: files of the pictures that the calls brought, in the order in which the observations show them.
    """

    question: Question
    trajectory: Trajectory
    pictures: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentRows:
    """Rows of questions and demonstrations; a `verl_cxr.data.maker.RowMaker`.

    Attributes:
        chosen: some of :data:`AGENT_STAGES`.
        data_source: name of the collection; verl groups its validation metrics by it.
        films: folder for films that verl could not open as they are, which are written again.
        trace: frame of the boxes in calls and observations.
        max_calls: K_max, which the prompt states.
        processed_size: from a film's (width, height) to those of the image the model sees; `pixel_processed` needs it.
    """

    chosen: Sequence[str]
    data_source: str
    films: Path
    trace: TraceFormat = field(default_factory=TraceFormat)
    max_calls: int = 5
    processed_size: Callable[[int, int], tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.chosen) - set(AGENT_STAGES)):
            raise ValueError(f"unknown stage {unknown[0]!r}: use some of {', '.join(AGENT_STAGES)}")
        if self.trace.frame == "pixel_processed" and self.processed_size is None:
            raise ValueError("boxes in pixels of the processed image need the processor: name its folder")

    @property
    def stages(self) -> list[str]:
        """See `RowMaker`."""
        return list(self.chosen)

    @property
    def records_name(self) -> str:
        """See `RowMaker`."""
        return "questions.jsonl"

    def schema(self, stage: str) -> pa.Schema:
        """See `RowMaker`."""
        messages = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
        extra_info = pa.struct(
            [
                ("index", pa.int64()),
                *((name, pa.string()) for name in ("id", "split", "view", "stage", "box_frame")),
                ("films", pa.list_(pa.string())),
                ("processed_sizes", pa.list_(pa.list_(pa.int64()))),
                ("tools_kwargs", pa.struct([(tool, _TOOL_KWARGS) for tool in _TOOLS])),
            ]
        )
        images = pa.list_(pa.struct([("image", pa.string())]))
        shared = [("data_source", pa.string()), ("images", images), ("extra_info", extra_info)]
        if stage == "agent_sft":
            return pa.schema([("messages", messages), *shared])
        reward_model = pa.struct([("style", pa.string()), ("ground_truth", pa.string())])
        return pa.schema([("prompt", messages), *shared, ("ability", pa.string()), ("reward_model", reward_model)])

    def settings(self) -> dict[str, Any]:
        """See `RowMaker`."""
        processed = self.processed_size
        return {
            "stages": self.stages,
            "box_frame": self.trace.frame,
            "processor": None if processed is None else getattr(processed, "folder", repr(processed)),
            "data_source": self.data_source,
            "max_calls": self.max_calls,
        }

    def record_id(self, record: Question | Demonstration) -> str:
        """See `RowMaker`."""
        return _question(record).id

    def origin(self, record: Question | Demonstration) -> Origin:
        """See `RowMaker`."""
        question = _question(record)
        return Origin(question.source, question.licence, question.view)

    def facets(self, record: Question | Demonstration, names: Sequence[str]) -> list[tuple[str, ...]]:
        """See `RowMaker`: values of ``kind``, ``category``, ``view`` and ``answer``."""
        question = _question(record)
        values = {
            "kind": (question.kind.value,),
            "category": question.category,
            "view": (question.view or "not stated",),
            "answer": question.answer,
        }
        if unknown := sorted(set(names) - set(values)):
            raise ValueError(f"questions are not told apart by {unknown[0]!r}: use some of {', '.join(values)}")
        return [values[name] for name in names]

    def line(self, record: Question | Demonstration, folder: Path) -> bytes:
        """See `RowMaker`."""
        return orjson.dumps(_question(record).to_dict(root=folder), option=orjson.OPT_APPEND_NEWLINE)

    def drafts(self, record: Question | Demonstration, context: BuildContext) -> list[Draft]:
        """See `RowMaker`."""
        question = _question(record)
        if not question.images:
            context.funnel.drop("question without a film")
            return []
        try:
            heads = [film_head(image) for image in question.images]
        except FilmError as error:
            context.funnel.drop(error.reason)
            context.problem(error.path or question.id, None, "images", f"{error.reason}: question {question.id}")
            return []
        jobs = [self._job(question, place, head) for place, head in enumerate(heads)]
        shown = [job.target if job else str(image) for job, image in zip(jobs, question.images, strict=True)]
        drafts = []
        for stage in self.chosen:
            row = self._row(stage, record, heads, [str(path) for path in shown])
            if row is None:
                context.funnel.drop("question without a demonstration", stage=stage)
            elif isinstance(row, str):
                context.funnel.drop(row, stage=stage)
            else:
                drafts.append(Draft(stage, split_name(question), row, jobs))
        return drafts

    def _job(self, question: Question, place: int, head: FilmHead) -> FilmJob | None:
        if head.plain:
            return None
        image = question.images[place]
        target = self.films / film_name(f"{question.id}-{place}", image)
        return FilmJob(str(image), str(target), *head.size)

    def _row(
        self, stage: str, record: Question | Demonstration, heads: Sequence[FilmHead], shown: list[str]
    ) -> dict[str, Any] | str | None:
        """The row; why there is none; None where there is no demonstration."""
        question = _question(record)
        sizes = [self.processed_size(*head.size) for head in heads] if self.processed_size else None
        frame = self.trace.frame_for(*heads[0].size, sizes[0] if sizes else None)
        user = {"role": "user", "content": question_prompt(question, frame, max_calls=self.max_calls)}
        acted_on = {
            "box_frame": self.trace.frame,
            "films": [str(image) for image in question.images],
            "processed_sizes": [list(size) for size in sizes] if sizes else None,
        }
        shared = {
            "data_source": self.data_source,
            "extra_info": {
                "index": 0,
                "id": question.id,
                "split": split_name(question),
                "view": question.view,
                "stage": stage,
                **acted_on,
                "tools_kwargs": {tool: {"create_kwargs": acted_on} for tool in _TOOLS},
            },
        }
        if stage == "agent_grpo":
            truth = orjson.dumps(question.to_dict()).decode()
            return shared | {
                "prompt": [user],
                "images": [{"image": path} for path in shown],
                "ability": "evidence_question",
                "reward_model": {"style": "rule", "ground_truth": truth},
            }
        if isinstance(record, Question):
            return None
        told = _conversation(record)
        placeholders = sum(message["content"].count(IMAGE_PLACEHOLDER) for message in told)
        if placeholders != len(record.pictures) or any(not path.is_file() for path in record.pictures):
            return "demonstration whose pictures are missing"
        pictures = [*shown, *map(str, record.pictures)]
        return shared | {"messages": [user, *told], "images": [{"image": path} for path in pictures]}


def _question(record: Question | Demonstration) -> Question:
    return record if isinstance(record, Question) else record.question


def _conversation(record: Demonstration) -> list[dict[str, str]]:
    """Turns of the policy, with the observation behind each but the last."""
    trajectory = record.trajectory
    messages = []
    for place, turn in enumerate(trajectory.turns):
        messages.append({"role": "assistant", "content": turn})
        if place < len(trajectory.observations):
            messages.append({"role": "tool", "content": trajectory.observations[place]})
    return messages
