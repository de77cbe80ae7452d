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
"""Synthetic films with exact ground truth, from a seed (`verl_cxr.data.phantom`).

On disk the build makes::

    OUT/studies.jsonl              one grounded study a film
    OUT/images/{id}.png            8-bit grey
    OUT/masks/{id}/{organ}.png     with --masks: 1-bit, one an organ
    OUT/truth.jsonl                with --masks: parameters and measurements, one line a film
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, cast

import orjson
import typer
from PIL import Image

from verl_cxr.data.adapters import BuildContext, adapter
from verl_cxr.data.phantom import DEFAULT_REGIONS, Phantom, PhantomOptions, iter_phantoms
from verl_cxr.files import replacing
from verl_cxr.study import Study, View

__all__ = ["phantom"]


@adapter("phantom", makes_films=True)
def phantom(
    context: BuildContext,
    *,
    count: Annotated[int, typer.Option(min=1, help="Films for training.")] = 2000,
    validate: Annotated[int, typer.Option(min=0, help="Held-out films.")] = 64,
    size: Annotated[int, typer.Option(min=32, help="Width and height of a film in pixels.")] = 128,
    height: Annotated[int | None, typer.Option(min=32, help="Height, where it differs from the width.")] = None,
    views: Annotated[str, typer.Option(help="Views to draw from: PA, AP, LATERAL.")] = "PA,AP",
    regions: Annotated[str, typer.Option(help="Regions to annotate.")] = ",".join(DEFAULT_REGIONS),
    masks: Annotated[bool, typer.Option("--masks", help="Write organ masks and measurements too.")] = False,
) -> Iterator[Study]:
    """Draw synthetic chest films with exact boxes, masks and findings."""
    names = cast("tuple[View, ...]", _names(views.upper()))  # PhantomOptions checks them
    options = PhantomOptions(width=size, height=height or size, views=names, regions=_names(regions.lower()))
    context.total = count + validate
    folder = context.out / "images"
    folder.mkdir(parents=True, exist_ok=True)
    truths = []
    for split, films in (("train", count), ("validate", validate)):
        for film in iter_phantoms(context.seed, films, split=split, options=options):
            path = folder / f"{film.study.id}.png"
            Image.fromarray(film.image).save(path)
            if masks:
                _save_masks(context.out / "masks" / film.study.id, film)
                truths.append({"id": film.study.id} | asdict(film.truth))
            yield replace(film.study, image=path)
    if masks:
        with replacing(context.out / "truth.jsonl") as file:
            file.writelines(orjson.dumps(truth, option=orjson.OPT_APPEND_NEWLINE) for truth in truths)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _save_masks(folder: Path, film: Phantom) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for organ, mask in film.masks.items():
        Image.fromarray(mask).save(folder / f"{organ.replace(' ', '_')}.png")
