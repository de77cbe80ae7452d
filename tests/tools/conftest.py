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
"""A film of 100 x 80 pixels with drawn masks, for all tools."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tool_plugins.case import Case, CaseFilm
from verl_cxr.film import Film
from verl_cxr.measure import Outlines
from verl_cxr.trace import TraceFormat

WIDTH, HEIGHT = 100, 80


class DrawnMasks:
    """Right lung in columns 10 to 40, left lung in columns 60 to 90, both in rows 20 to 60; a heart of nothing."""

    name = "drawn"

    def __init__(self) -> None:
        self.asked = 0

    def outline(self, film: Film) -> Outlines:
        self.asked += 1
        height, width = film.pixels.shape
        masks = {name: np.zeros((height, width), dtype=bool) for name in ("right lung", "left lung", "heart")}
        masks["right lung"][20:60, 10:40] = True
        masks["left lung"][20:60, 60:90] = True
        return Outlines(masks, width, height, self.name)


@pytest.fixture
def masks() -> DrawnMasks:
    return DrawnMasks()


@pytest.fixture
def film_path(tmp_path: Path) -> Path:
    """Each pixel is as bright as its column, so that a crop tells where it is from."""
    columns = np.tile(np.arange(WIDTH, dtype=np.uint8) * 2, (HEIGHT, 1))
    Image.fromarray(columns).save(tmp_path / "film.png")
    return tmp_path / "film.png"


@pytest.fixture
def make_case(film_path: Path) -> Callable[..., Case]:
    def make(frame: str = "relative_1000", *, films: int = 1, processed: tuple[int, int] | None = None) -> Case:
        film = CaseFilm(film_path, TraceFormat(frame), processed)  # type: ignore[arg-type]
        return Case((film,) * films)

    return make


@pytest.fixture
def case(make_case: Callable[..., Case]) -> Case:
    return make_case()
