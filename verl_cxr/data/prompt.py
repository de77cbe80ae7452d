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
"""What the model is asked: one text a stage, in `verl_cxr/data/prompts/*.txt`.

The report stage (SFT) has a prompt of its own. The cold start and GRPO share one, so that the policy meets in training
by reinforcement the very words it was started with. The trace prompt states the coordinate frame, because a box without
its frame cannot be checked.
"""

from __future__ import annotations

from enum import Enum
from functools import cache, lru_cache
from importlib.resources import files
from string import Template

from verl_cxr.geometry import Frame

__all__ = ["IMAGE_PLACEHOLDER", "Stage", "prompt_text", "template"]

IMAGE_PLACEHOLDER = "<image>"
"""What verl's data sets replace by an image; a row has as many of them as images."""


class Stage(str, Enum):
    """The three training stages of region-grounded GRPO (paper A, "Three stages")."""

    SFT = "sft"
    COLD_START = "cold_start"
    GRPO = "grpo"


_FILES = {Stage.SFT: "report.txt", Stage.COLD_START: "trace.txt", Stage.GRPO: "trace.txt"}


@lru_cache(maxsize=1024)
def prompt_text(stage: Stage, frame: Frame) -> str:
    """The user's message about one film.

    Args:
        frame: in which the response has to write boxes; the report stage writes none and ignores it.

    Raises:
        ValueError: a trace in a frame that no wording exists for.
    """
    return template(_FILES[stage]).substitute(coordinates=_coordinates(frame))


@cache
def template(name: str) -> Template:
    """A prompt of this package, by the name of its file."""
    return Template((files("verl_cxr.data") / "prompts" / name).read_text(encoding="utf-8").rstrip("\n"))


def _coordinates(frame: Frame) -> str:
    if frame.name == "relative_1000":
        return "integers from 0 to 1000, relative to the width and height of the image"
    if frame.name == "pixel":
        return f"pixels of the image, which is {frame.width:.0f} wide and {frame.height:.0f} high"
    raise ValueError(f"no wording for boxes in the frame {frame.name!r}: use relative_1000 or pixel")
