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
"""The card beside a built data set: how to make it again, what was dropped and why, and which licences hold."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from verl_cxr.data.funnel import Funnel
from verl_cxr.files import replacing

__all__ = ["CARD_NAME", "Provenance", "write_card"]

CARD_NAME = "card.json"
_NOT_STATED = "not stated"
_PACKAGES = ("verl-cxr", "numpy", "scipy", "pillow", "pyarrow")


@dataclass(slots=True)
class Provenance:
    """Sources, licences and views of the records that a build used."""

    sources: Counter[str] = field(default_factory=Counter)
    licences: Counter[str] = field(default_factory=Counter)
    views: Counter[str] = field(default_factory=Counter)

    def add(self, origin: tuple[str | None, str | None, str | None]) -> None:
        """Count a record of this source, licence and view."""
        for counter, name in zip((self.sources, self.licences, self.views), origin, strict=True):
            counter[name or _NOT_STATED] += 1

    def to_dict(self) -> dict[str, dict[str, int]]:
        """The counts, for `merge`; the most frequent first."""
        return {"sources": _counts(self.sources), "licences": _counts(self.licences), "views": _counts(self.views)}

    def merge(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add what `to_dict` gave for another part of the build."""
        self.sources.update(counts["sources"])
        self.licences.update(counts["licences"])
        self.views.update(counts["views"])


def write_card(
    folder: Path,
    *,
    command: Sequence[str],
    settings: Mapping[str, Any],
    files: Mapping[str, tuple[int, str]],
    funnel: Funnel,
    provenance: Provenance,
) -> Path:
    """Write `card.json` and, for people, `README.md`.

    Neither holds the time: the same command on the same input and versions writes the same bytes.

    Args:
        command: the arguments that built the data, program first.
        settings: options in force, seed included.
        files: rows and SHA-256 by parquet file.
    """
    card = {
        "command": list(command),
        "settings": dict(settings),
        "versions": {"python": platform.python_version()} | {package: version(package) for package in _PACKAGES},
        "files": {name: rows for name, (rows, _) in files.items()},
        "sha256": {name: sha256 for name, (_, sha256) in files.items()},
        "funnel": funnel.to_dict(),
        **provenance.to_dict(),
        "use": "research only",
    }
    path = folder / CARD_NAME
    with replacing(path) as file:
        file.write(orjson.dumps(card, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    with replacing(folder / "README.md") as file:
        file.write(_markdown(card).encode())
    return path


def _counts(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))


def _markdown(card: Mapping[str, Any]) -> str:
    funnel = card["funnel"]
    lines = [
        "# Data set card",
        "",
        f"Built by `{' '.join(card['command'])}`. For research only.",
        "",
        "| file | rows |",
        "| --- | --- |",
        *(f"| {name} | {rows} |" for name, rows in card["files"].items()),
        "",
        f"Studies read: {funnel['studies_read']}.",
        *(f"- dropped by {d['stage']}: {d['reason']}: {d['studies']}" for d in funnel["dropped"]),
        "",
        "| licence | studies |",
        "| --- | --- |",
        *(f"| {name} | {count} |" for name, count in card["licences"].items()),
        "",
        "Sources, views, settings and versions are in `card.json`.",
        "",
    ]
    return "\n".join(lines)
