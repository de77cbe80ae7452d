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
"""A study as verl's trainers read it: one row a stage.

verl 0.9.1 reads `messages` and `images` in its SFT data set (verl/utils/dataset/multiturn_sft_dataset.py), and
`prompt`, `images`, `data_source`, `reward_model.ground_truth` and `extra_info` in its RL data set (rl_dataset.py beside
it). An image is `{"image": path}` or `{"bytes": ...}`; both data sets take a `bytes` key for embedded bytes
even when it is null, so a file holds one kind. A GRPO row of a phantom, abridged::

    {"data_source": "phantom", "ability": "region_grounded_report",
     "prompt": [{"role": "user", "content": "<image>\nRead this chest X-ray. ..."}],
     "images": [{"image": "/data/images/phantom-0-train-000000.png"}],
     "reward_model": {"style": "rule", "ground_truth": "{\"id\":\"phantom-0-train-000000\",...}"},
     "extra_info": {"index": 0, "id": "phantom-0-train-000000", "patient": null, "split": "train", "view": "PA",
                    "stage": "grpo", "box_frame": "relative_1000", "processed_size": null}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from verl_cxr.data.films import look_at
from verl_cxr.data.prompt import Stage, prompt_text
from verl_cxr.film import FilmError, FilmHead, open_image
from verl_cxr.geometry import Frame
from verl_cxr.question import Question
from verl_cxr.study import Study
from verl_cxr.trace import TraceFormat, reference_trace, render

__all__ = ["RowOptions", "UnusableStudyError", "check_film", "make_row", "split_name"]

_SPLITS = {"val": "validate", "valid": "validate", "validation": "validate", "dev": "validate", "eval": "test"}


class UnusableStudyError(ValueError):
    """A study that a stage cannot use. The message is a short reason, the same for all studies that share it."""


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How rows are written.

    Attributes:
        data_source: name of the collection; verl groups its validation metrics by it.
        trace: frame of the boxes in the text.
        embed_images: put the image files' bytes into the rows instead of their absolute paths.
        processed_size: from a film's (width, height) to those of the image the model sees; `pixel_processed` needs it.
    """

    data_source: str
    trace: TraceFormat = field(default_factory=TraceFormat)
    embed_images: bool = False
    processed_size: Callable[[int, int], tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        if self.trace.frame == "pixel_processed" and self.processed_size is None:
            raise ValueError("boxes in pixels of the processed image need the processor: name its folder")


def make_row(
    stage: Stage, study: Study, index: int, options: RowOptions, *, image: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The row of `study` for `stage`.

    Args:
        index: its place in the file.
        image: what to say of the film instead of its path or bytes.

    Raises:
        UnusableStudyError: the study lacks what the stage needs.
    """
    processed = options.processed_size(study.width, study.height) if options.processed_size else None
    frame = options.trace.frame_for(study.width, study.height, processed)
    extra_info = {
        "index": index,
        "id": study.id,
        "patient": study.patient,
        "split": split_name(study),
        "view": study.view,
        "stage": stage.value,
        "box_frame": options.trace.frame,
        "processed_size": list(processed) if processed else None,
    }
    user = {"role": "user", "content": prompt_text(stage, frame)}
    images = [dict(image) if image is not None else _image(study, options)]
    shared = {"data_source": options.data_source, "images": images, "extra_info": extra_info}
    if stage is Stage.GRPO:
        _require_located_region(study)
        return shared | {
            "prompt": [user],
            "ability": "region_grounded_report",
            "reward_model": {"style": "rule", "ground_truth": _ground_truth(study, options)},
        }
    answer = _report(study) if stage is Stage.SFT else _trace(study, frame)
    return shared | {"messages": [user, {"role": "assistant", "content": answer}]}


def check_film(study: Study, *, decode: bool = False) -> FilmHead:
    """Check that the film of a study is there and has the size that the record says, which its boxes depend on.

    Args:
        decode: find damaged pixels too, which takes some hundred times as long as reading the head.

    Raises:
        UnusableStudyError: it is not.
    """
    if study.image is None:
        raise UnusableStudyError("the record names no image")
    try:
        film = look_at(study.image)
        if decode:
            open_image(study.image)
    except FilmError as error:
        raise UnusableStudyError(error.reason) from None
    if film.size != (study.width, study.height):
        raise UnusableStudyError("image size differs from the record's width and height")
    return film


def split_name(record: Study | Question) -> str:
    """The record's split in MIMIC-CXR's words: train, validate, test, or its own; train if it names none."""
    split = (record.split or "train").lower()
    return _SPLITS.get(split, split)


def _image(study: Study, options: RowOptions) -> dict[str, Any]:
    if study.image is None:
        raise UnusableStudyError("the record names no image")
    return {"bytes": study.image.read_bytes()} if options.embed_images else {"image": str(study.image)}


def _report(study: Study) -> str:
    text = study.report.text
    if not text:
        raise UnusableStudyError("report with neither findings nor impression")
    return text


def _trace(study: Study, frame: Frame) -> str:
    _require_located_region(study)
    _report(study)
    try:
        return render(reference_trace(study), frame)
    except ValueError:
        raise UnusableStudyError("a text contains a tag of the trace") from None


def _require_located_region(study: Study) -> None:
    if not any(region.box for region in study.regions):
        raise UnusableStudyError("no region with a box")


def _ground_truth(study: Study, options: RowOptions) -> str:
    record = study.to_dict()
    if options.embed_images:
        record["image"] = None  # the row is meant to travel; the path stays behind
    try:
        return orjson.dumps(record).decode()
    except TypeError:
        raise UnusableStudyError("a text is not valid Unicode") from None
