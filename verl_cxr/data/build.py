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
"""From an adapter's studies to verl's parquet files, in one pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from verl_cxr.data.adapters import Adapter, BuildContext
from verl_cxr.data.card import CARD_NAME, Provenance, write_card
from verl_cxr.data.parquet import ParquetSet
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions, UnusableStudyError, check_film, make_row, split_name
from verl_cxr.study import Study, write_studies

__all__ = ["EmptyBuildError", "build"]


class EmptyBuildError(ValueError):
    """No study gave a row: the funnel says why."""


def build(
    adapter: Adapter,
    adapter_options: Mapping[str, Any],
    context: BuildContext,
    *,
    stages: Sequence[Stage],
    rows: RowOptions,
    lateral: bool = False,
    limit: int | None = None,
    command: Sequence[str] = (),
    progress: Callable[[], None] = lambda: None,
) -> dict[str, int]:
    """Write `{stage}_{split}.parquet` and the card; for an adapter that makes films, `studies.jsonl` too.

    Args:
        lateral: keep lateral films; else they are dropped and counted, as the paper does.
        limit: use at most so many studies, drawn with the context's seed and kept in their order.
        command: recorded in the card.
        progress: called once a study.

    Returns:
        Rows by file name.

    Raises:
        EmptyBuildError: no row came out. The folder keeps what it held before.
        StudyError: a record is broken; nothing is written.
    """
    out, funnel, provenance = context.out, context.funnel, Provenance()
    context.lateral = lateral
    studies = adapter.studies(context, **adapter_options)
    if limit is not None:
        studies = iter(_sample(studies, limit, context.seed))
    kept: list[Study] = []
    with ParquetSet(out, embed_images=rows.embed_images) as files:
        for study in studies:
            funnel.read += 1
            provenance.add(study)
            if adapter.makes_films:
                kept.append(study)
            _add(study, files, context, stages=stages, rows=rows, lateral=lateral)
            progress()
        if not funnel.rows:
            raise EmptyBuildError(f"none of {funnel.read} studies gave a row")
    if adapter.makes_films:
        write_studies(out / "studies.jsonl", kept)
    _remove_stale(out, files.counts)
    settings = {"adapter": adapter.name, "seed": context.seed, "limit": limit, "lateral": lateral}
    settings |= {"stages": [stage.value for stage in stages], "box_frame": rows.trace.frame}
    settings |= {"data_source": rows.data_source, "embed_images": rows.embed_images}
    settings |= {name: str(value) if isinstance(value, Path) else value for name, value in adapter_options.items()}
    write_card(out, command=command, settings=settings, files=files.counts, funnel=funnel, provenance=provenance)
    return files.counts


def _add(
    study: Study, files: ParquetSet, context: BuildContext, *, stages: Iterable[Stage], rows: RowOptions, lateral: bool
) -> None:
    funnel = context.funnel
    if study.view == "LATERAL" and not lateral:
        funnel.drop("lateral view")
        return
    try:
        check_film(study)
    except UnusableStudyError as reason:
        funnel.drop(str(reason))
        return
    split = split_name(study)
    for stage in stages:
        try:
            row = make_row(stage, study, files.next_index(stage, split), rows)
        except UnusableStudyError as reason:
            funnel.drop(str(reason), stage=stage.value)
            continue
        files.add(stage, split, row)
        funnel.keep(stage.value, split)


def _sample(studies: Iterator[Study], limit: int, seed: int) -> list[Study]:
    """Reservoir sampling: `limit` studies, each equally likely, in the order in which they came."""
    rng = random.Random(seed)
    chosen: list[tuple[int, Study]] = []
    for position, study in enumerate(studies):
        if position < limit:
            chosen.append((position, study))
        elif (place := rng.randrange(position + 1)) < limit:
            chosen[place] = (position, study)
    return [study for _, study in sorted(chosen, key=lambda pair: pair[0])]


def _remove_stale(out: Path, written: Mapping[str, int]) -> None:
    """Remove parquet files that an earlier build in this folder lists in its card and this one did not write."""
    card = out / CARD_NAME
    if not card.exists():
        return
    for name in orjson.loads(card.read_bytes())["files"]:
        if name not in written and name.endswith(".parquet"):
            (out / Path(name).name).unlink(missing_ok=True)
