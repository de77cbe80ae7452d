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
"""The builder knows no record type: questions with any number of films go through it like studies."""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from verl_cxr.data.adapters import Adapter, BuildContext
from verl_cxr.data.build import Plan, build_rows
from verl_cxr.data.engine import Processes
from verl_cxr.data.films import FilmJob
from verl_cxr.data.maker import Draft, Origin
from verl_cxr.data.sample import Sample
from verl_cxr.question import Kind, Question

INFO = pa.struct([("index", pa.int64()), ("id", pa.string()), ("split", pa.string())])
IMAGES = pa.list_(pa.struct([("bytes", pa.binary())]))


@dataclass(frozen=True)
class QuestionRows:
    """One stage; films of 8 pixels in the rows; a question without options is not for it."""

    stages: tuple[str, ...] = ("ask",)
    records_name: str = "questions.jsonl"

    def schema(self, stage):
        return pa.schema([("question", pa.string()), ("images", IMAGES), ("extra_info", INFO)])

    def settings(self):
        return {"stages": list(self.stages)}

    def record_id(self, record):
        return record.id

    def origin(self, record):
        return Origin(record.source, record.licence, record.view)

    def facets(self, record, names):
        return [[record.kind.value] for _ in names]

    def line(self, record, folder):
        return json.dumps(record.to_dict()).encode() + b"\n"

    def drafts(self, record, context):
        if not record.options:
            context.funnel.drop("no options", stage="ask")
            return []
        row = {
            "question": record.with_options_text(),
            "images": [{"bytes": None}] * len(record.images),
            "extra_info": {"index": 0, "id": record.id, "split": record.split},
        }
        films = [FilmJob(str(path), None, 8, 8) for path in record.images]
        return [Draft("ask", record.split, row, films)]


def questions(context: BuildContext, *, root: Path):
    for number in range(30):
        yield Question(
            id=f"q{number}",
            images=tuple(root / f"{place}.png" for place in range(number % 3)),
            question=f"Question {number}?",
            options=("Left", "Right") if number % 5 else (),
            answer=("Left",),
            kind=Kind.TWO_OPTION if number % 5 else Kind.OPEN,
            split="train" if number % 2 else "test",
        )


def test_questions_become_rows(tmp_path):
    for place in range(2):
        Image.new("L", (20, 20), place).save(tmp_path / f"{place}.png")
    plan = Plan(sample=Sample(limit=6, stratify=("kind",)), keep_records=True)
    context = BuildContext(out=tmp_path / "out", seed=0)
    files = build_rows(Adapter("asked", "", questions), {"root": tmp_path}, context, maker=QuestionRows(), plan=plan)
    assert files == {"ask_train.parquet": 6, "ask_test.parquet": 12}
    assert len((tmp_path / "out" / "questions.jsonl").read_text().splitlines()) == 30
    for row in pq.read_table(tmp_path / "out" / "ask_test.parquet").to_pylist():
        number = int(row["extra_info"]["id"][1:])
        assert row["question"] == f"Question {number}?\nA) Left\nB) Right"
        assert [image["bytes"][:4] for image in row["images"]] == [b"\x89PNG"] * (number % 3)
    drops = {drop["reason"]: drop["studies"] for drop in context.funnel.to_dict()["dropped"]}
    assert drops == {"no options": 6, "not drawn": 6}

    other = BuildContext(out=tmp_path / "other", seed=0)
    plan = Plan(sample=plan.sample, keep_records=True, engine=Processes(2))
    build_rows(Adapter("asked", "", questions), {"root": tmp_path}, other, maker=QuestionRows(), plan=plan)
    for name in files:
        assert (tmp_path / "other" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
