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
"""The rollout server of a CPU run: a Ray actor that answers concurrent requests in shared batches."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hashlib
import threading
import time
from typing import Any

import torch
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.model import get_hf_auto_model_class
from verl.utils.tokenizer import get_processor_token_id, normalize_token_ids
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.utils import get_vision_placeholder_token_ids

from verl_cxr.local.decode import ATTENTION, Completion, Decoder, Request, Sampling
from verl_cxr.local.threads import use_threads

__all__ = ["RolloutServer", "image_key"]


def image_key(image: Any) -> tuple[Any, ...]:
    """Identity of an image by content."""
    return image.size, image.mode, hashlib.blake2b(image.tobytes(), digest_size=16).digest()


class RolloutServer:
    """Answers ``generate`` calls; weights arrive from the trainer in buckets between two batches.

    Options (``actor_rollout_ref.rollout.engine_kwargs.hf``):
        max_batch_size: rows of one batch (default 128).
        quiet_s: seconds without a new request after which an unfilled batch starts (default 0.05).
        freeze_weights: ignore all weight updates but the first. For the negative control of the weight synchronisation.
        force_first_turn: text that replaces the beginning of the first turn. For tests of the tool path with a model
            that never learnt to call a tool.
    """

    def __init__(self, config: Any, model_config: Any, replica_rank: int) -> None:
        self.config: RolloutConfig = omega_conf_to_dataclass(config)
        self.model_config: HFModelConfig = omega_conf_to_dataclass(model_config, dataclass_type=HFModelConfig)
        options = dict((self.config.engine_kwargs or {}).get("hf") or {})
        self.max_batch_size = int(options.pop("max_batch_size", 128))
        self.quiet_s = float(options.pop("quiet_s", 0.05))
        self.freeze_weights = bool(options.pop("freeze_weights", False))
        force_first_turn = options.pop("force_first_turn", None)
        if options:
            raise ValueError(f"unknown rollout option(s) in engine_kwargs.hf: {', '.join(sorted(options))}")

        hf_config = self.model_config.hf_config
        model = get_hf_auto_model_class(hf_config=hf_config).from_pretrained(
            self.model_config.local_path,
            dtype=PrecisionType.to_dtype(self.config.dtype),
            config=hf_config,
            attn_implementation=ATTENTION,
            trust_remote_code=self.model_config.trust_remote_code,
        )
        use_threads(model)
        tokenizer, processor = self.model_config.tokenizer, self.model_config.processor
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, (list, tuple)) else [ends]
        self.end_ids = frozenset(token for token in (*ends, tokenizer.eos_token_id) if token is not None)
        self.decoder = Decoder(
            model,
            processor,
            pad_id=tokenizer.pad_token_id,
            image_id=get_processor_token_id(processor, "image"),
            banned_ids=get_vision_placeholder_token_ids(processor),
        )
        self.forced_ids = (
            tuple(tokenizer.encode(force_first_turn, add_special_tokens=False)) if force_first_turn else ()
        )
        self.answered_id = tokenizer.convert_tokens_to_ids("<tool_response>")
        self.room = self.config.max_model_len or self.config.prompt_length + self.config.response_length
        self.seed = int(self.config.seed) + replica_rank

        self.global_steps: int | None = None
        self.updates = 0
        self._weights = dict(model.named_parameters()) | dict(model.named_buffers())
        self._received: set[str] = set()
        self._model_lock = threading.Lock()
        self._asked: collections.Counter[Any] = collections.Counter()
        self._waiting: asyncio.Queue[tuple[Request, asyncio.Future[Any]]]
        self._open: asyncio.Event

    async def launch(self) -> None:
        """Start serving."""
        self._waiting = asyncio.Queue()
        self._open = asyncio.Event()
        self._open.set()
        self._serving = asyncio.create_task(self._serve())

    # -- generation ------------------------------------------------------------------------------------------------

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: list[Any] | None = None,
        video_data: list[Any] | None = None,
        **_: Any,
    ) -> TokenOutput:
        """Complete one prompt (verl's server protocol, ``verl/workers/rollout/llm_server.py``).

        Raises:
            ValueError: the prompt fills the context, or holds a video.
        """
        if video_data:
            raise ValueError("the local rollout serves images, not videos")
        ids = tuple(normalize_token_ids(prompt_ids))
        room = self.room - len(ids)
        if room < 1:
            raise ValueError(f"a prompt of {len(ids)} tokens leaves no room in max_model_len={self.room}")
        limit = sampling_params.get("max_tokens", sampling_params.get("max_new_tokens"))
        if limit is None:
            limit = min(self.config.response_length, room)
        images = tuple(image_data or ())
        ignore_end = sampling_params.get("ignore_eos", self.config.ignore_eos)
        keys = tuple(image_key(image) for image in images)
        request = Request(
            prompt_ids=ids,
            max_tokens=max(1, min(int(limit), room)),
            stop_ids=frozenset(sampling_params.get("stop_token_ids") or ())
            | (frozenset() if ignore_end else self.end_ids),
            seed=self._seed((ids, keys)),
            sampling=Sampling(
                temperature=float(sampling_params.get("temperature", 1.0)),
                top_p=float(sampling_params.get("top_p", 1.0)),
                top_k=int(sampling_params.get("top_k", -1)),
                repetition_penalty=float(sampling_params.get("repetition_penalty", 1.0)),
            ),
            images=images,
            image_keys=keys,
            forced_ids=() if self.answered_id in ids else self.forced_ids,
        )
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self._waiting.put((request, answer))
        completion, version = await answer
        return TokenOutput(
            token_ids=completion.token_ids,
            log_probs=completion.log_probs,
            stop_reason="completed",
            extra_fields={"global_steps": version},
        )

    def _seed(self, prompt: Any) -> int:
        """A stream of its own for the n-th request of a prompt under one version of the weights."""
        self._asked[prompt] += 1
        name = repr((self.seed, self.updates, prompt, self._asked[prompt])).encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=7).digest(), "little")

    async def _serve(self) -> None:
        pending: list[tuple[Request, asyncio.Future[Any]]] = []
        while True:
            if not pending:
                pending.append(await self._waiting.get())
                await self._gather(pending)
            await self._open.wait()
            sampling = pending[0][0].sampling
            batch = [entry for entry in pending if entry[0].sampling == sampling][: self.max_batch_size]
            taken = {id(entry) for entry in batch}
            pending = [entry for entry in pending if id(entry) not in taken]
            try:
                answers, version = await asyncio.to_thread(self._complete, [request for request, _ in batch])
            except Exception as error:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(RuntimeError(f"the local rollout failed: {error!r}"))
                continue
            for (_, answer), completion in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result((completion, version))

    async def _gather(self, pending: list[Any]) -> None:
        """Wait until a batch is full or no request came for ``quiet_s``: rollouts of one step arrive in a trickle."""
        latest = time.monotonic()
        while len(pending) < self.max_batch_size and time.monotonic() - latest < self.quiet_s:
            with contextlib.suppress(asyncio.TimeoutError):
                pending.append(await asyncio.wait_for(self._waiting.get(), self.quiet_s))
                latest = time.monotonic()

    def _complete(self, requests: list[Request]) -> tuple[list[Completion], int | None]:
        with self._model_lock:
            return self.decoder.complete(requests), self.global_steps

    # -- weights ---------------------------------------------------------------------------------------------------

    async def begin_update(self) -> None:
        """Start a weight update."""
        self._received = set()

    async def load_bucket(self, tensors: list[tuple[str, Any, str]]) -> None:
        """Copy (name, array, dtype name) triples into the model."""
        await asyncio.to_thread(self._load, tensors)

    def _load(self, tensors: list[tuple[str, Any, str]]) -> None:
        with self._model_lock, torch.no_grad():
            for name, array, dtype in tensors:
                tensor = torch.tensor(array)  # a copy: Ray's arrays are read-only, of which from_numpy warns
                if dtype == "bfloat16":
                    tensor = tensor.view(torch.bfloat16)
                if name not in self._weights:
                    raise KeyError(f"the trainer sent weight {name!r}, which the rollout model does not have")
                if not (self.freeze_weights and self.updates):
                    self._weights[name].copy_(tensor)
                self._received.add(name)

    async def end_update(self, global_steps: int | None = None) -> None:
        """Finish a weight update.

        Raises:
            RuntimeError: some parameter did not arrive.
        """
        missing = [name for name, _ in self.decoder.model.named_parameters() if name not in self._received]
        if missing:
            raise RuntimeError(f"the weight update left {len(missing)} parameters untouched, such as {missing[:3]}")
        self.global_steps = global_steps
        self.updates += 1
        self._asked.clear()

    async def set_global_steps(self, global_steps: int) -> None:
        """Name the version of the weights."""
        self.global_steps = global_steps

    # -- life cycle: nothing is off-loaded on a CPU ------------------------------------------------------------------

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """Hold back batches that have not started."""
        self._open.clear()

    async def resume_generation(self) -> None:
        """Serve again."""
        self._open.set()

    async def sleep(self, *_: Any, **__: Any) -> None: ...

    async def wake_up(self, *_: Any, **__: Any) -> None: ...

    async def clear_kv_cache(self) -> None: ...

    async def release_kv_cache(self) -> None: ...

    async def resume_kv_cache(self) -> None: ...

    async def start_profile(self, **_: Any) -> None: ...

    async def stop_profile(self) -> None: ...
