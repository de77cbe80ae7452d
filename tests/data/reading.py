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
"""Running an adapter in a test, and reading what its funnel counted."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from verl_cxr.data.adapters import BuildContext, load_adapters, read_item
from verl_cxr.data.questions import load_question_sets

SHARED = Path(__file__).parents[3] / "shared" / "data"


def shared(*parts: str) -> Path:
    """A path in the shared data, or a skipped test."""
    if not SHARED.is_dir():
        pytest.skip("the shared data are not beside this checkout")
    return SHARED.joinpath(*parts)


def studies_of(name: str, *, lateral: bool = False, strict: bool = False, **options: Any) -> tuple[list, dict]:
    """The studies of an adapter, read, and its funnel."""
    context = BuildContext(out=Path("out"), seed=0, lateral=lateral, strict=strict)
    items = load_adapters()[name].studies(context, **options)
    found = [study for item in items if (study := read_item(item, context)) is not None]
    return found, context.funnel.to_dict()


def questions_of(name: str, *, strict: bool = False, **options: Any) -> tuple[list, dict]:
    """The questions of a set, and its funnel."""
    context = BuildContext(out=Path("out"), seed=0, strict=strict)
    return list(load_question_sets()[name].questions(context, **options)), context.funnel.to_dict()


def lines(funnel: dict) -> dict[str, int]:
    return {line["line"]: line["count"] for line in funnel["lines"]}


def drops(funnel: dict) -> dict[str, int]:
    return {drop["reason"]: drop["studies"] for drop in funnel["dropped"]}


def problems(funnel: dict) -> list[str]:
    """One example of each kind of problem: file, row, field and what is wrong."""
    return [problem["examples"][0] for problem in funnel["problems"]]


def film(path: Path, width: int = 100, height: int = 80) -> Path:
    """Write a grey film."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (width, height), 128).save(path)
    return path
