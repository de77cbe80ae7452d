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
"""verl's own data sets, which also take grounded studies as JSONL: `data.custom_cls` of the recipes.

A file name that ends in `.jsonl` or `.jsonl.gz` is read through the builder, into a folder below `data.cache_dir`, and
verl then reads the parquet files there: the rows are those of `verl-cxr data build jsonl`. `FILE.jsonl@train` takes one
split. The rows are made again when the file or an option changes. The options, as the builder names them::

    data:
      custom_cls: {path: pkg://verl_cxr.data.datasets, name: StudyRLDataset}
      studies: {stage: grpo, frame: relative_1000, validate_fraction: 0.05, seed: 0, keep_lateral: false,
                image_max_side: null, processor: null, data_source: jsonl, workers: 1}

Parquet files are read as verl reads them.
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
from filelock import FileLock
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset

from verl_cxr.data.adapters import BuildContext, load_adapters
from verl_cxr.data.build import Plan, build
from verl_cxr.data.card import CARD_NAME
from verl_cxr.data.engine import make_engine
from verl_cxr.data.parquet import data_files
from verl_cxr.data.processed import processed_size_of
from verl_cxr.data.prompt import Stage
from verl_cxr.data.rows import RowOptions
from verl_cxr.trace import TraceFormat

__all__ = ["NoSuchSplitError", "StudyOptions", "StudyRLDataset", "StudySFTDataset", "rows_of"]

_SUFFIXES = (".jsonl", ".jsonl.gz")


class NoSuchSplitError(ValueError):
    """A file of studies holds no usable one of the split that a run asks for."""


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """How studies become rows: `data.studies`. The names are those of `verl-cxr data build`."""

    stage: str
    frame: str = "relative_1000"
    data_source: str = "jsonl"
    validate_fraction: float = 0.0
    seed: int = 0
    keep_lateral: bool = False
    image_max_side: int | None = None
    processor: str | None = None
    workers: int = 1

    @classmethod
    def from_config(cls, config: Mapping[str, Any], stage: Stage) -> StudyOptions:
        """Read `data.studies` of a run whose stage is `stage` unless it says otherwise.

        Raises:
            ValueError: an unknown option.
        """
        given: dict[str, Any] = dict(config.get("studies") or {})
        known = [field.name for field in fields(cls)]
        if unknown := sorted(given.keys() - set(known)):
            raise ValueError(f"data.studies has no option {unknown[0]!r}: use some of {', '.join(known)}")
        given.setdefault("stage", stage.value)
        return cls(**given)


def rows_of(files: Sequence[str], options: StudyOptions, cache: Path) -> list[str]:
    """The files with every JSONL file replaced by parquet files with its rows.

    Raises:
        NoSuchSplitError: a split has no row.
        RecordError, OSError: a file of studies cannot be read.
    """
    found: list[str] = []
    for file in map(str, files):
        path, split = _parsed(file)
        found += [file] if path is None else map(str, _parquet_of(path, split, options, cache))
    return found


def _parsed(file: str) -> tuple[Path | None, str | None]:
    name, at, split = file.rpartition("@")
    if at and name.endswith(_SUFFIXES):
        return Path(name), split
    return (Path(file), None) if file.endswith(_SUFFIXES) else (None, None)


def _parquet_of(path: Path, split: str | None, options: StudyOptions, cache: Path) -> list[Path]:
    path = path.absolute()
    stat = path.stat()
    key = orjson.dumps([str(path), stat.st_size, stat.st_mtime_ns, asdict(options)])
    folder = cache / f"{path.name}-{hashlib.blake2b(key, digest_size=8).hexdigest()}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # the ranks of a node come here together
        if not (folder / CARD_NAME).exists():
            _build(path, folder, options)
    splits = _splits(folder, options.stage)
    if split is None:
        return [file for name in splits for file in data_files(folder, options.stage, name)]
    if split not in splits:
        cure = "hold some patients out with data.studies.validate_fraction=0.05, or name another file in data.val_files"
        raise NoSuchSplitError(
            f"{path} gives no {options.stage} row of the split {split!r}, but of {', '.join(splits)}"
            + (f": {cure}" if split == "validate" else "")
        )
    return data_files(folder, options.stage, split)


def _splits(folder: Path, stage: str) -> list[str]:
    names = orjson.loads((folder / CARD_NAME).read_bytes())["files"]
    splits = (name.removesuffix(".parquet").removeprefix(f"{stage}_").rpartition("-") for name in names)
    return list(dict.fromkeys(head if head and tail.isdigit() else head + dash + tail for head, dash, tail in splits))


def _build(path: Path, folder: Path, options: StudyOptions) -> None:
    context = BuildContext(out=folder, seed=options.seed, lateral=options.keep_lateral)
    rows = RowOptions(
        data_source=options.data_source,
        trace=TraceFormat(options.frame),  # type: ignore[arg-type]  # it checks
        processed_size=processed_size_of(options.processor) if options.processor else None,
    )
    files = build(
        load_adapters()["jsonl"],
        {"root": path},
        context,
        stages=[Stage(options.stage)],
        rows=rows,
        max_side=options.image_max_side,
        validate_fraction=options.validate_fraction,
        plan=Plan(engine=make_engine("local", options.workers), restart=True),
    )
    dropped = ", ".join(f"{drop['studies']} {drop['reason']}" for drop in context.funnel.to_dict()["dropped"])
    print(
        f"verl-cxr: {path}: {sum(files.values())} {options.stage} rows of {context.funnel.read} studies"
        + (f"; dropped: {dropped}" if dropped else ""),
        file=sys.stderr,
        flush=True,
    )


def _cache(config: Mapping[str, Any]) -> Path:
    return Path(os.path.expanduser(config.get("cache_dir") or "~/.cache/verl/rlhf")) / "verl-cxr"


class StudyRLDataset(RLHFDataset):
    """verl's `RLHFDataset` over parquet files and JSONL files of grounded studies."""

    def _download(self, use_origin_parquet: bool = False) -> None:
        options = StudyOptions.from_config(self.config, Stage.GRPO)
        self.data_files = rows_of(copy.copy(self.original_data_files), options, _cache(self.config))
        super()._download()


class StudySFTDataset(MultiTurnSFTDataset):
    """verl's `MultiTurnSFTDataset` over parquet files and JSONL files of grounded studies.

    verl 0.9.1 validates in batches as large as in training and leaves out the last incomplete one
    (verl/trainer/sft_trainer.py, `_build_dataloader`, `drop_last=True`). Fewer validation rows than that are no batch,
    and the mean loss of none is NaN. Here such a set is repeated until it fills a batch, and says so.
    """

    def __init__(
        self,
        parquet_files: str | Sequence[str],
        tokenizer: Any,
        config: Any,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        self._given = [parquet_files] if isinstance(parquet_files, str) else [str(file) for file in parquet_files]
        self._config = config or {}
        super().__init__(list(self._given), tokenizer, config, processor, max_samples)

    def _download(self) -> None:
        options = StudyOptions.from_config(self._config, Stage.SFT)
        self.parquet_files = rows_of(self._given, options, _cache(self._config))
        super()._download()
        if self._validates():
            rows = sum(pq.read_metadata(file).num_rows for file in self.parquet_files)
            batch = self._config.get("train_batch_size") or 1
            if 0 < rows < batch:
                repeats = math.ceil(batch / rows)
                print(
                    f"verl-cxr: {rows} validation rows are fewer than data.train_batch_size={batch}, and verl "
                    f"validates in whole batches: they are repeated {repeats} times",
                    file=sys.stderr,
                    flush=True,
                )
                self.parquet_files = self.parquet_files * repeats

    def _validates(self) -> bool:
        names = (self._config.get(key) for key in ("val_files", "train_files"))
        validation, training = ([name] if isinstance(name, str) else list(name or ()) for name in names)
        return self._given == validation != training
