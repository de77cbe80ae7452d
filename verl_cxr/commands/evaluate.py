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
"""``verl-cxr evaluate``: numbers about what a model wrote, each with its interval.

``reports`` reads predictions, one ``{"id": study id, "response": text}`` a line and a file a seed, and writes one JSON
object: ``metrics`` (:meth:`verl_cxr.evaluate.reports.MetricResult.to_dict`, or ``{"skipped": why}``), ``official`` with
``--official``, and what was compared with what. Numbers lie in [0, 1] there; the table prints them times 100.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, cast

import orjson
import typer
from rich.console import Console
from rich.table import Table

from verl_cxr.commands.shared import stop
from verl_cxr.evaluate.metrics import METRICS, MetricOptions, Skipped
from verl_cxr.evaluate.metrics.facts import NoFact
from verl_cxr.evaluate.official import KEYS, OfficialError, OfficialScores, score
from verl_cxr.evaluate.predictions import Predictions, Reference, References, read_predictions, references
from verl_cxr.evaluate.reports import MetricResult, evaluate
from verl_cxr.files import RecordError, replacing
from verl_cxr.study import read_studies

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Numbers about what a model wrote, each with its interval.")

Result = MetricResult | Skipped


@app.callback()
def _evaluate() -> None:
    """Numbers about what a model wrote, each with its interval."""


@app.command()
def reports(
    predictions: Annotated[
        list[Path],
        typer.Option(help='Rows {"id", "response"} (JSONL); once for each seed.', exists=True, dir_okay=False),
    ],
    studies: Annotated[Path, typer.Option(help="Studies with reports (JSONL).", exists=True, dir_okay=False)],
    out: Annotated[Path, typer.Option(help="Where to write the numbers (JSON).", dir_okay=False)],
    metrics: Annotated[
        str, typer.Option(help=f"Some of {','.join(METRICS)}, with commas.")
    ] = "bleu2,bleu4,rougeL,meteor,bertscore,facts",
    facts: Annotated[
        str | None, typer.Option(help="Fact scorer: radgraph-xl[:FOLDER], lexicon, precomputed:GRAPHS.jsonl or exact.")
    ] = None,
    no_fact: Annotated[
        str, typer.Option(help="F1 where neither text has a fact: 0 (as the radgraph package), 1 or skip.")
    ] = "0",
    bertscore: Annotated[
        Path | None, typer.Option(help="Folder of distilbert-base-uncased. Default: the hub's cache.", file_okay=False)
    ] = None,
    reference: Annotated[str, typer.Option(help="Reports to compare with: both, findings or impression.")] = "both",
    split: Annotated[str | None, typer.Option(help="Only the studies of this split.")] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="Another system's predictions, for a paired bootstrap.", exists=True, dir_okay=False),
    ] = None,
    samples: Annotated[
        Path | None, typer.Option(help="Where to write the numbers of each report (JSONL).", dir_okay=False)
    ] = None,
    official: Annotated[
        bool, typer.Option("--official", help="Also RadEval's numbers, from an environment made for it if need be.")
    ] = False,
) -> None:
    """Score predicted reports with the metrics that papers print."""
    try:
        names = list(dict.fromkeys(name.strip() for name in metrics.split(",") if name.strip()))
        options = MetricOptions(facts, cast(NoFact, no_fact), None if bertscore is None else str(bertscore))
        known = references(read_studies(studies), cast(Reference, reference), split=split)
        systems = [read_predictions(path, known) for path in predictions]
        others = [read_predictions(path, known) for path in against or []]
    except (RecordError, OSError) as error:
        raise stop(error, code=1) from None
    except ValueError as error:
        raise stop(error, code=2) from None
    try:
        results = evaluate(known, systems, names, against=others, options=options)
    except ValueError as error:
        raise stop(error, code=2) from None
    try:
        theirs = score([file.pairs(known) for file in systems], names) if official else None
        with replacing(out) as file:
            found = _document(known, studies, systems, others, results, theirs)
            file.write(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        if samples is not None:
            with replacing(samples) as file:
                for row in _sample_rows(known, systems, results):
                    file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    except (OfficialError, OSError) as error:
        raise stop(error, code=1) from None
    console = Console()
    console.print(_table(known, results, theirs, others))
    for line in _notes(known, [*systems, *others], results, theirs):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    typer.echo(f"wrote {out}")


def _document(
    known: References,
    studies: Path,
    systems: Sequence[Predictions],
    others: Sequence[Predictions],
    results: Sequence[Result],
    theirs: OfficialScores | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "studies": str(studies),
        "n": len(known.texts),
        "without_reference": list(known.without),
        "predictions": [{"file": str(file.path), "answers": file.answers} for file in systems],
        "against": [{"file": str(file.path), "answers": file.answers} for file in others],
        "metrics": {
            result.name: {"skipped": result.reason} if isinstance(result, Skipped) else result.to_dict()
            for result in results
        },
        "versions": {"verl-cxr": version("verl-cxr"), "python": platform.python_version()},
    }
    if theirs is not None:
        document["official"] = {"values": theirs.values, "skipped": theirs.skipped, "versions": theirs.versions}
    return document


def _sample_rows(
    known: References, systems: Sequence[Predictions], results: Sequence[Result]
) -> Iterator[dict[str, Any]]:
    computed = [result for result in results if isinstance(result, MetricResult)]
    for number, file in enumerate(systems):
        for place, study_id in enumerate(known.texts):
            yield {"id": study_id, "file": str(file.path)} | {
                result.name: result.samples[number][place] for result in computed
            }


def _table(
    known: References,
    results: Sequence[Result],
    theirs: OfficialScores | None,
    others: Sequence[Predictions],
) -> Table:
    table = Table("metric", title=f"{len(known.texts)} reports, numbers times 100")
    table.add_column("value", justify="right")
    table.add_column("95 %", justify="right")
    official = dict(theirs.values) if theirs is not None else {}
    if theirs is not None:
        table.add_column("RadEval", justify="right")
    if others:
        table.add_column("against", justify="right")
        table.add_column("difference", justify="right")
    for result in results:
        if isinstance(result, Skipped):
            table.add_row(result.name, "skipped")
            continue
        cells = [
            result.label,
            _hundreds(fmean(result.seeds)) + ("" if result.spread is None else f" ± {_hundreds(result.spread)}"),
            f"{_hundreds(result.estimate.low)} to {_hundreds(result.estimate.high)}",
        ]
        if theirs is not None:
            key = KEYS.get(result.name, "")
            same = not key.startswith("radgraph") or result.label.startswith("RadGraph")
            cells.append(_official(official.pop(key)) if same and key in official else "-")
        if result.difference is not None:
            change = result.difference
            cells.append(_hundreds(fmean(result.against)))
            cells.append(f"{_hundreds(change.mean)} [{_hundreds(change.low)}, {_hundreds(change.high)}]")
        table.add_row(*cells)
    for key, values in official.items():
        table.add_row(f"RadEval's {key}", "", "", _official(values))
    return table


def _official(values: Sequence[float]) -> str:
    return f"{100 * fmean(values):.2f}"


def _hundreds(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


def _notes(
    known: References, files: Sequence[Predictions], results: Sequence[Result], theirs: OfficialScores | None
) -> Iterator[str]:
    """What the numbers do not say by themselves."""
    for file in files:
        if file.answers < len(file.texts):
            yield f"{file.path}: {file.answers} of {len(file.texts)} responses have an <answer>; others count whole"
    if known.without:
        yield f"{len(known.without)} studies without a report to compare with were left out"
    made_by: dict[str, list[str]] = {}
    for result in results:
        if isinstance(result, MetricResult):
            made_by.setdefault(result.made_by, []).append(result.label)
    for maker, labels in made_by.items():
        yield f"{', '.join(labels)}: {maker}"
    for result in results:
        if isinstance(result, Skipped):
            yield f"{result.name} was not computed: {result.reason}"
    for name, reason in ({} if theirs is None else theirs.skipped).items():
        yield f"RadEval's {name} was not computed: {reason}"
