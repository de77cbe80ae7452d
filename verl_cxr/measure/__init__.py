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
"""Deterministic measurements of a frontal film, and the validity gate that decides whether they may be shown."""

from verl_cxr.measure.evidence import Evidence, EvidenceError, gather, judge
from verl_cxr.measure.gate import GateDecision, GateError, GateReason
from verl_cxr.measure.masks import MASK_BACKENDS, MaskBackend, MaskError, Outlines, make_masks
from verl_cxr.measure.measurement import MEASUREMENTS, TITLES, UNITS, Line, Measurement, MeasurementError
from verl_cxr.measure.thresholds import Thresholds, load_thresholds
from verl_cxr.measure.view import VIEW_BACKENDS, ViewBackend, ViewError, ViewReading, certain, make_view

__all__ = [
    "MASK_BACKENDS",
    "MEASUREMENTS",
    "TITLES",
    "UNITS",
    "VIEW_BACKENDS",
    "Evidence",
    "EvidenceError",
    "GateDecision",
    "GateError",
    "GateReason",
    "Line",
    "MaskBackend",
    "MaskError",
    "Measurement",
    "MeasurementError",
    "Outlines",
    "Thresholds",
    "ViewBackend",
    "ViewError",
    "ViewReading",
    "certain",
    "gather",
    "judge",
    "load_thresholds",
    "make_masks",
    "make_view",
]
