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
"""Seeded synthetic chest films with exact masks, boxes, findings and reports."""

from verl_cxr.data.phantom.body import Anatomy, sample_anatomy
from verl_cxr.data.phantom.generate import (
    DEFAULT_REGIONS,
    Phantom,
    PhantomOptions,
    PhantomTruth,
    iter_phantoms,
    make_phantom,
    mask_box,
)
from verl_cxr.data.phantom.lesions import Lesion, sample_lesions

__all__ = [
    "DEFAULT_REGIONS",
    "Anatomy",
    "Lesion",
    "Phantom",
    "PhantomOptions",
    "PhantomTruth",
    "iter_phantoms",
    "make_phantom",
    "mask_box",
    "sample_anatomy",
    "sample_lesions",
]
