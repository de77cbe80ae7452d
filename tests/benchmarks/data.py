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
"""Building a miniature of MIMIC-CXR and Chest ImaGenome with 5,000 and with 20,000 studies.

The command is run as a user runs it, in a process of its own: studies a second, and peak memory, which must not grow
with the number of studies. Then what the text of a study costs, from its report and scene graph to the rows of all
three stages, against reading the same scene graphs and parsing them with orjson and doing nothing with them.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from tests.data.mimic_tree import Tree, make_tree
from verl_cxr.data.adapters import BuildContext, load_adapters
from verl_cxr.data.members import read_place
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions, UnusableStudyError, make_row

SIZES = (5_000, 20_000)
WORKERS = (1, 2)
RATIO_GOAL = 3.0
TURN = 256  # films
_LIMIT = 1 << 24
_OPTIONS = RowOptions("bench")
_CHILD = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def main() -> None:
    """Print both tables."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="verl-cxr-bench-") as scratch:
        table = Table(
            "studies",
            "films read",
            "workers",
            "seconds",
            "films/s",
            "peak MiB of a process",
            title="data build mimic_cxr",
        )
        for size in SIZES:
            tree = make_tree(Path(scratch) / str(size), size, seed=0)
            for workers in WORKERS:
                seconds, peak, rows = run(tree, Path(scratch) / f"out-{size}-{workers}", workers)
                table.add_row(
                    f"{size:,}", f"{rows:,}", str(workers), f"{seconds:.1f}", f"{rows / seconds:,.0f}", f"{peak:.0f}"
                )
        console.print(table)
        console.print(text_table(tree))


def run(tree: Tree, out: Path, workers: int) -> tuple[float, float, int]:
    """Seconds of a build of all three stages, the most memory that one of its processes took in MiB, and films."""
    command = [sys.executable, "-m", "verl_cxr.cli", "data", "build", "mimic_cxr", "--root", str(tree.mimic)]
    command += ["--imagenome", str(tree.imagenome), "--out", str(out), "--workers", str(workers)]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _CHILD, *command], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    rows = sum(pq.read_metadata(path).num_rows for path in out.glob("sft_*.parquet"))
    return seconds, int(done.stdout) / 1024, rows


def text_table(tree: Tree) -> Table:
    """What a film's text costs, in microseconds of one core, against reading and parsing its scene graph and no more.

    The three take turns, some hundred films each, and every film comes once, as in a build: no cache knows its report.
    """
    context = BuildContext(out=tree.mimic, seed=0)
    films = list(load_adapters()["mimic_cxr"].studies(context, root=tree.mimic, imagenome=tree.imagenome))
    films = [film for film in films if film.graph is not None and film.leak is None]
    text_s = read_s = parse_s = 0.0
    gc.disable()  # as the builder does in a part; it would look for cycles in what the parser makes
    for start in range(0, len(films), TURN):
        turn = films[start : start + TURN]
        times = [time.process_time()]
        graphs = [data for film in turn if (data := _readable(film.graph)) is not None]
        times.append(time.process_time())
        for data in graphs:
            _parse(data)
        times.append(time.process_time())
        for film in turn:
            _rows(film, context)
        times.append(time.process_time())
        gc.collect()
        if start:  # the first turn loads vocabularies and rules
            read_s, parse_s = read_s + times[1] - times[0], parse_s + times[2] - times[1]
            text_s += times[3] - times[2]
    gc.enable()
    each = 1e6 / (len(films) - TURN)
    table = Table("", "us a film", title=f"Text of {len(films) - TURN:,} films, without looking at their images")
    table.add_row("report and scene graph to the rows of three stages", f"{text_s * each:.0f}")
    table.add_row("read the scene graph from the zip file", f"{read_s * each:.0f}")
    table.add_row("parse it with orjson", f"{parse_s * each:.0f}")
    table.add_row("text / (read and parse)", f"{text_s / (read_s + parse_s):.2f} (goal: {RATIO_GOAL:.0f})")
    table.add_row("(text - read) / parse", f"{(text_s - read_s) / parse_s:.2f}")
    return table


def _rows(film: Any, context: BuildContext) -> None:
    study = film.read(context)
    for stage in Stage if study is not None else ():
        try:
            make_row(stage, study, 0, _OPTIONS)
        except UnusableStudyError:
            continue


def _parse(data: bytes) -> None:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return


def _readable(place: Any) -> bytes | None:
    try:
        return read_place(place, limit=_LIMIT)
    except (OSError, ValueError):
        return None
