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
"""``verl-cxr``: the command line. A sub-command is imported when it is called, so that ``--help`` needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["COMMANDS", "LazyCommand", "app", "load"]


class LazyCommand(NamedTuple):
    """A sub-command: where its function or :class:`typer.Typer` is, and the line that ``--help`` shows."""

    where: str
    summary: str


COMMANDS = {
    "demo": LazyCommand("verl_cxr.commands.demo:demo", "Train the three stages on phantom films on this CPU."),
    "demo-agent": LazyCommand(
        "verl_cxr.commands.demo_agent:demo_agent", "Train the evidence agent on phantom films on this CPU."
    ),
    "doctor": LazyCommand("verl_cxr.commands.doctor:doctor", "Say what is installed, and what is missing."),
    "data": LazyCommand("verl_cxr.commands.data:app", "Build data sets for training."),
    "evaluate": LazyCommand("verl_cxr.commands.evaluate:app", "Score predicted reports as papers do."),
    "facts": LazyCommand("verl_cxr.commands.facts:app", "Get RadGraph's weights, and read references in advance."),
    "measure": LazyCommand(
        "verl_cxr.commands.measure:measure", "Measure films, and say what the validity gate allows."
    ),
    "score": LazyCommand("verl_cxr.commands.score:score", "Score responses with a reward, outside of training."),
}


def load(name: str) -> Any:
    """The click command behind a name.

    Raises:
        ImportError, AttributeError: the command's module is broken; that is never passed over.
    """
    module, _, attribute = COMMANDS[name].where.partition(":")
    target = getattr(import_module(module), attribute)
    if isinstance(target, typer.Typer):
        return typer.main.get_group(target)
    single = typer.Typer(add_completion=False)
    single.command(name)(target)
    return typer.main.get_command(single)


class _LazyGroup(TyperGroup):
    """Lists its commands from the table, and imports the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name].summary) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name in COMMANDS else command, rest


app = typer.Typer(cls=_LazyGroup, no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Verifiable-reasoning reinforcement learning for chest X-ray models. For research only."""


if __name__ == "__main__":
    app()
