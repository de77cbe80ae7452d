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
"""Questions about phantom films: some need a measurement, some a closer look, some nothing but the film.

| question | kind | what settles it |
|---|---|---|
| Is the heart enlarged? | closed | the ratio, where the gate lets it pass (PA); else the film |
| Where is the mediastinum? | multiple choice | the shift, likewise |
| What is in the right (left) lung? | multiple choice | a crop of that lung |
| Is this film frontal or lateral? | two-option | nothing |

They exist for tests and for the demo of the evidence agent: each has a known answer, and it is known which evidence
would help. Every question has a film of its own, drawn by :func:`verl_cxr.data.phantom.make_phantom`. An AP film
magnifies the heart, so that a ratio taken on it says too much: there a heart counts as enlarged only if its ratio
exceeds one half after the magnification is taken out. That is what the gate withholds, and what a gate that is forced
open lets the policy stumble over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verl_cxr.data.phantom import Phantom, PhantomOptions, make_phantom
from verl_cxr.question import Kind, Question
from verl_cxr.study import View

__all__ = ["AP_MAGNIFICATION", "VIEWS", "AskedPhantom", "film_options", "iter_phantom_questions", "phantom_question"]

VIEWS: tuple[View, ...] = ("PA", "PA", "AP", "LATERAL")
"""Views that films are drawn from, with equal chance each."""
AP_MAGNIFICATION = 1.22
_MIDLINE_KEPT = 0.3  # of the films without a shift are asked about one, so that "midline" is not the safe answer
_CLEAR_KEPT = 0.35  # of clear lungs, likewise
_LUNG = ("nothing", "consolidation", "pleural effusion")
_WEIGHTS = {"heart": 0.3, "mediastinum": 0.3, "lung": 0.8, "projection": 0.12}


@dataclass(frozen=True, slots=True, eq=False)
class AskedPhantom:
    """A film and the question about it."""

    phantom: Phantom
    question: Question


def film_options(size: int) -> PhantomOptions:
    """How the films of questions are drawn: ``size`` pixels wide and high, in all three views."""
    return PhantomOptions(width=size, height=size, views=VIEWS)


def iter_phantom_questions(
    seed: int, count: int, *, split: str, size: int = 128, images: Path
) -> Iterator[AskedPhantom]:
    """Questions 0 to ``count`` - 1 of a split, lazily; the caller writes their films."""
    for index in range(count):
        yield phantom_question(seed, index, split=split, size=size, images=images)


def phantom_question(seed: int, index: int, *, split: str, size: int = 128, images: Path) -> AskedPhantom:
    """Question number ``index`` of a split.

    Args:
        size: of the film in pixels.
        images: folder in which the caller stores the film, under the name that the question gives.
    """
    phantom = make_phantom(seed, index, split=split, options=film_options(size))
    rng = np.random.default_rng([seed, index, *split.encode(), 7])
    candidates = _candidates(phantom, rng)
    weights = np.array([_WEIGHTS[name] for name in candidates])
    name = str(rng.choice(list(candidates), p=weights / weights.sum()))
    text, kind, options, answer, extra = candidates[name](phantom, rng)
    question = Question(
        id=f"{phantom.study.id}-{name}",
        images=(images / f"{phantom.study.id}.png",),
        question=text,
        options=options,
        answer=(answer,),
        kind=kind,
        category=(name,),
        split=split,
        view=phantom.study.view,
        source="phantom",
        licence="Apache-2.0",
        extra=extra,
    )
    return AskedPhantom(phantom, question)


_Drawn = tuple[str, Kind, tuple[str, ...], str, dict[str, object]]
_Maker = Callable[[Phantom, np.random.Generator], _Drawn]


def _candidates(phantom: Phantom, rng: np.random.Generator) -> dict[str, _Maker]:
    """What can be asked about a film."""
    makers: dict[str, _Maker] = {"heart": _heart, "projection": _projection}
    anatomy = phantom.truth.anatomy
    if anatomy.view != "LATERAL":
        if anatomy.shifted_to or rng.random() < _MIDLINE_KEPT:
            makers["mediastinum"] = _mediastinum
        if _lungs(phantom) and (phantom.truth.lesions or rng.random() < _CLEAR_KEPT):
            makers["lung"] = _lung
    return makers


def _heart(phantom: Phantom, _: np.random.Generator) -> _Drawn:
    anatomy = phantom.truth.anatomy
    ratio = anatomy.cardiothoracic_ratio / (AP_MAGNIFICATION if anatomy.view == "AP" else 1)
    extra: dict[str, object] = {"needs": "measurement", "measurement": "ctr"}
    return "Is the heart enlarged?", Kind.CLOSED, (), "yes" if ratio > 0.5 else "no", extra


def _mediastinum(phantom: Phantom, rng: np.random.Generator) -> _Drawn:
    options = ("midline", "shifted to the right", "shifted to the left")
    toward = phantom.truth.anatomy.shifted_to
    answer = f"shifted to the {toward}" if toward else "midline"
    extra: dict[str, object] = {"needs": "measurement", "measurement": "shift"}
    return "Where is the mediastinum?", Kind.MULTIPLE_CHOICE, _shuffled(options, rng), answer, extra


def _lung(phantom: Phantom, rng: np.random.Generator) -> _Drawn:
    lungs = _lungs(phantom)
    side = sorted(lungs)[int(rng.integers(len(lungs)))]
    extra: dict[str, object] = {"needs": "crop", "measurement": None, "region": f"{side} lung"}
    return f"What is in the {side} lung?", Kind.MULTIPLE_CHOICE, _shuffled(_LUNG, rng), lungs[side], extra


def _lungs(phantom: Phantom) -> dict[str, str]:
    """What is in each lung; one with another or a small lesion is not asked about, nor a clear one beside it."""
    lesions = phantom.truth.lesions
    if not lesions:
        return {"left": _LUNG[0], "right": _LUNG[0]}
    return {lesion.side: lesion.kind for lesion in lesions if lesion.kind in _LUNG and lesion.grade}


def _projection(phantom: Phantom, rng: np.random.Generator) -> _Drawn:
    answer = "lateral" if phantom.truth.anatomy.view == "LATERAL" else "frontal"
    extra: dict[str, object] = {"needs": "nothing", "measurement": None}
    return "Is this film frontal or lateral?", Kind.TWO_OPTION, _shuffled(("frontal", "lateral"), rng), answer, extra


def _shuffled(options: tuple[str, ...], rng: np.random.Generator) -> tuple[str, ...]:
    return tuple(str(option) for option in rng.permutation(options))
