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
"""The tools as verl's own tool agent takes them, and verl's tools as the evidence agent takes them.

verl's ``tool_agent`` gets them from a file such as ``tool_plugins/tools.yaml``
(``actor_rollout_ref.rollout.multi_turn.tool_config_path``), and the films of a row from
``extra_info.tools_kwargs.NAME.create_kwargs``, which the rows of ``verl-cxr data agent`` hold. The other way round, a
tool that is written for verl is offered by the evidence agent beside its own when that file names it.
"""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from verl.tools.base_tool import BaseTool
from verl.tools.function_tool import FunctionTool, normalize_function_tool_return
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from tool_plugins.case import Case
from tool_plugins.evidence_lookup import EvidenceLookup
from tool_plugins.refusal import RefusedError
from tool_plugins.region_parse import RegionParse
from tool_plugins.roi_crop import RoiCrop
from tool_plugins.tool import Result, Tool, harmless
from verl_cxr.lookup import make_lookup
from verl_cxr.measure import MaskBackend, make_masks
from verl_cxr.once import Once

__all__ = ["EvidenceLookupTool", "ForeignTool", "RegionParseTool", "RoiCropTool"]

_backends: Once[str, MaskBackend] = Once()


class _VerlTool(BaseTool):
    """One of the tools behind verl's life cycle. ``config`` holds the options of the tool, and of its backend."""

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        options = {key: value for key, value in config.items() if key != "type"}
        self.tool = self._made(options)
        super().__init__(config, tool_schema or OpenAIFunctionToolSchema.model_validate(self.tool.schema))
        self._cases: dict[str, Case] = {}

    @abstractmethod
    def _made(self, options: dict[str, Any]) -> Tool:
        """The tool of these options."""

    async def create(
        self, instance_id: str | None = None, create_kwargs: Mapping[str, Any] | None = None, **_: Any
    ) -> tuple[str, ToolResponse]:
        """Take the films of a row.

        Raises:
            ValueError: ``create_kwargs`` names no film.
        """
        instance = instance_id or uuid4().hex
        self._cases[instance] = Case.from_row(create_kwargs or {})
        return instance, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **_: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """Execute a call; a refused one is answered with advice."""
        arguments = parameters if isinstance(parameters, dict) else {}
        try:
            result = await asyncio.to_thread(self.tool, arguments, self._cases[instance_id])
        except RefusedError as error:
            return ToolResponse(text=f"Refused. {harmless(error.advice)}"), 0.0, {"refused": error.reason.value}
        pictures = {"image": list(result.images)} if result.images else {}
        return ToolResponse(text=harmless(result.text), **pictures), 0.0, {"refused": None}

    async def release(self, instance_id: str, **_: Any) -> None:
        """Forget the films."""
        self._cases.pop(instance_id, None)


class RegionParseTool(_VerlTool):
    """``region_parse``. Config: ``masks`` (see ``hydra_configs/masks``), ``picture_side``."""

    def _made(self, options: dict[str, Any]) -> Tool:
        return RegionParse(_masks(options.pop("masks")), **options)


class RoiCropTool(_VerlTool):
    """``roi_crop``. Config: ``masks``, ``side``, ``max_zoom``, ``least_pixels``."""

    def _made(self, options: dict[str, Any]) -> Tool:
        return RoiCrop(_masks(options.pop("masks")), **options)


class EvidenceLookupTool(_VerlTool):
    """``evidence_lookup``. Config: ``lookup`` (see ``hydra_configs/lookup``)."""

    def _made(self, options: dict[str, Any]) -> Tool:
        return EvidenceLookup(make_lookup(**options.pop("lookup")), **options)


def _masks(section: Mapping[str, Any]) -> MaskBackend:
    """The mask backend of a configuration: one for all tools that name it, which share weights and results."""
    return _backends.get(json.dumps(dict(section), sort_keys=True), lambda: make_masks(**section))


class ForeignTool:
    """A tool that was written for verl, as the evidence agent takes it; it lives for one rollout.

    Args:
        tool: verl's, a class or a function.
        loop: the event loop in which it runs; calls come from other threads.
        create_kwargs: what the row holds for it.
    """

    def __init__(self, tool: Any, loop: asyncio.AbstractEventLoop, create_kwargs: Mapping[str, Any]) -> None:
        self.name = str(tool.name)
        self.schema: dict[str, Any] = tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True)
        self._tool, self._loop, self._create_kwargs = tool, loop, dict(create_kwargs)

    def __call__(self, arguments: Mapping[str, Any], case: Case) -> Result:
        """See :class:`tool_plugins.tool.Tool`."""
        response = asyncio.run_coroutine_threadsafe(self._respond(dict(arguments)), self._loop).result()
        images = tuple(image.convert("RGB") for image in response.image or () if image is not None)
        return Result(response.text or "", images)

    async def _respond(self, arguments: dict[str, Any]) -> Any:
        if isinstance(self._tool, FunctionTool):
            return normalize_function_tool_return(await self._tool.call(arguments))[0]
        instance, _ = await self._tool.create(create_kwargs=self._create_kwargs)
        try:
            return (await self._tool.execute(instance, arguments))[0]
        finally:
            await self._tool.release(instance)
