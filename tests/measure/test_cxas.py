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
"""CXAS: the real architecture with random weights, and weights files of every kind on a small stand-in."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from chests import film

from verl_cxr.film import Film
from verl_cxr.measure import MaskError, Thresholds, certain, gather, make_masks, make_view
from verl_cxr.measure.masks import cxas

pytestmark = pytest.mark.skipif(find_spec("torchxrayvision") is None, reason="the tools extra is not installed")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Random weights of the real network (73 million), as CXAS's own file wraps and names them."""
    torch.manual_seed(0)
    network = cxas._architecture()
    file = tmp_path_factory.mktemp("cxas") / "UNet_ResNet50_default.pth"
    state = {name.replace("backbone.backbone.", "backbone.", 1): value for name, value in network.state_dict().items()}
    torch.save({"model": state, "epoch": 110}, file)
    yield file, network
    file.unlink()


def test_the_network_outlines_a_film_as_its_package_does(weights, tmp_path):
    file, network = weights
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (512, 512), dtype=np.uint8)
    shot = Film(pixels, None, None, Path("/films/film.png"), "a" * 64)
    backend = make_masks("cxas", weights=file, cache=tmp_path)
    found = backend.outline(shot)

    # the package's own way: grey scaled to [-1024, 1024], logits above 0
    with torch.inference_mode():
        logits = network.eval()(torch.from_numpy((2 * (pixels / 255.0) - 1) * 1024).float()[None, None])[0]
    for structure, name in (("right lung", "right lung"), ("cardiac silhouette", "heart"), ("trachea", "trachea")):
        expected = (logits[network.targets.index(name)] > 0).numpy()
        assert (found.masks[structure] != expected).mean() < 1e-3
    assert found.backend == "cxas"
    assert all(0.5 < value <= 1 for value in found.confidence.values())
    assert {"left lung", "spine", "cardiomediastinum", "right upper lung zone"} <= set(found.masks)

    # random weights outline nothing that could be measured
    evidence = gather(shot, masks=backend, view=make_view("metadata", view="PA"), thresholds=Thresholds(scope="film"))
    assert certain("PA").view == evidence.decision.view
    assert not evidence.decision.open
    assert evidence.backends == {"masks": "cxas", "view": "metadata"}
    assert len(list(tmp_path.rglob(f"{'a' * 64}.npz"))) == 1


class Small(torch.nn.Module):
    """Names its parameters as the network does."""

    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Module()
        self.backbone.backbone = torch.nn.Linear(2, 2)
        self.head = torch.nn.BatchNorm1d(2)


def published(layout):
    state = Small().state_dict()
    if layout == "own":
        return {name.replace("backbone.backbone.", "backbone."): value for name, value in state.items()}
    if layout == "parallel":
        return {"state_dict": {f"module.{name}": value for name, value in state.items()}}
    if layout == "untracked":
        return {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    return state


@pytest.mark.parametrize("layout", ["repackaged", "own", "parallel", "untracked"])
def test_the_layouts_in_which_weights_are_published(layout, tmp_path):
    torch.manual_seed(1)
    held = published(layout)
    torch.save(held, tmp_path / "w.pth")
    network = Small()
    cxas._load(network, tmp_path / "w.pth")
    flat = held.get("state_dict", held)
    weight = next(value for name, value in flat.items() if name.endswith("backbone.weight"))
    assert torch.equal(network.backbone.backbone.weight, weight)


def save_object(file):
    torch.save({"model": Small().state_dict(), "args": argparse.Namespace(lr=1)}, file)


def save_text(file):
    file.write_text("<html>not found</html>")


def save_half(file):
    torch.save(published("repackaged"), file)
    file.write_bytes(file.read_bytes()[:400])


def save_partly(file):
    state = published("repackaged")
    del state["head.weight"]
    torch.save(state, file)


def save_other(file):
    torch.save(published("repackaged") | {"head.weight": torch.zeros(7)}, file)


def save_numbers(file):
    torch.save({"a": 1, "b": [2]}, file)


@pytest.mark.parametrize("save", [save_object, save_text, save_half, save_partly, save_other, save_numbers])
def test_a_file_that_is_no_weights_file_is_refused_by_name(save, tmp_path):
    save(tmp_path / "w.pth")
    with pytest.raises(MaskError, match=r"w\.pth: (no weights file|weights of another network)"):
        cxas._load(Small(), tmp_path / "w.pth")


def test_missing_weights_say_what_to_do(tmp_path):
    for weights in (None, tmp_path / "none.pth"):
        with pytest.raises(MaskError, match="UNet_ResNet50_default"):
            make_masks("cxas", weights=weights)
    assert film(2, 2).pixels.shape == (2, 2)
