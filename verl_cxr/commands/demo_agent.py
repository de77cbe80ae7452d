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
"""``verl-cxr demo-agent``: the evidence agent at laptop size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verl_cxr.commands.shared import stop

__all__ = ["demo_agent"]


def demo_agent(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for data, model, checkpoints and logs.")] = Path(
        "outputs/demo-agent"
    ),
) -> None:
    """Train the evidence agent on questions about phantom films on this CPU and print what reinforcement changed."""
    from verl_cxr.demo_agent import run_agent_demo
    from verl_cxr.stages import StageFailedError

    try:
        better = run_agent_demo(out.absolute(), console=Console())
    except (StageFailedError, OSError) as error:
        raise stop(error, code=1) from None
    if not better:
        raise typer.Exit(1)
