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
"""``verl-cxr measure``: the measurements of films, what the validity gate allows of them, and a picture of each.

One JSON object a film goes to standard output: ``id``, ``image``, ``observation`` (the text that a policy is shown),
``picture``, and the record of :class:`verl_cxr.measure.Evidence`, withheld numbers included: it is a log, no prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
import yaml

from verl_cxr.commands.shared import key_values, stop
from verl_cxr.files import RecordError
from verl_cxr.film import Film, FilmError, read_film
from verl_cxr.measure import (
    MASK_BACKENDS,
    VIEW_BACKENDS,
    MaskBackend,
    MaskError,
    ViewBackend,
    ViewError,
    judge,
    load_thresholds,
    make_masks,
    make_view,
)
from verl_cxr.measure.drawing import draw_evidence
from verl_cxr.measure.masks.precomputed import PrecomputedMasks, is_one_film

__all__ = ["measure"]

_FAULTS = (FilmError, MaskError, ViewError, RecordError, OSError, ImportError)
_MAIN_OPTION = {"cxas": "weights", "precomputed": "folder"}
_VIEW_OPTION = {"metadata": "records", "precomputed": "file", "opencxr": "python"}


def measure(
    image: Annotated[
        list[Path] | None,
        typer.Option(help="A film; may be repeated. Default: those that the folder of masks names.", exists=True),
    ] = None,
    masks: Annotated[
        str | None,
        typer.Option(help="A folder of masks, or a backend: cxas:WEIGHTS, phantom, haar.", metavar="DIR|BACKEND"),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            help="The films' projection (PA, AP, LATERAL), or who tells it: metadata:FILE.jsonl, "
            "precomputed:FILE.jsonl, opencxr:INTERPRETER, dicom. Default: not known, which closes the gate.",
            metavar="VIEW|BACKEND",
        ),
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(help="Thresholds: precomputed, retrocardiac, cxas, phantom or a .yaml file. Default: the masks'."),
    ] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(help="Another value of a threshold; may be repeated.", metavar="KEY=VALUE")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Another option of the mask backend; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.", file_okay=False)] = Path(),
) -> None:
    """Measure films, and say what the validity gate allows."""
    try:
        backend, plain = _masks(masks, image or [], _settings(option))
        viewer = _view(view)
        thresholds = load_thresholds(gate or _gate_of(backend), _settings(threshold))
    except (ValueError, *_FAULTS) as error:
        raise stop(error, code=2) from None
    try:
        for film, path in _films(image or [], plain):
            outlines = backend.outline(film)
            evidence = judge(film, outlines, viewer.read(film), thresholds, view_backend=viewer.name)
            picture = out / f"{film.path.stem}.measured.png"
            out.mkdir(parents=True, exist_ok=True)
            draw_evidence(film.pixels, outlines, evidence, title=film.path.stem).save(picture)
            row = {
                "id": film.path.stem,
                "image": str(path) if path else None,
                "observation": evidence.observation(),
                "picture": str(picture),
            }
            typer.echo(orjson.dumps(row | evidence.to_dict()))
    except _FAULTS as error:
        raise stop(error, code=1) from None


def _masks(
    spec: str | None, images: Sequence[Path], options: dict[str, Any]
) -> tuple[MaskBackend, PrecomputedMasks | None]:
    """The backend, and itself if it is a folder that can name films."""
    if spec is None:
        raise ValueError("--masks is needed: a folder of masks, or cxas:WEIGHTS, phantom or haar")
    name, colon, rest = spec.partition(":")
    if name not in MASK_BACKENDS or (not colon and Path(spec).is_dir()):
        name, rest = "precomputed", spec
    if rest:
        if name not in _MAIN_OPTION:
            raise ValueError(f"--masks {spec}: {name} takes no file")
        options = {_MAIN_OPTION[name]: rest} | options
    if name == "precomputed" and Path(options.get("folder", "")).is_dir():
        options.setdefault("one_film", is_one_film(Path(options["folder"])))
        if options["one_film"] and len(images) > 1:
            raise ValueError(f"{options['folder']} holds the masks of one film, and {len(images)} are given")
    backend = make_masks(name, **options)
    plain = getattr(backend, "backend", None)
    if isinstance(plain, PrecomputedMasks):
        return backend, plain
    if not images:
        raise ValueError(f"--masks {spec} needs --image FILE")
    return backend, None


def _view(spec: str | None) -> ViewBackend:
    if spec is None:
        return make_view("metadata")
    if spec == "dicom":
        return make_view("metadata", dicom=True)
    name, colon, rest = spec.partition(":")
    if not colon:
        return make_view("metadata", view=spec)
    if name not in VIEW_BACKENDS:
        raise ValueError(f"--view {spec}: use PA, AP, LATERAL, dicom, or one of {', '.join(VIEW_BACKENDS)} and a file")
    options: dict[str, Any] = {_VIEW_OPTION[name]: rest}
    return make_view(name, **options)


def _gate_of(backend: MaskBackend) -> str:
    return "precomputed" if backend.name == "haar" else backend.name


def _films(images: Sequence[Path], plain: PrecomputedMasks | None) -> Iterator[tuple[Film, Path | None]]:
    for image in images:
        yield read_film(image), image
    if not images and plain is not None:
        for name in plain.names():
            yield plain.blank_film(name), None


def _settings(texts: Sequence[str] | None) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in key_values(texts or ()).items():
        try:
            settings[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"'{key}={value}': {value!r} is no value") from None
    return settings
