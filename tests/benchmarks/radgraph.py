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
"""One step of GRPO through RadGraph-XL: one call of the package a pair, against our scorer, in one run on one core.

The model has RadGraph-XL's genuine architecture and size with random weights (none can be had without network), which
changes no amount of work. The package is timed on a sample of the step's pairs and extrapolated; ours does the whole
step. Both halves of the package's sample stand around our run. Times are CPU seconds of this process, which has one
thread: on a machine with nothing else to do they are those of the clock, and elsewhere they do not count others' work.

Then what the cascaded reward costs without RadGraph, against parsing the same JSON and doing nothing with it.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "facts"))
from phrases import REGIONS, finding, step
from radgraph_model import XL_SIZES, build_radgraph

from reward_plugins.cascade import CascadeOptions, prepare
from verl_cxr.anatomy import load_vocabulary
from verl_cxr.facts import FactGraph, GraphScorer
from verl_cxr.facts.radgraph_compat import load_package
from verl_cxr.facts.radgraph_options import RadGraphOptions
from verl_cxr.facts.reader import open_reader
from verl_cxr.geometry import Box, pixel_frame
from verl_cxr.study import RegionFinding, Report, Study
from verl_cxr.trace import Trace, TraceFormat, parse, render

SAMPLE = 60  # pairs that the package is timed on
UNIQUE = 320  # distinct texts that both read
GOALS = {"mixed": 25.0, "unique": 2.0, "cascade": 10.0}


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    console = Console()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        console.print(radgraph_table(Path(folder)))
    console.print(cascade_table())


def radgraph_table(folder: Path) -> Table:
    """Seconds of one step, and of texts that are all distinct."""
    draw = random.Random(0)
    pairs = step()
    texts = sorted({text for pair in pairs for text in pair})
    sample = draw.sample(pairs, SAMPLE)
    others = draw.sample(texts, UNIQUE)
    build_radgraph(folder, texts=texts, sizes=XL_SIZES)
    options = RadGraphOptions(weights=str(folder), store=str(folder / "facts.sqlite"))
    with contextlib.redirect_stdout(io.StringIO()):
        naive = load_package().F1RadGraph(
            reward_level="partial", model_type="radgraph-xl", model_cache_dir=str(folder), cuda=-1
        )
    reader = open_reader(options)
    naive(hyps=["warm up"], refs=["warm up"])
    reader.annotator(["warm up"])

    timed = Timed()
    one_call_a_pair = lambda part: [naive(hyps=[a], refs=[b])[0] for a, b in part]  # noqa: E731
    scores = timed("package", one_call_a_pair, sample[: SAMPLE // 2])
    scorer = GraphScorer(reader, name="radgraph-xl")
    timed("step", scorer.score, pairs)
    scores += timed("package", one_call_a_pair, sample[SAMPLE // 2 :])
    timed("again", scorer.score, pairs)
    later = open_reader(options)  # as a later run, or another process, would
    timed("store", GraphScorer(later, name="radgraph-xl").score, pairs)

    unique = {}
    for half in (others[: UNIQUE // 2], others[UNIQUE // 2 :]):
        unique |= dict(zip(half, timed("unique package", naive.radgraph, half).values(), strict=True))
        timed("unique", reader.annotator.read, half)
    alone = reader.annotator.alone
    equal = sum(FactGraph.from_dict(graph) == reader([text])[0] for text, graph in unique.items())
    same = sum((ours or 0.0) == theirs for ours, theirs in zip(scorer.score(sample), scores, strict=True))
    for opened in (reader, later):
        opened.close()

    naive_step = timed["package"] / SAMPLE * len(pairs)
    table = Table(
        title=f"RadGraph-XL (random weights, genuine size), one CPU core: {len(pairs):,} pairs, "
        f"{len(texts):,} distinct texts"
    )
    for column in ("", "package", "ours", "ratio", "goal"):
        table.add_column(column)
    table.add_row("one step, s", f"{naive_step:,.0f} *", *_compare(naive_step, timed["step"], GOALS["mixed"]))
    table.add_row("  the same step again (memory), s", "", *_compare(naive_step, timed["again"], None))
    table.add_row("  in a later run (store), s", "", *_compare(naive_step, timed["store"], None))
    table.add_row(
        f"{UNIQUE} distinct texts, s",
        f"{timed['unique package']:.1f}",
        *_compare(timed["unique package"], timed["unique"], GOALS["unique"]),
    )
    table.add_row("identical annotations", "", f"{equal} of {len(unique)}", "", "all")
    table.add_row("identical F1 of the sampled pairs", "", f"{same} of {SAMPLE}", "", "all")
    table.caption = (
        f"* {SAMPLE} pairs timed ({timed['package'] / SAMPLE:.3f} s a pair), times {len(pairs):,}. "
        f"Mean F1 of these: {statistics.fmean(scores):.3f}. Read alone, since undecided in a batch: {alone} texts."
    )
    return table


class Timed(dict[str, float]):
    """CPU seconds by name, summed over calls."""

    def __call__(self, name: str, call: Callable[[Any], Any], argument: Any) -> Any:
        start = time.process_time()
        result = call(argument)
        self[name] = self.get(name, 0.0) + time.process_time() - start
        return result


def _compare(theirs: float, ours: float, goal: float | None) -> tuple[str, str, str]:
    return f"{ours:,.1f}" if ours >= 10 else f"{ours:.2f}", f"{theirs / ours:,.1f}x", f"{goal:g}x" if goal else ""


def cascade_table() -> Table:
    """Microseconds of one response of 38 regions."""
    study, response = _response()
    frame = TraceFormat().frame_for(study.width, study.height)
    options = CascadeOptions()
    inside = response[len("<think>") : response.index("</think>")]

    def cascade() -> None:
        prepared = prepare(response, study, options, frame)
        prepared.finish([1.0] * len(prepared.pairs))

    calls = {
        "json.loads of its regions": lambda: json.loads(inside),
        "parse": lambda: parse(response, frame),
        "parse, match, IoU, reward": cascade,
    }
    costs = _microseconds(list(calls.values()))
    table = Table(
        title=f"The cascade without a fact scorer: one response, {REGIONS} regions, {len(response):,} characters"
    )
    for column in ("", "\u00b5s", "times json.loads", "goal"):
        table.add_column(column)
    for name, cost in zip(calls, costs, strict=True):
        goal = f"at most {GOALS['cascade']:g}" if name.endswith("reward") else ""
        table.add_row(name, f"{cost:.0f}", f"{cost / costs[0]:.1f}", goal)
    return table


def _response() -> tuple[Study, str]:
    draw = random.Random(0)
    names = list(load_vocabulary().regions)[:REGIONS]
    pixels = pixel_frame(1024, 1024)

    def box() -> Box:
        x, y = draw.uniform(0, 700), draw.uniform(0, 700)
        return Box(x, y, x + draw.uniform(50, 300), y + draw.uniform(50, 300), pixels)

    regions = tuple(RegionFinding(name, box(), finding(draw)) for name in names)
    study = Study("s", None, 1024, 1024, "PA", "train", Report("The lungs are clear.", None, None), regions, "", "")
    said = tuple(
        RegionFinding(region.name, region.box if draw.random() < 0.7 else box(), finding(draw)) for region in regions
    )
    return study, render(Trace(said, "The lungs are clear."), TraceFormat().frame_for(1024, 1024))


def _microseconds(calls: Sequence[Callable[[], object]], *, repeat: int = 1000) -> list[float]:
    """The least time of each; they take turns, so that none has the machine at its worst."""
    least = [math.inf] * len(calls)
    for _ in range(repeat):
        for i, call in enumerate(calls):
            start = time.perf_counter_ns()
            call()
            least[i] = min(least[i], (time.perf_counter_ns() - start) / 1000)
    return least


if __name__ == "__main__":
    main()
