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
"""From an adapter's records to verl's parquet files.

1. The adapter's records, in its order, are cut into parts of some hundred; workers turn each into rows
   (`verl_cxr.data.parts`). A part that an interrupted build has made is not made again.
2. The rows of a sample are chosen, by ids and seed alone; a second row of one id is dropped.
3. Films are scaled, converted or embedded, part by part, for the chosen rows only.
4. The parts are streamed, in their order, into one parquet file a stage and split, and published with the card.

So the same adapter, options and seed give the same bytes, whatever the workers, the engine and the interruptions, and
the memory does not grow with the data set beyond some 20 bytes a row.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from verl_cxr.data.adapters import Adapter, BuildContext
from verl_cxr.data.card import Provenance, write_card
from verl_cxr.data.engine import Engine, InProcess
from verl_cxr.data.maker import RowMaker, StudyRows
from verl_cxr.data.parquet import RowFiles
from verl_cxr.data.parts import FACETS, PRIORITY, PartMaker, digest
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions
from verl_cxr.data.sample import Sample, choose, strata
from verl_cxr.data.workshop import Workshop

__all__ = ["EmptyBuildError", "Plan", "Progress", "build", "build_rows"]

PART_ITEMS = 256
TRAIN = "train"

Progress = Callable[[str, int], None]
"""Called with what is being done (``studies``, ``films``, ``rows``) and how many more of them are."""


class EmptyBuildError(ValueError):
    """No study gave a row: the funnel says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a build goes about it.

    Attributes:
        sample: which of the training rows to keep.
        engine: who does the work; without influence on the result.
        keep_records: write the records as JSONL too (`studies.jsonl`).
        shard_rows: rows of a file; the default depends on whether films are embedded.
        restart: throw away an interrupted build instead of continuing it.
    """

    sample: Sample = field(default_factory=Sample)
    engine: Engine = field(default_factory=InProcess)
    keep_records: bool = False
    shard_rows: int | None = None
    restart: bool = False


def build(
    adapter: Adapter,
    adapter_options: Mapping[str, Any],
    context: BuildContext,
    *,
    stages: Sequence[Stage],
    rows: RowOptions,
    max_side: int | None = None,
    decode: bool = False,
    validate_fraction: float = 0.0,
    guard: Sequence[Path] = (),
    plan: Plan | None = None,
    command: Sequence[str] = (),
    progress: Progress = lambda what, more: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> dict[str, int]:
    """Build grounded studies: `{stage}_{split}.parquet` and the card.

    Args:
        max_side: longest side of a film in pixels; longer ones are scaled down into `OUT/films`.
        decode, validate_fraction, guard: see `StudyRows`.

    The other arguments, the result and the errors are those of `build_rows`.
    """
    maker = StudyRows(
        list(stages),
        rows,
        films=context.out / (f"films-{max_side}" if max_side else "films"),
        lateral=context.lateral,
        max_side=max_side,
        decode=decode,
        validate_fraction=validate_fraction,
        seed=context.seed,
        guard=tuple(guard),
    )
    return build_rows(
        adapter, adapter_options, context, maker=maker, plan=plan, command=command, progress=progress, say=say
    )


def build_rows(
    adapter: Adapter,
    adapter_options: Mapping[str, Any],
    context: BuildContext,
    *,
    maker: RowMaker,
    plan: Plan | None = None,
    command: Sequence[str] = (),
    progress: Progress = lambda what, more: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> dict[str, int]:
    """Build the rows that `maker` makes of the adapter's records.

    Args:
        context: its funnel is filled in.
        command: recorded in the card.
        progress: called as the work goes on.
        say: called with what the user should know: an interrupted build continued, or given up.

    Returns:
        Rows by file name.

    Raises:
        EmptyBuildError: no row came out. The folder keeps what it held before.
        RecordError: a record is broken and the build, or its adapter, is strict. The folder keeps what it held before;
            the parts made so far are kept for the next try.
        OtherSettingsError, BusyFolderError: see `verl_cxr.data.workshop`.
    """
    plan = plan or Plan()
    sample = plan.sample
    settings: dict[str, Any] = {"adapter": adapter.name, "seed": context.seed}
    settings |= {"limit": sample.limit, "fraction": sample.fraction, "stratify": list(sample.stratify)}
    settings |= maker.settings()
    settings |= {name: _plain(value) for name, value in adapter_options.items()}
    keep_records = plan.keep_records or adapter.makes_films
    working = settings | {"keep_records": keep_records, "versions": [version("verl-cxr"), version("pyarrow")]}
    with Workshop.opened(context.out) as shop:
        if shop.complete():
            say("the files of an earlier build, which was interrupted when it was done, were put in place")
        if sentence := shop.begin(working, _inputs(adapter_options.values()), restart=plan.restart):
            say(sentence)
        work = PartMaker(
            shop.parts, maker, context.out, context.seed, context.strict, context.lateral, sample.stratify, keep_records
        )
        count = _make_parts(work, adapter.studies(context, **adapter_options), plan.engine, progress)
        provenance = _totals(work, count, context)
        chosen = _choose(work, count, sample, context)
        kind = _film(work, chosen, plan.engine, context, progress)
        files = _merge(work, chosen, kind, shop.new_final(), plan, context, progress)
        if not files:
            shop.parts.remove()
            raise EmptyBuildError(f"none of {context.funnel.read} studies gave a row")
        if keep_records:
            _join(map(shop.parts.lines, range(count)), shop.final / maker.records_name)
        write_card(
            shop.final,
            command=command,
            settings=settings,
            files=files,
            funnel=context.funnel,
            provenance=provenance,
        )
        shop.publish()
    return {name: rows for name, (rows, _) in files.items()}


def _make_parts(work: PartMaker, records: Iterable[Any], engine: Engine, progress: Progress) -> int:
    """Make the parts that are not there yet, and return how many there are in all."""
    count, first = 0, True

    def missing() -> Iterator[tuple[int, list[Any], str]]:
        nonlocal count, first
        for items in _batches(records, PART_ITEMS):
            ids = digest(item.id if hasattr(item, "read") else work.maker.record_id(item) for item in items)
            state = work.parts.state(count)
            count += 1
            if state is not None and state["ids"] == ids:
                progress("studies", len(items))
                continue
            if first:
                work.parts.remove(kind="filmed")  # which rows were chosen may change
                first = False
            yield count - 1, items, ids

    for made in engine.map(work.make, missing()):
        progress("studies", made)
    for number in work.parts.numbers():
        if number >= count:
            work.parts.remove(number)
    return count


def _totals(work: PartMaker, count: int, context: BuildContext) -> Provenance:
    """Add the parts' counts to the funnel, in the order of the parts, and return where the records came from."""
    provenance = Provenance()
    for number in range(count):
        state = _state(work, number)
        context.funnel.merge(type(context.funnel).from_dict(state["funnel"]))
        provenance.merge(state["provenance"])
    return provenance


Chosen = dict[str, npt.NDArray[np.bool_]]
"""Which rows of each stage to keep, over all parts in their order; shape [rows]."""


def _choose(work: PartMaker, count: int, sample: Sample, context: BuildContext) -> Chosen:
    chosen: Chosen = {}
    for stage in work.maker.stages:
        priorities, train, facets = _working_columns(work, count, stage)
        kept = np.zeros(len(priorities), dtype=np.bool_)
        kept[np.unique(priorities, return_index=True)[1]] = True  # a hash of the id: equal means the same id
        for _ in range(int((~kept).sum())):
            context.funnel.drop("id occurs before", stage=stage)
        candidates = np.flatnonzero(kept & train)
        wanted = sample.count(stage, len(candidates))
        if wanted < len(candidates):
            groups = strata([facets[row] for row in candidates]) if sample.stratify else None
            left_out = candidates[~choose(priorities[candidates], wanted, groups)]
            kept[left_out] = False
            for _ in left_out:
                context.funnel.drop("not drawn", stage=stage)
        chosen[stage] = kept
    return chosen


def _working_columns(
    work: PartMaker, count: int, stage: str
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_], list[Any]]:
    """Priority, whether it is a training row, and values of the facets, of every row of a stage."""
    priorities: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    train: list[npt.NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    facets: list[Any] = []
    for number in range(count):
        table = work.parts.table(number, stage, columns=[PRIORITY, FACETS, "extra_info"])
        if table is None:
            continue
        priorities.append(table[PRIORITY].to_numpy())
        train.append(np.asarray(pc.equal(_splits(table), TRAIN)))
        if work.facets:
            facets += table[FACETS].to_pylist()
    return np.concatenate(priorities), np.concatenate(train), facets


def _splits(table: pa.Table) -> pa.ChunkedArray:
    return pc.struct_field(table["extra_info"], "split")


def _film(work: PartMaker, chosen: Chosen, engine: Engine, context: BuildContext, progress: Progress) -> str:
    """Write or embed films where any part needs it, and return which kind of part holds the rows then."""
    masks = list(_masks(work, chosen))
    if not any(_state(work, number)["films"] for number, _ in masks):
        return "made"

    def missing() -> Iterator[tuple[int, Chosen]]:
        for number, mask in masks:
            if work.parts.state(number, "filmed") is None:
                yield number, mask
            else:
                progress("films", 1)

    for _ in engine.map(work.film, missing()):
        progress("films", 1)
    for number, _ in masks:
        context.funnel.merge(type(context.funnel).from_dict(_state(work, number, "filmed")["funnel"]))
    return "filmed"


def _masks(work: PartMaker, chosen: Chosen) -> Iterator[tuple[int, Chosen]]:
    """The parts with their own share of what was chosen."""
    at = dict.fromkeys(chosen, 0)
    for number in work.parts.numbers():
        rows = _state(work, number)["rows"]
        yield number, {stage: chosen[stage][at[stage] : at[stage] + length] for stage, length in rows.items()}
        for stage, length in rows.items():
            at[stage] += length


def _merge(
    work: PartMaker,
    chosen: Chosen,
    kind: str,
    folder: Path,
    plan: Plan,
    context: BuildContext,
    progress: Progress,
) -> dict[str, tuple[int, str]]:
    """Stream the parts into the final files, and return their rows and SHA-256 by name."""
    files: dict[str, tuple[int, str]] = {}
    for stage in work.maker.stages:
        columns = work.maker.schema(stage).names
        out = RowFiles(folder, shard_rows=plan.shard_rows)
        for number, masks in _masks(work, chosen):
            table = work.parts.table(number, stage, kind, columns)
            if table is None:
                continue
            if kind == "made":
                table = table.filter(pa.array(masks[stage]))
            splits = _splits(table)
            for split in dict.fromkeys(splits.to_pylist()):
                rows = table.filter(pc.equal(splits, split))
                out.add(stage, split, rows)
                for _ in range(rows.num_rows):
                    context.funnel.keep(stage, split)
            progress("rows", table.num_rows)
        files |= out.finish()
    return files


def _state(work: PartMaker, number: int, kind: str = "made") -> dict[str, Any]:
    state = work.parts.state(number, kind)
    if state is None:
        raise FileNotFoundError(f"part {number} vanished from {work.parts.folder} while the build ran")
    return state


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch


def _join(sources: Iterable[Path], target: Path) -> None:
    with target.open("wb") as out:
        for source in sources:
            out.write(source.read_bytes())


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, os.PathLike) else value


def _inputs(values: Iterable[Any]) -> dict[str, list[int]]:
    """Size and time of the files and folders that the options name: what changes when an input is replaced."""
    paths = [Path(value) for value in values if isinstance(value, os.PathLike)]
    return {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in paths if path.exists()}
