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
"""BERTScore with distilbert-base-uncased, layer 5, rescaled with its baseline: RadEval's setting."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verl_cxr.evaluate.metrics.scores import Pair, Scores, UnavailableError, mean_of
from verl_cxr.local import torchvision_shim

__all__ = ["MODEL", "BertScore"]

MODEL = "distilbert-base-uncased"
_LAYER = 5
_FILES = ("config.json", "tokenizer.json", "model.safetensors")


class BertScore:
    """BERTScore's F1 by the bert-score package, the mean over reports; reads weights of this machine only.

    Args:
        weights: folder of the model; None: the hub's cache.

    Raises:
        UnavailableError: the package or the weights are not there.
    """

    def __init__(self, weights: str | None = None) -> None:
        if find_spec("bert_score") is None:
            raise UnavailableError("bert-score is not installed: pip install 'verl-cxr[eval]'")
        folder = _cached() if weights is None else Path(weights)
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise UnavailableError(f"{MODEL} is incomplete in {folder}: {', '.join(missing)} missing")
        torchvision_shim.install()  # transformers imports torchvision, which a CPU build of torch cannot load as it is
        import bert_score

        baseline = Path(bert_score.__file__).parent / "rescale_baseline" / "en" / f"{MODEL}.tsv"
        self._scorer: Any = bert_score.BERTScorer(
            model_type=str(folder),
            num_layers=_LAYER,
            lang="en",
            device="cpu",
            rescale_with_baseline=True,
            baseline_path=str(baseline),
        )

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores]:
        """See `verl_cxr.evaluate.metrics.scores.Metric`."""
        # the package gives a blank text 0 before rescaling, but cannot tokenise it with transformers 5
        baseline = float(self._scorer.baseline_vals[2])
        samples = [-baseline / (1 - baseline)] * len(pairs)
        written = [place for place, (predicted, _) in enumerate(pairs) if predicted.strip()]
        if written:
            _, _, f1 = self._scorer.score(
                [pairs[place][0] for place in written], [pairs[place][1] for place in written]
            )
            for place, value in zip(written, f1, strict=True):
                samples[place] = float(value)
        made_by = f"bert-score {version('bert-score')}, {MODEL}, layer {_LAYER}, rescaled"
        return [mean_of("bertscore", "BERTScore", made_by, samples)]


def _cached() -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(MODEL, local_files_only=True))
    except LocalEntryNotFoundError:
        raise UnavailableError(
            f"the weights of {MODEL} are not in the hub's cache on this machine: put them there, "
            "or name their folder with --bertscore"
        ) from None
