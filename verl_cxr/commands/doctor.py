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
"""``verl-cxr doctor``: what is installed, what each feature lacks, and whether verl loads the plug-in."""

from __future__ import annotations

import platform
import sys

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from verl_cxr.doctor import FEATURES, Probe, installed, probe, problems, state

__all__ = ["doctor"]

_SHOWN = (
    "verl-cxr",
    "verl",
    "torch",
    "torchvision",
    "transformers",
    "ray",
    "tensordict",
    "TransferQueue",
    "vllm",
    "flash-attn",
    "mbridge",
    "megatron-core",
    "radgraph",
)


def doctor() -> None:
    """Say what is installed, what is missing and what each feature needs; exit 1 if verl cannot use the plug-in."""
    console = Console()
    with console.status("importing verl in a process of its own"):
        found = probe()
    console.print(_packages())
    console.print(_features(found))
    faults = problems(found)
    if faults:
        for fault in faults:
            typer.echo(f"error: {fault}", err=True)
        raise typer.Exit(1)
    typer.echo(f"The plug-in is live; verl runs on {_place(found)}.")


def _packages() -> Table:
    table = Table("package", "version", title="Installed")
    table.add_row("python", f"{platform.python_version()} ({sys.executable})")
    for name in _SHOWN:
        table.add_row(name, installed(name) or "[dim]not installed[/]")
    return table


def _features(found: Probe) -> Table:
    table = Table("feature", "state", title="What works here")
    for feature in FEATURES:
        lacks = state(feature, found)
        table.add_row(escape(feature.name), f"[yellow]{escape('; '.join(lacks))}[/]" if lacks else "[green]ready[/]")
    return table


def _place(found: Probe) -> str:
    return "the CPU" if found.platform == "cpu" else f"{found.platform} ({found.devices} device(s))"
