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
"""RadGraph's forward pass: many short texts at once, or one exactly as the package does it.

The package reads one text at a time. `read_batch` calls the same modules with the same weights on a padded batch:

* every mask covers both axes of what it masks, so that padding is never an entity, a candidate or a relation;
* a score differs from the package's in the last bits of fp32, because sums are taken in another order. Where that could
  decide something (the best two labels, or the last span kept and the first one dropped, closer than `CLOSE`), the text
  is reported as undecided and must be read by `read_alone`, which is the package's own forward.

So an annotation never depends on what else was in the batch.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl_cxr.facts.radgraph_model import RadGraphModel

__all__ = ["CLOSE", "Pieces", "Reading", "read_alone", "read_batch", "words_of_encoder"]

CLOSE = 2e-4
"""Scores closer than this, relative to their size where that is above 1, are not told apart in a batch. Batch and
package differ by at most 2e-5, measured on a CPU at RadGraph-XL's size (tests/facts/test_radgraph.py watches it)."""

Span = tuple[int, int]
Pieces = list[list[int]]
"""The encoder's word pieces of each word of a text."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the two heads say: spans are (first word, last word), both inclusive, in the order of the package."""

    entities: tuple[tuple[Span, str], ...]
    relations: tuple[tuple[Span, Span, str], ...]


def words_of_encoder(words: Sequence[str]) -> list[str]:
    """What the encoder reads for each word; the package's dataset reader changes two of them."""
    return [word[1:] if word in ("/.", "/?") else word for word in words]


def read_alone(loaded: RadGraphModel, words: Sequence[str]) -> Reading:
    """One text by the package's own reader, tensors and forward.

    Args:
        words: at least one.
    """
    import torch

    batches = importlib.import_module("radgraph.allennlp.data.batch")
    utils = importlib.import_module("radgraph.utils")
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # the package warns of a text of one word
        instance = loaded.reader.text_to_instance(
            {"doc_key": "0", "sentences": [list(words)], "dataset": loaded.model_type}
        )
        batch = batches.Batch([instance])
        batch.index_instances(loaded.model.vocab)
        tensors = utils.batch_to_device(batch.as_tensor_dict(batch.get_padding_lengths()), loaded.device)
        document = loaded.model.make_output_human_readable(loaded.model(**tensors)).to_json()
    return Reading(
        tuple(((start, end), label) for start, end, label, *_ in document["predicted_ner"][0]),
        tuple(((a, b), (c, d), label) for a, b, c, d, label, *_ in document["predicted_relations"][0]),
    )


def read_batch(loaded: RadGraphModel, batch: Sequence[Pieces]) -> list[Reading | None]:
    """Many texts at once; None for each that is undecided and must be read alone.

    Args:
        batch: the word pieces of each text; with the two special tokens at most ``loaded.max_pieces`` of them.
    """
    import torch

    with torch.inference_mode():
        counts = [len(words) for words in batch]
        words = _encode(loaded, batch)  # (texts, words, hidden)
        spans, mask = _spans(counts, loaded)  # (texts, spans, 2), (texts, spans)
        embeddings = loaded.model._endpoint_span_extractor(words, spans)  # (texts, spans, features)
        labels, sure = _label(loaded, embeddings, mask)
        pairs, kept, sure_pairs = _relate(loaded, embeddings, mask, counts)
        sure = (sure & sure_pairs).tolist()
        labels, pairs, kept = labels.cpu(), pairs.cpu(), kept.cpu()
        places = spans.cpu().tolist()
    readings: list[Reading | None] = []
    for text, certain in enumerate(sure):
        if not certain:
            readings.append(None)
            continue
        place = [(start, end) for start, end in places[text]]
        found = labels[text].nonzero().flatten().tolist()
        candidates = [place[i] for i in kept[text].tolist() if i >= 0]
        readings.append(
            Reading(
                tuple((place[i], loaded.ner_labels[labels[text, i]]) for i in found),
                tuple(
                    (candidates[i], candidates[j], loaded.relation_labels[pairs[text, i, j] - 1])
                    for i, j in pairs[text].nonzero().tolist()
                ),
            )
        )
    return readings


def _encode(loaded: RadGraphModel, batch: Sequence[Pieces]) -> Any:
    """Mean of the word pieces of each word, (texts, words, hidden); zeros for a word without pieces and for padding."""
    import torch

    tokenizer, device = loaded.tokenizer, loaded.device
    rows = [
        [tokenizer.cls_token_id, *(piece for word in text for piece in word), tokenizer.sep_token_id] for text in batch
    ]
    length, most = max(map(len, rows)), max(map(len, batch))
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (length - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1.0] * len(row) + [0.0] * (length - len(row)) for row in rows], device=device)
    sizes = torch.tensor([[*map(len, text), *[0] * (most - len(text))] for text in batch], device=device)
    encoder = loaded.model._embedder.token_embedder_bert._matched_embedder.transformer_model
    hidden = encoder(input_ids=ids, attention_mask=mask)[0]
    widest = torch.arange(max(int(sizes.max()), 1), device=device)
    first = sizes.cumsum(1) - sizes + 1  # behind the start token
    inside = widest < sizes.unsqueeze(-1)  # (texts, words, widest)
    where = (first.unsqueeze(-1) + widest) * inside
    pieces = hidden.gather(1, where.flatten(1).unsqueeze(-1).expand(-1, -1, hidden.size(-1)))
    pieces = pieces.view(*where.shape, -1) * inside.unsqueeze(-1)
    return pieces.sum(2) / sizes.clamp(min=1).unsqueeze(-1)


def _spans(counts: Sequence[int], loaded: RadGraphModel) -> tuple[Any, Any]:
    """All spans of each text by first, then last word, (texts, spans, 2), padded with (0, 0); and which are real."""
    import torch

    width = loaded.max_span_width
    spans = [[(i, j) for i in range(n) for j in range(i, min(i + width, n))] for n in counts]
    most = max(map(len, spans))
    padded = torch.tensor([row + [(0, 0)] * (most - len(row)) for row in spans], device=loaded.device)
    mask = torch.tensor([[True] * len(row) + [False] * (most - len(row)) for row in spans], device=loaded.device)
    return padded, mask


def _label(loaded: RadGraphModel, embeddings: Any, mask: Any) -> tuple[Any, Any]:
    """Label of each span, (texts, spans), 0 for none; and whether all of a text's labels are clear, (texts,)."""
    from torch.nn.functional import pad

    scorer = loaded.model._ner._ner_scorers[f"{loaded.model_type}__ner_labels"]
    best, clear = _best(pad(scorer(embeddings), (1, 0)))  # no entity scores 0
    return best * mask, (clear | ~mask).all(1)


def _relate(loaded: RadGraphModel, embeddings: Any, mask: Any, counts: Sequence[int]) -> tuple[Any, Any, Any]:
    """Relations between the spans that are worth a look.

    Returns:
        Label of each pair of kept spans, (texts, kept, kept), 0 for none; index of each kept span in its order of
        appearance, (texts, kept), -1 for padding; and whether all of a text's decisions are clear, (texts,).
    """
    import torch

    head, namespace = loaded.model._relation, f"{loaded.model_type}__relation_labels"
    keep = torch.ceil(torch.tensor(counts).float() * head._spans_per_word).long().to(mask.device)
    keep = keep.clamp(min=1).minimum(mask.sum(1))
    scores = head._mention_pruners[namespace]._scorer(embeddings).squeeze(-1).masked_fill(~mask, -torch.inf)
    ranked, order = scores.sort(dim=1, descending=True)
    most = int(keep.max())
    real = torch.arange(most, device=mask.device) < keep.unsqueeze(1)  # (texts, kept)
    last = ranked.gather(1, keep.unsqueeze(1) - 1)
    dropped = torch.nn.functional.pad(ranked, (0, 1), value=-torch.inf).gather(1, keep.unsqueeze(1))
    clear = _apart(last, dropped).squeeze(1)
    kept, position = order[:, :most].masked_fill(~real, mask.size(1)).sort(dim=1)  # padding goes to the end
    index = kept.clamp(max=mask.size(1) - 1)
    chosen = embeddings.gather(1, index.unsqueeze(-1).expand(-1, -1, embeddings.size(-1)))
    mention = ranked[:, :most].gather(1, position).masked_fill(~real, 0.0).unsqueeze(-1)
    head._active_namespace = namespace
    pairs = head._compute_relation_scores(head._compute_span_pair_embeddings(chosen), mention)
    labels, clear_pairs = _best(pairs)
    both = real.unsqueeze(1) & real.unsqueeze(2)
    return labels * both, kept.masked_fill(~real, -1), clear & (clear_pairs | ~both).flatten(1).all(1)


def _best(scores: Any) -> tuple[Any, Any]:
    """Index of the best of the last axis, and whether the second is clearly below it."""
    (first, second), best = (top := scores.topk(2, dim=-1)).values.unbind(-1), top.indices[..., 0]
    return best, _apart(first, second)


def _apart(higher: Any, lower: Any) -> Any:
    return higher - lower > CLOSE * higher.abs().clamp(min=1.0)
