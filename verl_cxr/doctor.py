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
"""What an installation can do: its packages against the metadata of this one, and whether verl loads the plug-in.

verl passes over a plug-in that it cannot load. So a fresh process imports verl, as every trainer does, and says what it
found there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, metadata, requires, version

from packaging.requirements import Requirement

from verl_cxr.facts.weights import WeightsError, locate

__all__ = ["FEATURES", "Fault", "Feature", "Probe", "installed", "probe", "problems", "state", "unmet"]

_US = "verl-cxr"
_NAMED = 3  # packages that a table names; more would drown the cure
_PROBE = """
import importlib, json, sys
import verl
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf
from verl.plugin.platform import get_platform

def failure(module):
    try:
        importlib.import_module(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def is_ours(found):
    return found.__module__.startswith("hydra_plugins.verl_cxr")

try:
    platform = get_platform()
    name, devices = platform.device_name, platform.device_count() if platform.is_available() else 0
except ValueError:  # VERL_PLATFORM names a platform that a plug-in should have brought
    name, devices = "none", 0
live = "verl_cxr.plugin" in sys.modules and OmegaConf.has_resolver("cxr.kl")
print(json.dumps({
    "platform": name,
    "devices": devices,
    "live": live,
    "recipes": any(map(is_ours, Plugins.instance().discover(SearchPathPlugin))),
    "torchvision": failure("torchvision") if live else None,
    "cause": None if live else failure("verl_cxr.plugin"),
}))
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a fresh process found after ``import verl``.

    Attributes:
        platform: verl's device name, such as "cpu" or "cuda"; None if verl could not be imported.
        devices: how many of them there are; 0 for a platform without its hardware.
        live: verl has loaded the plug-in.
        recipes: Hydra knows the search path of the recipes.
        torchvision: why torchvision cannot be imported beside the plug-in, or None.
        cause: why verl or the plug-in cannot be imported, or None.
    """

    platform: str | None = None
    devices: int = 0
    live: bool = False
    recipes: bool = False
    torchvision: str | None = None
    cause: str | None = None

    @property
    def accelerator(self) -> bool:
        return self.platform not in (None, "cpu") and self.devices > 0


@dataclass(frozen=True, slots=True)
class Fault:
    """A requirement that is not met: the distribution, its installed version if any, and the versions that would do."""

    name: str
    found: str | None
    wanted: str

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.name}{self.wanted} is not installed. Run: pip install '{self.name}{self.wanted}'"
        return f"{self.name} {self.found} is installed, not {self.wanted}. Run: pip install '{self.name}{self.wanted}'"


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that the product does, and what it takes.

    Attributes:
        extras: of this package, which bring the packages.
        platform: "cpu", "accelerator", or None where either will do.
        weights: RadGraph's model, or None.
    """

    name: str
    extras: tuple[str, ...] = ()
    platform: str | None = None
    weights: str | None = None


FEATURES = (
    Feature("score responses, build data"),
    Feature("train on this CPU: +scale=local", platform="cpu"),
    Feature("train on GPUs: +scale=node8, multinode", ("vllm",), "accelerator"),
    Feature("train with Megatron: +scale=megatron", ("vllm", "megatron"), "accelerator"),
    Feature("RadGraph facts: facts@cxr.facts=radgraph_xl", ("radgraph",), weights="radgraph-xl"),
    Feature("report metrics: verl-cxr evaluate", ("eval",)),
    Feature("films as DICOM", ("dicom",)),
    Feature("anatomy masks of the evidence tools", ("tools",)),
    Feature("lung boxes without weights: masks=haar", ("haar",)),
    Feature("develop: make lint, make test", ("dev",)),
)


def installed(distribution: str) -> str | None:
    """The version of a distribution, or None."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def unmet(extra: str | None = None) -> list[Fault]:
    """What is missing or of another version, of the package's own requirements or of those of an extra."""
    return list(dict.fromkeys(fault for need in _needs(_US, extra) for fault in _faults(need, set())))


def probe(*, timeout_s: float = 120.0) -> Probe:
    """Import verl in a fresh process of this interpreter and environment."""
    command = [sys.executable, "-c", _PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return Probe(cause=f"it took longer than {timeout_s:.0f} s")
    if done.returncode:
        return Probe(cause=(done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return Probe(**json.loads(done.stdout.splitlines()[-1]))


def problems(found: Probe) -> list[str]:
    """Why nothing can be trained here, one sentence each; an empty list when all is well."""
    faults = [str(fault) for fault in unmet()]
    if found.platform is None:
        return [*faults, f"`import verl` fails: {found.cause}"]
    if not found.live:
        faults.append(f"verl does not load the plug-in: {_why_not_loaded(found)}")
    elif not found.recipes:
        faults.append("Hydra does not find hydra_plugins.verl_cxr, so +recipe= names nothing: reinstall verl-cxr")
    if found.torchvision is not None:
        faults.append(
            f"torchvision cannot be imported, so verl has no image processor: {found.torchvision}. "
            "Install the torchvision that belongs to this torch"
        )
    return faults


def state(feature: Feature, found: Probe) -> list[str]:
    """What a feature lacks here; an empty list when it is ready."""
    lacks = []
    if feature.platform and problems(found):
        lacks.append("verl cannot use the plug-in, see below")
    known = metadata(_US).get_all("Provides-Extra") or []
    if not set(feature.extras) <= set(known):
        lacks.append(f"the metadata of {_US} is older than its code: install it again")
    missing = list(dict.fromkeys(fault.name for extra in feature.extras for fault in unmet(extra)))
    if missing:
        named = ", ".join(missing[:_NAMED]) + (f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else "")
        lacks.append(f"pip install '{_US}[{','.join(feature.extras)}]' ({named} missing or of another version)")
    if feature.weights is not None:
        try:
            locate(feature.weights)
        except WeightsError as error:
            lacks.append(str(error).partition(". ")[0])
    if feature.platform == "accelerator" and not found.accelerator:
        lacks.append("no accelerator here")
    if feature.platform == "cpu" and found.live and found.platform != "cpu":
        lacks.append(f"verl runs on '{found.platform}' here: put VERL_PLATFORM=cpu before the command")
    return lacks


def _needs(distribution: str, extra: str | None = None) -> Iterator[Requirement]:
    """Requirements of a distribution, or those that one of its extras adds."""
    for text in requires(distribution) or ():
        need = Requirement(text)
        always = need.marker is None or need.marker.evaluate({"extra": ""})
        if extra is None:
            wanted = always
        else:
            wanted = not always and need.marker is not None and need.marker.evaluate({"extra": extra})
        if wanted:
            yield need


def _faults(need: Requirement, seen: set[str]) -> Iterator[Fault]:
    if str(need) in seen:
        return
    seen.add(str(need))
    found = installed(need.name)
    if found is None or not need.specifier.contains(found, prereleases=True):
        yield Fault(need.name, found, str(need.specifier))
    if found is None:
        return
    for extra in need.extras:
        for nested in _needs(need.name, extra):
            yield from _faults(nested, seen)


def _why_not_loaded(found: Probe) -> str:
    if found.cause is not None:
        return found.cause
    names = [point.name for point in entry_points(group="verl.plugins") if point.value == "verl_cxr.plugin"]
    if not names:
        return f"its entry point is not in the metadata of this environment. Run: pip install {_US}"
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "")
    return f"VERL_USE_EXTERNAL_PLUGINS={policy} keeps it out. Unset it, or set it to {names[0]}"
