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
"""CXAS: the anatomy network of Seibold et al. (arXiv:2306.03934), 159 structures, through torchxrayvision.

Only the architecture comes with the package (``pip install 'verl-cxr[tools]'``); the weights (CC BY-NC-SA) are a file
that you point to: CXAS's own ``UNet_ResNet50_default.pth`` or torchxrayvision's repackaged one. The network sees the
film squashed to 512 x 512: ratios of widths and of areas survive that. CXAS's own ratio is not used, it is unreliable.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verl_cxr.anatomy import load_vocabulary
from verl_cxr.film import Film
from verl_cxr.measure.masks.outlines import MaskError, Outlines

__all__ = ["STRUCTURES", "CxasMasks"]

STRUCTURES = (
    "right lung", "left lung", "heart", "cardiomediastinum", "upper mediastinum", "trachea", "tracheal bifurcation",
    "spine", "aortic arch", "clavicle right", "clavicle left", "right hemidiaphragm", "left hemidiaphragm",
    "right apical zone lung", "right upper zone lung", "right mid zone lung", "right lung base",
    "left apical zone lung", "left upper zone lung", "left mid zone lung", "left lung base",
)  # fmt: skip
"""Structures that are kept of the network's 159, under its names; `verl_cxr.anatomy` gives their canonical ones."""

_SIDE = 512
_LEAST = 0.5  # probability
_PREFIXES = ("module.", "model.", "net.")
_WRAPPERS = ("model", "state_dict", "model_state_dict", "network", "net")


class CxasMasks:
    """The outlines that the network gives.

    Args:
        weights: its file.
        device: "cpu", "cuda", ...

    Raises:
        MaskError: torchxrayvision is not installed; the file is missing, is no weights file, or of another network.
    """

    name = "cxas"

    def __init__(self, *, weights: str | Path | None = None, device: str = "cpu") -> None:
        import torch

        if weights is None or not Path(weights).expanduser().is_file():
            raise MaskError(
                f"no weights of CXAS at {weights}: masks=cxas needs weights=FILE, UNet_ResNet50_default.pth "
                "(docs/measure.md says where it is published)"
            )
        self.weights, self._device = Path(weights).expanduser(), torch.device(device)
        network = _architecture()
        _load(network, self.weights)
        self._network = network.to(self._device).eval()
        self._lock = threading.Lock()
        canonical = load_vocabulary().canonical
        self._channels = {canonical(name): network.targets.index(name) for name in STRUCTURES}

    @property
    def fingerprint(self) -> str:
        """Hash of the weights, which tells results of two files apart."""
        with self.weights.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    def outline(self, film: Film) -> Outlines:
        """The structures with a probability above 0.5, on a grid of 512 x 512."""
        import torch

        height, width = film.pixels.shape
        image = torch.from_numpy(np.array(film.pixels, dtype=np.float32))[None, None].to(self._device)
        image = torch.nn.functional.interpolate(image, (_SIDE, _SIDE), mode="bilinear", antialias=True)
        channels = list(self._channels.values())
        with self._lock, torch.inference_mode():
            logits = self._network(image.clamp(0, 255) * (2048 / 255) - 1024)[0, channels]
            probabilities = logits.sigmoid().float().cpu().numpy()
        masks, confidence = {}, {}
        for name, values in zip(self._channels, probabilities, strict=True):
            mask = values > _LEAST
            masks[name] = mask
            if mask.any():
                confidence[name] = float(values[mask].mean())
        return Outlines(masks, width, height, self.name, confidence)


def _architecture() -> Any:
    from verl_cxr.local import torchvision_shim

    torchvision_shim.install()  # torchvision cannot be imported beside a CPU build of torch without it
    try:
        from torchxrayvision.baseline_models import chestx_anatomy
    except ImportError as error:
        raise MaskError(f"masks=cxas needs torchxrayvision: pip install 'verl-cxr[tools]' ({error})") from error
    return chestx_anatomy.UNetResNet50(weights=False)


def _load(network: Any, file: Path) -> None:
    """Load a weights file without running what it may hold; torchxrayvision's own loader passes over missing parts."""
    import torch

    try:
        held = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise MaskError(f"{file}: no weights file of plain tensors: {str(error).splitlines()[0]}") from None
    for key in _WRAPPERS:
        if isinstance(held, Mapping) and isinstance(held.get(key), Mapping):
            held = held[key]
            break
    if not isinstance(held, Mapping) or not all(isinstance(value, torch.Tensor) for value in held.values()):
        raise MaskError(f"{file}: no weights file: it holds no tensors by name")
    state = {_renamed(name): value for name, value in held.items()}
    if not any(name.startswith("backbone.backbone.") for name in state):  # CXAS's own nests one level less
        state = {name.replace("backbone.", "backbone.backbone.", 1): value for name, value in state.items()}
    try:
        missing = network.load_state_dict(state, strict=False).missing_keys
    except RuntimeError as error:
        raise MaskError(f"{file}: weights of another network: {str(error).splitlines()[1].strip()}") from None
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing:
        raise MaskError(f"{file}: weights of another network: {len(missing)} tensors are missing, such as {missing[0]}")


def _renamed(name: str) -> str:
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    return name[len(prefix) :]
