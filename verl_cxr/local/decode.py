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
"""Batched sampling from a Hugging Face vision-language model on a CPU.

One prompt is read once, however many rollouts it has; keys and values grow in place instead of being copied at each
token; rows leave the batch when they are finished. Every request draws from its own random stream, so what it says does
not depend on which requests it shares a batch with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, Cache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

__all__ = ["ATTENTION", "Completion", "Decoder", "Request", "Sampling"]

ATTENTION = "cxr_grouped_sdpa"
_BLOCK = 64  # positions by which the key-value buffers grow


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; requests share a batch only when these are equal."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    repetition_penalty: float = 1.0


@dataclass(eq=False)
class Request:
    """One completion to make. ``image_keys`` name the images, so that equal prompts are recognised."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    stop_ids: frozenset[int]
    seed: int
    sampling: Sampling = field(default_factory=Sampling)
    images: tuple[Any, ...] = ()
    image_keys: tuple[Any, ...] = ()
    forced_ids: tuple[int, ...] = ()

    @property
    def prompt_key(self) -> tuple[Any, ...]:
        return (self.prompt_ids, self.image_keys)


@dataclass(frozen=True)
class Completion:
    """Sampled ids, the stop id included, and their log-probabilities under logits / temperature, as in verl's actor."""

    token_ids: list[int]
    log_probs: list[float]


class _GrowingLayer(DynamicLayer):
    """Keys and values in buffers with room to spare; attention sees a view of the filled part."""

    _room: torch.Tensor  # (2, B, heads, room, width)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> tuple[Any, Any]:
        filled, new = self.get_seq_length(), key_states.shape[-2]
        if filled == 0:
            self.lazy_initialization(key_states, value_states)
        if filled == 0 or filled + new > self._room.shape[-2]:
            self._grow(key_states, filled, new)
        self._room[0, :, :, filled : filled + new] = key_states
        self._room[1, :, :, filled : filled + new] = value_states
        self._view(filled + new)
        return self.keys, self.values

    def _grow(self, like: torch.Tensor, filled: int, new: int) -> None:
        batch, heads, _, width = like.shape
        room = like.new_empty(2, batch, heads, -(-(filled + new) // _BLOCK) * _BLOCK + _BLOCK, width)
        if filled:
            room[:, :, :, :filled] = self._room[:, :, :, :filled]
        self._room = room

    def _view(self, filled: int) -> None:
        self.keys, self.values = self._room[0, :, :, :filled], self._room[1, :, :, :filled]

    def select(self, rows: torch.Tensor) -> None:
        """Keep (or repeat) the given rows of the batch."""
        filled = self.get_seq_length()
        self._room = self._room[:, rows]
        self._view(filled)


def _grouped_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """SDPA in which, for one new token, query heads that share a key head form the query length: no repeated keys."""
    if query.shape[2] != 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    batch, heads, _, width = query.shape
    grouped = query.view(batch, key.shape[1], heads // key.shape[1], width)
    mixed = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=kwargs.get("scaling")
    )
    return mixed.reshape(batch, 1, heads, width), None


AttentionInterface.register(ATTENTION, _grouped_sdpa)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)  # without it, padding would not be masked


class Decoder:
    """Samples completions from ``model`` (loaded with ``attn_implementation=ATTENTION``)."""

    def __init__(
        self, model: Any, processor: Any, *, pad_id: int, image_id: int | None, banned_ids: Sequence[int] = ()
    ) -> None:
        self.model = model.eval()
        self.processor = processor
        self.pad_id = pad_id
        self.image_id = -1 if image_id is None else image_id
        self.banned_ids = list(banned_ids)
        self._features: dict[Any, dict[str, torch.Tensor]] = {}

    @torch.inference_mode()
    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample one completion for each request; all requests share one :class:`Sampling`.

        Raises:
            ValueError: the requests differ in how they sample.
        """
        sampling = requests[0].sampling
        if any(request.sampling != sampling for request in requests):
            raise ValueError("requests of one batch must share temperature, top_p, top_k and repetition_penalty")
        order: dict[Any, int] = {}
        for request in requests:
            order.setdefault(request.prompt_key, len(order))
        unique = list({request.prompt_key: request for request in requests}.values())
        source = torch.tensor([order[request.prompt_key] for request in requests])

        cache = Cache(layer_class_to_replicate=_GrowingLayer)
        logits, mask, positions = self._read(unique, cache)
        for layer in cache.layers:
            layer.select(source)
        return self._write(
            requests, sampling, cache, logits[source], None if mask is None else mask[source], positions[source]
        )

    def _read(self, prompts: list[Request], cache: Cache) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Fill the cache from left-padded prompts: last logits (U, V), padding mask (U, W) or None, next place (U,)."""
        width = max(len(prompt.prompt_ids) for prompt in prompts)
        ids = torch.full((len(prompts), width), self.pad_id)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt.prompt_ids) :] = torch.tensor(prompt.prompt_ids)
            mask[row, width - len(prompt.prompt_ids) :] = 1
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        features = [
            self._image_features(key, image) for p in prompts for key, image in zip(p.image_keys, p.images, strict=True)
        ]
        if features:
            inputs |= {name: torch.cat([feature[name] for feature in features]) for name in features[0]}
            inputs["mm_token_type_ids"] = (ids == self.image_id).long()
        output = self.model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        following = mask.sum(-1)
        deltas = getattr(self.model.model, "rope_deltas", None)
        if features and deltas is not None:
            following = following + deltas.view(-1)
        return output.logits[:, -1], None if bool(mask.all()) else mask, following

    def _image_features(self, key: Any, image: Any) -> dict[str, torch.Tensor]:
        if key not in self._features:
            if len(self._features) >= 1024:
                self._features.clear()
            made = self.processor.image_processor(images=[image], return_tensors="pt")
            self._features[key] = {
                "pixel_values": made["pixel_values"].to(self.model.dtype),
                "image_grid_thw": made["image_grid_thw"],
            }
        return self._features[key]

    def _write(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        cache: Cache,
        logits: torch.Tensor,
        mask: torch.Tensor | None,
        positions: torch.Tensor,
    ) -> list[Completion]:
        longest = max(request.max_tokens for request in requests)
        draws = torch.stack([_stream(request.seed, longest) for request in requests])
        tokens = torch.full((len(requests), longest), self.pad_id)
        log_probs = torch.zeros(len(requests), longest)
        lengths = torch.zeros(len(requests), dtype=torch.long)
        limits = torch.tensor([request.max_tokens for request in requests])
        stops = _membership(requests, logits.shape[-1])
        forced = any(request.forced_ids for request in requests)
        penalise = sampling.repetition_penalty != 1.0
        three_rows = hasattr(self.model.model, "rope_deltas")

        live = torch.arange(len(requests))  # requests that still write
        rows = live  # requests in the cache, finished ones included until the next compaction
        for step in range(longest):
            scores = logits.float() if sampling.temperature == 0 else logits.float() / sampling.temperature
            offered = scores
            if self.banned_ids:
                offered = offered.index_fill(-1, torch.tensor(self.banned_ids), -torch.inf)
            if penalise:
                offered = _penalised(offered, tokens[rows, :step], sampling.repetition_penalty)
            drawn = _draw(offered, sampling, draws[rows, step])
            if forced:
                for row, request in enumerate(rows.tolist()):
                    if step < len(requests[request].forced_ids):
                        drawn[row] = requests[request].forced_ids[step]
            tokens[rows, step] = drawn
            log_probs[rows, step] = torch.log_softmax(scores, -1).gather(-1, drawn.unsqueeze(-1)).squeeze(-1)

            running = torch.isin(rows, live)
            lengths[rows[running]] = step + 1
            ended = stops[rows, drawn] | (limits[rows] <= step + 1)
            live = rows[running & ~ended]
            if len(live) == 0:
                break
            if len(live) <= 0.75 * len(rows):
                kept = torch.isin(rows, live).nonzero().squeeze(-1)
                for layer in cache.layers:
                    layer.select(kept)
                rows, drawn = rows[kept], drawn[kept]
                mask = None if mask is None else mask[kept]
                positions = positions[kept]
            if mask is not None:
                mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            at = (positions + step).unsqueeze(-1)
            output = self.model(
                input_ids=drawn.unsqueeze(-1),
                attention_mask=mask,
                position_ids=at.expand(3, -1, -1) if three_rows else at,
                past_key_values=cache,
                use_cache=True,
            )
            logits = output.logits[:, -1]
        return [
            Completion(tokens[row, :length].tolist(), log_probs[row, :length].tolist())
            for row, length in enumerate(lengths.tolist())
        ]


def _stream(seed: int, length: int) -> torch.Tensor:
    return torch.rand(length, generator=torch.Generator().manual_seed(seed))


def _membership(requests: Sequence[Request], vocabulary: int) -> torch.Tensor:
    """(B, V) booleans: the id ends the request."""
    table = torch.zeros(len(requests), vocabulary, dtype=torch.bool)
    for row, request in enumerate(requests):
        table[row, [token for token in request.stop_ids if token < vocabulary]] = True
    return table


def _penalised(scores: torch.Tensor, written: torch.Tensor, penalty: float) -> torch.Tensor:
    """Divide (multiply, when negative) the scores of ids that the row has written (CTRL, Keskar et al. 2019)."""
    seen = scores.gather(-1, written)
    return scores.scatter(-1, written, torch.where(seen > 0, seen / penalty, seen * penalty))


def _draw(scores: torch.Tensor, sampling: Sampling, uniform: torch.Tensor) -> torch.Tensor:
    """One id a row by inverting the distribution function at ``uniform`` in [0, 1); the best id at temperature 0."""
    if sampling.temperature == 0:
        return scores.argmax(-1)
    if sampling.top_k > 0 and sampling.top_k < scores.shape[-1]:
        worst = scores.topk(sampling.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < worst, -torch.inf)
    probabilities = torch.softmax(scores, -1)
    if sampling.top_p < 1:
        ranked, index = probabilities.sort(dim=-1, descending=True)
        beyond = ranked.cumsum(-1) - ranked >= sampling.top_p
        probabilities = torch.zeros_like(probabilities).scatter(-1, index, ranked.masked_fill(beyond, 0))
    reached = probabilities.double().cumsum(-1)
    goal = uniform.double().unsqueeze(-1) * reached[..., -1:]
    drawn = torch.searchsorted(reached, goal, right=True).squeeze(-1)
    return drawn.clamp_max(scores.shape[-1] - 1)
