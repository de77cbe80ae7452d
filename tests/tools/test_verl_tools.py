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
"""The tools under verl's own tool agent: from its file of tools, with the films of a row."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from verl.tools.tool_registry import load_all_tools


@pytest.fixture
def tools(film_path: Path, tmp_path: Path) -> dict[str, Any]:
    masks = tmp_path / "masks" / "film"
    masks.mkdir(parents=True)
    lung = np.zeros((80, 100), dtype=np.uint8)
    lung[20:60, 60:90] = 255
    Image.fromarray(lung).save(masks / "left_lung.png")
    backend = f"masks: {{name: precomputed, folder: {tmp_path}/masks}}"
    file = tmp_path / "tools.yaml"
    file.write_text(
        f"""tools:
  - class_name: tool_plugins.verl_tools.RegionParseTool
    config: {{type: native, picture_side: 64, {backend}}}
  - class_name: tool_plugins.verl_tools.RoiCropTool
    config: {{type: native, side: 64, {backend}}}
  - class_name: tool_plugins.verl_tools.EvidenceLookupTool
    config: {{type: native, lookup: {{name: knowledge}}}}
"""
    )
    return {tool.name: tool for tool in load_all_tools(str(file), None)}


def use(tool: Any, film: Path, arguments: Any) -> tuple[Any, float, dict[str, Any]]:
    async def go() -> tuple[Any, float, dict[str, Any]]:
        instance, _ = await tool.create(create_kwargs={"films": [str(film)], "box_frame": "pixel_original"})
        try:
            return await tool.execute(instance, arguments)  # type: ignore[no-any-return]
        finally:
            await tool.release(instance)

    return asyncio.run(go())


def test_verl_makes_and_uses_them(tools: dict[str, Any], film_path: Path) -> None:
    assert list(tools) == ["region_parse", "roi_crop", "evidence_lookup"]
    found, reward, extra = use(tools["region_parse"], film_path, {"region": "left lung"})
    assert found.text == "left lung: box [60, 20, 90, 60], 15% of the image."
    assert (len(found.image), reward, extra) == (1, 0.0, {"refused": None})
    assert use(tools["roi_crop"], film_path, {"box": [10, 10, 50, 50]})[0].image[0].size == (64, 64)
    assert use(tools["evidence_lookup"], film_path, {"finding": "edema"})[0].image is None


@pytest.mark.parametrize("arguments", [{}, [], "x", {"box": [1, 2]}])
def test_a_wrong_call_is_answered(tools: dict[str, Any], film_path: Path, arguments: Any) -> None:
    found, _, extra = use(tools["roi_crop"], film_path, arguments)
    assert found.text.startswith("Refused. Give ")
    assert extra == {"refused": "bad_arguments"}


def test_a_row_must_name_its_films(tools: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"extra_info\.films"):
        asyncio.run(tools["roi_crop"].create(create_kwargs={}))


def test_the_packaged_file_names_all_of_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tool_plugins

    monkeypatch.setenv("CXR_MASKS", str(tmp_path))
    folder = Path(tool_plugins.__file__).parent
    assert [tool.name for tool in load_all_tools(str(folder / "tools.yaml"), None)] == [
        "region_parse",
        "roi_crop",
        "evidence_lookup",
    ]
