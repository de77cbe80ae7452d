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
"""Masks that someone made beforehand, found by a film's name.

For ``images/S.jpg`` one of these is read, in a folder of your choice::

    S/right_lung.png      1-bit or 8-bit PNG, two values, one a structure (the phantom adapter writes these)
    S__right_lung.png     the same, in one folder for all films
    S.npz                 arrays by structure: boolean, two values, or probabilities from 0 to 1
    S.json                {"size": [height, width], "masks": {"right lung": counts}}, run lengths as COCO writes them
    S.png                 one mask of both lungs

Structures may have any name that `verl_cxr.anatomy` knows ("heart", "lung_left"). A mask of both lungs is parted: the
lung on the image's left is taken for the right one, and the result says that this was assumed.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from PIL import Image
from scipy import ndimage

from verl_cxr.anatomy import load_vocabulary
from verl_cxr.film import MAX_PIXELS, Film
from verl_cxr.measure.masks.outlines import HEART, LEFT_LUNG, LUNGS, RIGHT_LUNG, MaskError, Outlines
from verl_cxr.measure.masks.rle import decode_rle
from verl_cxr.measure.shape import Mask, centroid

__all__ = ["PrecomputedMasks", "is_one_film", "outlines_of", "read_mask_file", "read_mask_folder"]

_SUFFIXES = (".npz", ".json", ".png")
_ASPECT_SLACK = 0.02
_SMALLER_LUNG = 0.05  # of the larger one: a part with less is no second lung


class PrecomputedMasks:
    """The masks of a folder.

    Args:
        folder: see the module.
        stretched: accept masks of another shape than the film, such as the 512 x 512 of a network.
        one_film: the folder itself holds ``right_lung.png`` and its likes, of one film, whatever that is named.

    Raises:
        FileNotFoundError: no such folder.
    """

    name = "precomputed"

    def __init__(self, folder: str | Path, *, stretched: bool = False, one_film: bool = False) -> None:
        self.folder, self.stretched, self.one_film = Path(folder).expanduser(), stretched, one_film
        if not self.folder.is_dir():
            raise FileNotFoundError(f"no folder of masks at {self.folder}")

    def outline(self, film: Film) -> Outlines:
        """The masks of a film; none where the folder has none for it.

        Raises:
            MaskError: a file is damaged, or its masks do not fit the film.
        """
        masks, confidence = self._find(film.path.stem)
        height, width = film.pixels.shape
        if masks and not self.stretched:
            rows, columns = next(iter(masks.values())).shape
            if abs(rows * width / (columns * height) - 1) > _ASPECT_SLACK:
                raise MaskError(
                    f"{self.folder}: the masks of {film.path.name} are {columns} x {rows}, the film is {width} x "
                    f"{height}: they are of another film, or set stretched=true"
                )
        return outlines_of(masks, confidence, width=width, height=height)

    def names(self) -> list[str]:
        """The names of the films that the folder has masks of."""
        if self.one_film:
            return [self.folder.resolve().name]
        entries = list(self.folder.iterdir())
        names = {entry.name for entry in entries if entry.is_dir()}
        names |= {file.stem.rpartition("__")[0] or file.stem for file in entries if file.suffix in _SUFFIXES}
        return sorted(names)

    def blank_film(self, name: str) -> Film:
        """A black film in place of one that is not at hand, as large as its masks.

        Raises:
            MaskError: there are no masks of that name, or they are damaged.
        """
        masks, _ = self._find(name)
        if not masks:
            raise MaskError(f"{self.folder}: no masks of {name}")
        pixels = np.zeros(next(iter(masks.values())).shape, dtype=np.uint8)
        return Film(pixels, None, None, self.folder / name, hashlib.sha256(name.encode()).hexdigest())

    def _find(self, stem: str) -> tuple[dict[str, Mask], dict[str, float]]:
        if self.one_film:
            return read_mask_folder(self.folder), {}
        if (folder := self.folder / stem).is_dir():
            return read_mask_folder(folder), {}
        if files := sorted(self.folder.glob(f"{_literal(stem)}__*.png")):
            return _distinct({file: file.stem[len(stem) + 2 :] for file in files}), {}
        for suffix in _SUFFIXES:
            if (file := self.folder / f"{stem}{suffix}").is_file():
                return read_mask_file(file)
        return {}, {}


def outlines_of(
    masks: Mapping[str, Mask], confidence: Mapping[str, float] = {}, *, width: int, height: int
) -> Outlines:
    """Outlines of masks by canonical name; a mask of both lungs is parted where the single ones are missing."""
    found, assumed = dict(masks), False
    if LUNGS in found and not {RIGHT_LUNG, LEFT_LUNG} & set(found):
        found |= _parted(found[LUNGS])
        assumed = RIGHT_LUNG in found
    return Outlines(found, width, height, PrecomputedMasks.name, confidence, sides_assumed=assumed)


def is_one_film(folder: Path) -> bool:
    """Whether a folder holds the masks of one film, named by structure alone."""
    return any(_canonical(file.stem) in (RIGHT_LUNG, LEFT_LUNG, LUNGS, HEART) for file in folder.glob("*.png"))


def read_mask_folder(folder: Path) -> dict[str, Mask]:
    """The masks of a folder that holds one film's, one PNG a structure.

    Raises:
        MaskError: a file is no mask.
    """
    return _distinct({file: file.stem for file in sorted(folder.glob("*.png"))})


def read_mask_file(file: Path) -> tuple[dict[str, Mask], dict[str, float]]:
    """The masks of one file, ``.npz``, ``.json`` or ``.png``, and the mean probability inside of those that have one.

    Raises:
        MaskError: the file is damaged, or holds no masks.
    """
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as held:
                arrays = {name: held[name] for name in held.files}
        elif file.suffix == ".json":
            arrays = _json_masks(orjson.loads(file.read_bytes()))
        else:
            return {LUNGS: _png(file)}, {}
        masks, confidence = {}, {}
        for name, array in arrays.items():
            structure = _canonical(name)
            if structure in masks:
                raise ValueError(f"{structure!r} is there twice")
            masks[structure], mean = _two_valued(array, name)
            if mean is not None:
                confidence[structure] = mean
    except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise MaskError(f"{file}: {error}") from None
    return _one_grid(masks, file), confidence


def _json_masks(document: Any) -> dict[str, npt.NDArray[Any]]:
    size, masks = document["size"], document["masks"]
    if not (isinstance(size, list) and len(size) == 2 and all(type(n) is int and n > 0 for n in size)):
        raise ValueError("size must be [height, width] in whole pixels")
    if size[0] * size[1] > MAX_PIXELS:
        raise ValueError(f"size {size} is beyond any film's")
    if not isinstance(masks, dict):
        raise ValueError("masks must be an object of run lengths by structure")
    return {name: decode_rle(counts, size[0], size[1]) for name, counts in masks.items()}


def _two_valued(array: npt.NDArray[Any], name: str) -> tuple[Mask, float | None]:
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name!r} must be an array [height, width], not {array.shape}")
    if array.dtype == np.bool_:
        return array, None
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise ValueError(f"{name!r} must hold probabilities from 0 to 1")
        mask = array > 0.5
        return mask, float(array[mask].mean()) if mask.any() else None
    if array.dtype.kind not in "ui":
        raise ValueError(f"{name!r} must be boolean, whole numbers or probabilities, not {array.dtype}")
    # Two values: more of them are a label map or a picture, and nobody knows which of them is the structure.
    high = array.max()
    if not ((array == 0) | (array == high)).all():
        raise ValueError(f"{name!r} must hold 0 and one other value")
    return array != 0, None


def _png(file: Path) -> Mask:
    try:
        with Image.open(file) as image:
            if image.width * image.height > MAX_PIXELS:
                raise MaskError(f"{file}: claims too many pixels")
            if image.mode not in ("1", "L", "P", "I;16", "I"):
                raise MaskError(f"{file}: a mask has one channel, not mode {image.mode}")
            return _two_valued(np.asarray(image), file.stem)[0]
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise MaskError(f"{file}: {error}") from None


def _distinct(files: Mapping[Path, str]) -> dict[str, Mask]:
    masks: dict[str, Mask] = {}
    for file, name in files.items():
        structure = _canonical(name)
        if structure in masks:
            raise MaskError(f"{file}: a second mask of {structure!r}")
        masks[structure] = _png(file)
    return _one_grid(masks, next(iter(files)).parent) if masks else {}


def _one_grid(masks: dict[str, Mask], place: Path) -> dict[str, Mask]:
    if len(shapes := {mask.shape for mask in masks.values()}) > 1:
        raise MaskError(f"{place}: masks of one film have different sizes: {sorted(shapes)}")
    return masks


def _canonical(name: str) -> str:
    return load_vocabulary().canonical(name.replace("_", " "))


def _literal(stem: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in stem)


def _parted(lungs: Mask) -> dict[str, Mask]:
    """The two largest parts, by their place in the image; nothing where there is no second lung."""
    labels, count = ndimage.label(lungs, structure=np.ones((3, 3), dtype=bool))
    if count < 2:
        return {}
    sizes = np.bincount(labels.ravel())[1:]
    first, second = np.argsort(sizes)[::-1][:2]
    if sizes[second] < _SMALLER_LUNG * sizes[first]:
        return {}
    parts = sorted((labels == first + 1, labels == second + 1), key=lambda part: centroid(part)[0])
    return {RIGHT_LUNG: parts[0], LEFT_LUNG: parts[1]}
