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
"""``make bench``: every benchmark, or those named: ``python -m tests.benchmarks trainer radgraph``."""

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    """The benchmark modules: those with a ``main``."""
    return sorted(path.stem for path in HERE.glob("*.py") if "\ndef main(" in path.read_text())


for name in sys.argv[1:] or names():
    importlib.import_module(f"tests.benchmarks.{name}").main()
