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
"""Every file of the masks, view and gate groups makes what it names, and holds every option with its default."""

from __future__ import annotations

import inspect
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

import hydra_configs
from verl_cxr.measure import MASK_BACKENDS, VIEW_BACKENDS, MaskError, Thresholds, make_masks, make_view
from verl_cxr.measure.masks.cxas import CxasMasks
from verl_cxr.measure.masks.haar import HaarMasks
from verl_cxr.measure.masks.phantom import PhantomMasks
from verl_cxr.measure.masks.precomputed import PrecomputedMasks
from verl_cxr.measure.view.metadata import MetadataView
from verl_cxr.measure.view.opencxr import OpencxrView
from verl_cxr.measure.view.precomputed import PrecomputedView

ROOT = Path(next(iter(hydra_configs.__path__)))
CLASSES = {
    "masks": {"cxas": CxasMasks, "haar": HaarMasks, "phantom": PhantomMasks, "precomputed": PrecomputedMasks},
    "view": {"metadata": MetadataView, "opencxr": OpencxrView, "precomputed": PrecomputedView},
}
PROGRAMMATIC = {"one_film"}  # for the command line


def files(group):
    return {path.stem: path for path in (ROOT / group).glob("*.yaml")}


def composed(group, choice, *overrides):
    with initialize_config_module("hydra_configs", version_base=None):
        return compose(overrides=[f"+{group}@cxr.{group}={choice}", *overrides]).cxr[group]


def test_there_is_a_file_for_every_backend():
    assert set(files("masks")) == set(MASK_BACKENDS) == set(CLASSES["masks"])
    assert set(files("view")) == set(VIEW_BACKENDS) == set(CLASSES["view"])
    assert set(files("gate")) >= {"cxas", "phantom", "precomputed"}


@pytest.mark.parametrize("group", ["masks", "view"])
def test_a_file_holds_every_option_of_its_backend_with_its_default(group):
    for name, path in files(group).items():
        written = yaml.safe_load(path.read_text())
        assert written.pop("name") == name
        wrapper = inspect.signature(make_masks if group == "masks" else make_view).parameters
        assert written.pop("remember") == wrapper["remember"].default
        written.pop("cache", None)
        options = {key: value for key, value in inspect.signature(CLASSES[group][name]).parameters.items()
                   if key not in PROGRAMMATIC}  # fmt: skip
        assert set(written) == set(options)
        for key, option in options.items():
            default = list(option.default) if isinstance(option.default, tuple) else option.default
            assert written[key] in (default, "???"), (name, key)


@pytest.mark.parametrize("name", sorted(files("gate")))
def test_a_gate_file_holds_every_threshold(name):
    written = composed("gate", name)
    thresholds = Thresholds.from_mapping(OmegaConf.to_container(written))
    assert list(written) == list(asdict(Thresholds()))
    assert Thresholds.from_mapping(written) == thresholds  # also as Hydra hands it over
    assert all("#" in line for line in files("gate")[name].read_text().splitlines())


def test_hydras_own_objects_make_the_backends(tmp_path):
    (tmp_path / "v.jsonl").write_text("")
    assert make_masks(**composed("masks", "phantom")).name == "phantom"
    assert make_masks(**composed("masks", "precomputed", f"cxr.masks.folder={tmp_path}")).name == "precomputed"
    assert make_view(**composed("view", "metadata", "cxr.view.view=PA")).name == "metadata"
    assert make_view(**composed("view", "precomputed", f"cxr.view.file={tmp_path}/v.jsonl")).name == "precomputed"
    assert make_view(**composed("view", "opencxr", f"cxr.view.python={sys.executable}")).name == "opencxr"
    own = ("cxr.view.python=null", "cxr.view.command=[a,b]")
    assert make_view(**composed("view", "opencxr", *own)).backend.command == ["a", "b"]
    with pytest.raises(MaskError, match="no weights of CXAS"):
        make_masks(**composed("masks", "cxas", "cxr.masks.weights=/none.pth"))
