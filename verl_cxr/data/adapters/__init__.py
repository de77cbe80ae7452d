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
"""Adapters: one module a data set in this package, each turning what lies on disk into grounded studies.

To add a data set, put a module here whose function is registered with `adapter`. The function's keyword-only
parameters, annotated with `typer.Option`, become the options of `verl-cxr data build NAME`.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from verl_cxr.data.funnel import Funnel
from verl_cxr.files import RecordError

__all__ = ["Adapter", "BuildContext", "Deferred", "Reader", "adapter", "load_adapters", "read_item"]


@dataclass(slots=True)
class BuildContext:
    """What a build lends its adapter.

    Attributes:
        out: folder of the build, in which an adapter may make films.
        seed: of whatever is random.
        funnel: where an adapter counts the studies that it drops itself.
        total: how many studies are to come, set by an adapter that knows it, for the progress bar.
        strict: whether the first broken record stops the build.
        lateral: whether the build keeps lateral films. If not, an adapter may count and drop them before it reads more.
    """

    out: Path
    seed: int
    funnel: Funnel = field(default_factory=Funnel)
    total: int | None = None
    strict: bool = False
    lateral: bool = False

    def problem(self, path: str | os.PathLike[str], row: int | None, field: str, message: str) -> None:
        """Report a broken record, and go on unless the build is strict. If it costs a study, count the drop as well.

        Args:
            path: the file.
            row: 1-based line or record in it; None if the file has no rows.
            field: column or key; empty if the whole record is meant.
            message: what is wrong and what would be right. Up to the first colon it is the same for all of a kind.

        Raises:
            RecordError: the build is strict.
        """
        error = RecordError(field, message, file=os.fspath(path), row=row)
        if self.strict:
            raise error
        self.funnel.problem(error)


@runtime_checkable
class Deferred(Protocol):
    """A study that an adapter found and has not read, so that workers share the reading and a resumed build skips it.

    It travels to other processes: a small frozen dataclass of paths and numbers.
    """

    @property
    def id(self) -> str:
        """The id that the study will have."""

    def read(self, context: BuildContext) -> Any:
        """The study; None after its drop was counted in ``context.funnel``, which is the worker's own."""


Reader = Callable[..., Iterator[Any]]
"""An adapter's function: it yields studies, or question records, or `Deferred` ones."""


def read_item(item: Any, context: BuildContext) -> Any:
    """The record that an adapter yielded, read if it was deferred; None if that dropped it."""
    read = getattr(item, "read", None)  # a record has none; isinstance with a protocol takes longer than the reading
    return item if read is None else read(context)


@dataclass(frozen=True, slots=True)
class Adapter:
    """A registered data set.

    Attributes:
        studies: `studies(context, **options)` yields studies with absolute image paths, lazily and in a fixed order;
            where reading one takes long, it yields `Deferred` ones.
        makes_films: whether the films are the build's own, so that it also writes `studies.jsonl` beside them.
    """

    name: str
    summary: str
    studies: Reader
    makes_films: bool = False


_ADAPTERS: dict[str, Adapter] = {}


def adapter(name: str, *, makes_films: bool = False) -> Callable[[Reader], Reader]:
    """Register a function `(context, *, options...) -> Iterator[Study]`; its docstring's first line is the summary."""

    def register(function: Reader) -> Reader:
        if name in _ADAPTERS and _ADAPTERS[name].studies.__module__ != function.__module__:
            raise ValueError(f"adapter {name!r} is already registered by {_ADAPTERS[name].studies.__module__}")
        summary = (function.__doc__ or "").strip().partition("\n")[0]
        _ADAPTERS[name] = Adapter(name, summary, function, makes_films)
        return function

    return register


def load_adapters() -> dict[str, Adapter]:
    """Import every module of this package, and return all registered adapters by name."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return dict(sorted(_ADAPTERS.items()))
