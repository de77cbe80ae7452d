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
"""What every command does the same way: end with an error, and show progress."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["counting", "stop"]


def stop(error: Exception, *, code: int) -> typer.Exit:
    """Print the error; raise what comes back. ``code`` is 2 for a wrong argument, 1 for whatever else went wrong."""
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(code)


def counting(console: Console) -> Progress:
    """A bar that counts what is done and tells how long it took."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
