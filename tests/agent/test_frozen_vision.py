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
"""The vision encoder is frozen by verl's own way to load a model, and nothing else is."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import verl  # lets torchvision be imported
from verl.workers.config import HFModelConfig
from verl.utils.model import get_hf_auto_model_class
import torch, transformers

folder, SDPA = sys.argv[1], {"attn_implementation": "sdpa"}
config = HFModelConfig(path=folder, external_lib="verl_cxr.frozen_vision", override_config=SDPA)
model = get_hf_auto_model_class(config.hf_config).from_pretrained(folder, config=config.hf_config, dtype=torch.float32)
frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
assert frozen == {name for name, _ in model.named_parameters() if ".visual." in name}, sorted(frozen)[:3]
assert frozen
assert isinstance(model, transformers.Qwen3VLForConditionalGeneration)
before = {name: weight.clone() for name, weight in model.named_parameters()}
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
model(input_ids=torch.arange(20, 40).unsqueeze(0), labels=torch.arange(20, 40).unsqueeze(0)).loss.backward()
optimizer.step()
for name, weight in model.named_parameters():
    assert torch.equal(weight, before[name]) == (name in frozen), name
model.save_pretrained(sys.argv[2])
saved = transformers.AutoConfig.from_pretrained(sys.argv[2])
assert saved.architectures == ["Qwen3VLForConditionalGeneration"], saved.architectures
"""


def test_only_the_language_model_learns(agent_model: Path, tmp_path: Path) -> None:
    """In a process of its own, since the registration is for the whole process."""
    command = [sys.executable, "-c", PROGRAM, str(agent_model), str(tmp_path / "saved")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
