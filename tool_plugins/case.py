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
"""What the tools of one question act on: its films, and the coordinates in which the policy writes boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tool_plugins.refusal import Refusal, RefusedError
from verl_cxr.film import Film, read_film
from verl_cxr.geometry import Frame
from verl_cxr.trace import TraceFormat

__all__ = ["Case", "CaseFilm", "coordinates"]

_RELATIVE = TraceFormat()


@dataclass(frozen=True, slots=True)
class CaseFilm:
    """One film of a question.

    Attributes:
        path: of its file.
        box_frame: how the policy writes boxes, as :class:`verl_cxr.trace.TraceFormat` names it.
        processed_size: (width, height) of the image that the policy sees; needed by ``pixel_processed``.
    """

    path: Path
    box_frame: TraceFormat = _RELATIVE
    processed_size: tuple[int, int] | None = None

    def film(self) -> Film:
        """The film; the rollouts of a prompt share what was read.

        Raises:
            FilmError: the file holds no film.
        """
        return _read(self.path)

    def frame(self) -> Frame:
        """The frame in which the policy writes boxes of this film."""
        height, width = self.film().pixels.shape
        return self.box_frame.frame_for(width, height, self.processed_size)


@dataclass(frozen=True, slots=True)
class Case:
    """The films of one question, in its order."""

    films: tuple[CaseFilm, ...]

    @classmethod
    def from_row(cls, extra_info: Mapping[str, Any]) -> Case:
        """Of a training row's ``extra_info``: ``films`` (paths), ``box_frame``, and ``processed_sizes`` or null.

        Raises:
            ValueError: the row names no film, or not as many sizes as films.
        """
        films: Sequence[str] = extra_info.get("films") or ()
        if not films:
            raise ValueError("the row has no extra_info.films, which the tools act on: build the data for the agent")
        sizes: Sequence[Any] = extra_info.get("processed_sizes") or [None] * len(films)
        if len(sizes) != len(films):
            raise ValueError(f"the row names {len(films)} films and {len(sizes)} processed_sizes")
        trace = TraceFormat(extra_info.get("box_frame") or "relative_1000")
        return cls(
            tuple(
                CaseFilm(Path(film), trace, None if size is None else (int(size[0]), int(size[1])))
                for film, size in zip(films, sizes, strict=True)
            )
        )

    def chosen(self, arguments: Mapping[str, Any]) -> CaseFilm:
        """The film that a call names by ``image``, counted from 1; the first if it names none.

        Raises:
            RefusedError: there is no such film.
        """
        number = arguments.get("image", 1)
        if type(number) is not int or not 1 <= number <= len(self.films):
            numbers = "1" if len(self.films) == 1 else f"1 to {len(self.films)}"
            raise RefusedError(Refusal.UNKNOWN_IMAGE, f"There is no image {number!r}: image is a number, {numbers}.")
        return self.films[number - 1]


def coordinates(frame: Frame) -> str:
    """How boxes are written in a frame, in words."""
    if frame.name == "pixel":
        return f"pixels of an image {frame.width:.0f} wide and {frame.height:.0f} high"
    return f"numbers from 0 to {frame.width:g}, relative to the width and height of the image"


@lru_cache(maxsize=128)
def _read(path: Path) -> Film:
    return read_film(path)
