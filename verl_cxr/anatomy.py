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
"""The region vocabulary: which names mean the same part of the body, on the same side.

Regions of a prediction and of an annotation are matched by name (region-grounded GRPO, cascaded reward, level 2). Names
vary in case, number, word order and synonym; the one thing that must never be smoothed over is the side.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml

__all__ = ["Region", "Side", "Vocabulary", "load_vocabulary", "side"]

Side = Literal["left", "right"]

_SIDES: Mapping[str, Side] = {"r": "right", "rt": "right", "right": "right", "l": "left", "lt": "left", "left": "left"}
_IGNORED = frozenset({"the", "of", "a", "an", "side", "sided"})
_IRREGULAR = {"apices": "apex", "apexes": "apex", "sulci": "sulcus", "recesses": "recess", "arches": "arch"}
_WORD = re.compile(r"[^\W_]+")
_LONGEST_NAME = 100  # characters; a longer name is no alias, and keeps hostile text out of the cache


@dataclass(frozen=True, slots=True)
class Region:
    """One anatomical region; ``boxed`` and ``described`` say whether the data set locates it, and reports on it."""

    name: str
    aliases: tuple[str, ...] = ()
    side: Side | None = None
    boxed: bool = True
    described: bool = True
    parent: str | None = None


def side(name: str) -> Side | None:
    """The side that a region name states; None if it states none, or both."""
    sides = {_SIDES[word] for word in _words(name) if word in _SIDES}
    return sides.pop() if len(sides) == 1 else None


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Regions by canonical name, and the one canonical name of every way to write them.

    Raises:
        ValueError: two regions share a name, an alias is of another side than its region, or a parent is unknown.
    """

    name: str
    regions: Mapping[str, Region]
    _known: Mapping[frozenset[str], str] = field(init=False, repr=False)
    _cached: Callable[[str], str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known: dict[frozenset[str], str] = {}
        for region in self.regions.values():
            if region.parent is not None and region.parent not in self.regions:
                raise ValueError(f"vocabulary {self.name}: {region.name!r} has an unknown parent {region.parent!r}")
            for alias in (region.name, *region.aliases):
                if side(alias) != region.side:
                    raise ValueError(f"vocabulary {self.name}: {alias!r} is not on the side of {region.name!r}")
                if known.setdefault(_key(alias), region.name) != region.name:
                    raise ValueError(f"vocabulary {self.name}: {alias!r} names {known[_key(alias)]!r} too")
        object.__setattr__(self, "_known", known)
        object.__setattr__(self, "_cached", lru_cache(maxsize=16384)(self._canonical))

    def canonical(self, name: str) -> str:
        """The canonical name of a region, whatever the case, number, word order or synonym; never of another side.

        A name that the vocabulary does not know is returned in lower case with single spaces, so that a region set of
        one's own works with no vocabulary.
        """
        return self._cached(name) if len(name) <= _LONGEST_NAME else _normal(name)

    def _canonical(self, name: str) -> str:
        return self._known.get(_key(name)) or _normal(name)


@lru_cache(maxsize=16)
def load_vocabulary(name_or_path: str | os.PathLike[str] = "chest_imagenome") -> Vocabulary:
    """Load a vocabulary of the package by name, or one's own from a ``.yaml`` file of the same form.

    Raises:
        FileNotFoundError: no such vocabulary.
        ValueError: the file is not a vocabulary.
    """
    text_name = os.fspath(name_or_path)
    if text_name.endswith((".yaml", ".yml")):
        name, text = Path(text_name).stem, Path(text_name).read_text(encoding="utf-8")
    else:
        name = text_name
        file = resources.files("verl_cxr") / "vocabularies" / f"{name}.yaml"
        if not file.is_file():
            raise FileNotFoundError(f"no vocabulary {name!r} in the package: give a .yaml file for one of your own")
        text = file.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    entries = document.get("regions") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError(f"vocabulary {text_name}: the file must hold a list 'regions'")
    regions: dict[str, Region] = {}
    for entry in entries:
        for region in _expanded(entry, text_name):
            if region.name in regions:
                raise ValueError(f"vocabulary {text_name}: {region.name!r} is listed twice")
            regions[region.name] = region
    return Vocabulary(name, MappingProxyType(regions))


def _expanded(entry: Any, file: str) -> list[Region]:
    """The region of an entry, or its left and right region when its name has ``{side}``."""
    known = {"name", "aliases", "boxed", "described", "parent"}
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry.keys() <= known:
        raise ValueError(f"vocabulary {file}: an entry has a name and may have {sorted(known - {'name'})}, not {entry}")

    def build(on: str) -> Region:
        name = entry["name"].replace("{side}", on)
        parent = entry.get("parent")
        return Region(
            name=_normal(name),
            aliases=tuple(str(alias).replace("{side}", on) for alias in entry.get("aliases", ())),
            side=side(name),
            boxed=bool(entry.get("boxed", True)),
            described=bool(entry.get("described", True)),
            parent=parent if parent is None else _normal(str(parent).replace("{side}", on)),
        )

    return [build("left"), build("right")] if "{side}" in entry["name"] else [build("")]


def _normal(name: str) -> str:
    return " ".join(name.casefold().split())


def _words(name: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", name).casefold())


def _key(name: str) -> frozenset[str]:
    """The words that identify a region: order, number and filler dropped, the side spelt out."""
    return frozenset(_SIDES.get(word) or _singular(word) for word in _words(name) if word not in _IGNORED)


def _singular(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word[:-1] if plural else word
