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
"""The texts that a tiny model meets in training, for its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verl_cxr.data.prompt import IMAGE_PLACEHOLDER, Stage, prompt_text
from verl_cxr.geometry import pixel_frame
from verl_cxr.study import Study
from verl_cxr.trace import Trace, TraceFormat, reference_trace, render

__all__ = ["training_texts"]


def training_texts(studies: Iterable[Study], trace: TraceFormat) -> Iterator[str]:
    """Prompts, reports and traces of `studies`, as the three stages hold them.

    Boxes in `pixel_processed` are written in the film's own pixels: a digit is a token whatever it counts.
    """
    for study in studies:
        yield "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
        frame = (
            pixel_frame(study.width, study.height)
            if trace.frame == "pixel_processed"
            else trace.frame_for(study.width, study.height)
        )
        for stage in (Stage.SFT, Stage.GRPO):
            yield prompt_text(stage, frame).replace(IMAGE_PLACEHOLDER, "")
        written = reference_trace(study)
        yield render(Trace(written.regions, ""), frame)
        yield study.report.text
