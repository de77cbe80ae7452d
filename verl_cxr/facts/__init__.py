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
"""Facts of a radiology text, and how well those of two texts agree.

A scorer is chosen by name with `make_scorer`, stamps its name on every result, and is never replaced by another in
silence. Scorers that compare fact graphs are one `GraphScorer` over a function that annotates texts.
"""

from verl_cxr.facts.f1 import CASES, LEVELS, Case, Level, fact_set, graph_f1
from verl_cxr.facts.factory import make_scorer
from verl_cxr.facts.graph import Entity, FactGraph, GraphError
from verl_cxr.facts.scorer import Annotate, FactScorer, FactServiceError, GraphScorer

__all__ = [
    "CASES",
    "LEVELS",
    "Annotate",
    "Case",
    "Entity",
    "FactGraph",
    "FactScorer",
    "FactServiceError",
    "GraphError",
    "GraphScorer",
    "Level",
    "fact_set",
    "graph_f1",
    "make_scorer",
]
