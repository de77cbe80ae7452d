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
"""Seconds a GRPO step: verl on this CPU through our plug-in, against TRL's GRPOTrainer, in one run.

Both train the same tiny Qwen3-VL on the same prompts with the same group size, forced response length, KL term, reward.
TRL is installed apart (``.bench/trl``), since verl imports any TRL that it finds. TRL runs with one thread and with all
cores; the faster of the two is the baseline.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
TRL = ROOT / ".bench" / "trl"
SIZES = ((4, 4, 16), (8, 8, 128), (16, 8, 256))  # prompts, rollouts, response tokens
GOALS = (5.0, 1.6, 1.6)
STEPS = 7  # the first is warm-up


def main() -> None:
    """Run both trainers at each size and print the table."""
    install_trl()
    table = Table(title="seconds a GRPO step, median of 6 steps; 1 M-parameter Qwen3-VL, forced response length")
    for column in (
        "prompts x rollouts x tokens",
        "TRL 1.16",
        "verl + plug-in",
        "ratio",
        "goal",
        "start-up: TRL",
        "verl",
    ):
        table.add_column(column)
    with tempfile.TemporaryDirectory() as folder:
        assets = make_assets(Path(folder))
        for size, goal in zip(SIZES, GOALS, strict=True):
            trl = min(
                (run_trl(assets, size, threads) for threads in (1, os.cpu_count() or 1)), key=lambda result: result[0]
            )
            ours = run_verl(assets, size)
            name = " x ".join(map(str, size))
            table.add_row(
                name,
                f"{trl[0]:.2f}",
                f"{ours[0]:.2f}",
                f"{ours[0] / trl[0]:.2f}",
                f"{goal}",
                f"{trl[1]:.0f}",
                f"{ours[1]:.0f}",
            )
            Console().print(f"{name}: TRL {trl[0]:.2f} s, verl {ours[0]:.2f} s a step")
    Console().print(table)


def install_trl() -> None:
    """Put TRL, without its dependencies (all present), into a folder that only the TRL process sees."""
    if not (TRL / "trl").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(TRL), "trl==1.16.0"]
        subprocess.run(command, check=True)


def make_assets(folder: Path) -> Path:
    """Model and 64 prompts: a question about a small phantom film."""
    import verl_cxr.local.torchvision_shim as shim

    shim.install()
    import pyarrow as pa
    import pyarrow.parquet as pq

    from verl_cxr.data.phantom import PhantomOptions, iter_phantoms
    from verl_cxr.tiny import TinySizes, build_tiny_model

    question = "Write the findings of this chest X-ray."
    build_tiny_model(folder / "model", texts=[question] * 8, seed=0, sizes=TinySizes(image_size=64), vocab_size=576)
    rows = []
    for index, film in enumerate(iter_phantoms(0, 64, options=PhantomOptions(width=64, height=64))):
        path = folder / f"{index}.png"
        from PIL import Image

        Image.fromarray(film.image).save(path)
        rows.append(
            {
                "data_source": "bench",
                "prompt": [{"role": "user", "content": f"<image>{question}"}],
                "images": [{"image": str(path)}],
                "reward_model": {"style": "rule", "ground_truth": ""},
                "extra_info": {"index": index},
            }
        )
    for split in ("train", "validate"):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"grpo_{split}.parquet")
    return folder


def run_trl(assets: Path, size: tuple[int, int, int], threads: int) -> tuple[float, float]:
    """Median seconds a step, and seconds from the start of the process to the first step."""
    environment = {**os.environ, "PYTHONPATH": f"{TRL}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "tests.benchmarks.trl_grpo", str(assets), *map(str, size), str(STEPS)]
    began = time.time()
    done = subprocess.run(command, env=environment, cwd=assets, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"TRL failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    return statistics.median(result["steps"][1:]), result["began"] - began


def run_verl(assets: Path, size: tuple[int, int, int]) -> tuple[float, float]:
    """Median seconds a step, and seconds from the start of the process to the first step."""
    prompts, rollouts, tokens = size
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "+recipe=cxr_grpo", "+scale=local"]
    command += [f"cxr.data={assets}", f"cxr.model={assets / 'model'}", f"cxr.assets={assets / 'run'}"]
    command += [f"data.train_batch_size={prompts}", f"actor_rollout_ref.rollout.n={rollouts}"]
    command += [f"data.max_response_length={tokens}", "actor_rollout_ref.rollout.ignore_eos=true"]
    command += [f"reward.reward_manager.module.path={Path(__file__).with_name('letters.py')}"]
    command += ["reward.reward_manager.name=LetterRewardManager", f"trainer.total_training_steps={STEPS}"]
    command += ["trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.save_freq=-1"]
    command += ["trainer.rollout_data_dir=null", "trainer.resume_mode=disable"]
    began = time.time()
    done = subprocess.run(command, cwd=assets, capture_output=True, text=True, check=False)
    steps = [float(value) for value in re.findall(r"timing_s/step:([\d.]+)", done.stdout)]
    if done.returncode or len(steps) != STEPS:
        raise RuntimeError(f"verl failed:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
    return statistics.median(steps[1:]), time.time() - began - sum(steps)
