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
"""Question sets: one module a set in this package, each turning what lies on disk into question records.

To add a set, put a module here whose function is registered with `question_set`. The function's keyword-only
parameters, annotated with `typer.Option`, become the options of `verl-cxr data questions NAME`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from verl_cxr.question import Question

__all__ = ["QuestionSet", "Reader", "load_question_sets", "question_set"]

Reader = Callable[..., Iterator[Question]]
"""A set's function, `(context, **options)`: it yields questions with absolute image paths, lazily, in a fixed order."""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """A registered question set."""

    name: str
    summary: str
    questions: Reader


_SETS: dict[str, QuestionSet] = {}


def question_set(name: str) -> Callable[[Reader], Reader]:
    """Register a function `(context, *, options...) -> Iterator[Question]`; its docstring starts with the summary."""

    def register(function: Reader) -> Reader:
        if name in _SETS and _SETS[name].questions.__module__ != function.__module__:
            raise ValueError(f"question set {name!r} is already registered by {_SETS[name].questions.__module__}")
        _SETS[name] = QuestionSet(name, (function.__doc__ or "").strip().partition("\n")[0], function)
        return function

    return register


def load_question_sets() -> dict[str, QuestionSet]:
    """Import every module of this package, and return all registered sets by name."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return dict(sorted(_SETS.items()))
