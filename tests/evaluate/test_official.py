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
"""RadEval in its own environment; where that environment exists, parity on real reports."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from verl_cxr.evaluate import official
from verl_cxr.evaluate.metrics import compute
from verl_cxr.evaluate.official import KEYS, METRICS, OfficialError, ensure, find, score


def test_parity_on_real_reports(open_i):
    if find() is None:
        pytest.skip("RadEval's environment is not on this machine: `verl-cxr evaluate reports --official` makes it")
    names = ["bleu2", "bleu4", "rougeL"]
    pairs = open_i[:600]
    theirs = score([pairs], names).values
    assert {ours.name: round(ours.value, 4) for ours in compute(names, pairs)} == {
        name: theirs[KEYS[name]][0] for name in names
    }


@pytest.fixture
def commands(monkeypatch):
    """Records what would be run, and runs nothing; `fail` is the text that a failing command prints."""
    ran = []

    def run(command, **options):
        ran.append((command, options))
        if "venv" in command:
            python = official._python(Path(command[-1]))
            python.parent.mkdir(parents=True)
            python.touch()
        return subprocess.CompletedProcess(command, 1 if run.fail else 0, "", run.fail)

    run.fail = ""
    monkeypatch.setattr(official.subprocess, "run", run)
    return ran, run


def test_the_environment_is_made_once(tmp_path, commands):
    ran, _ = commands
    folder = tmp_path / "cache" / "radeval"
    assert find(folder) is None
    python = ensure(folder)
    assert find(folder) == ensure(folder) == python
    venv, requirements, radeval = (command for command, _ in ran)
    assert venv[:3] == [sys.executable, "-m", "venv"]
    assert "torch==2.13.0" in requirements
    assert not any(text.startswith(("torchvision", "medspacy")) for text in requirements)
    assert radeval[-2:] == ["--no-deps", "radeval==2.2.1"]


def test_an_environment_of_another_recipe_or_half_made_is_made_again(tmp_path, commands):
    _, run = commands
    folder = tmp_path / "radeval"
    run.fail = "no space left"
    with pytest.raises(OfficialError, match="no space left"):
        ensure(folder)
    assert find(folder) is None
    run.fail = ""
    shutil.rmtree(folder)
    ensure(folder)
    (folder / "complete.json").write_text(json.dumps(["radeval==2.0"]))
    assert find(folder) is None


def test_an_old_python_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(official.sys, "version_info", (3, 10, 2))
    with pytest.raises(OfficialError, match=r"needs Python 3\.11"):
        ensure(tmp_path / "radeval")


def test_the_program_reports_a_metric_that_fails(tmp_path):
    """The program with a RadEval of three lines: what goes in, what comes out, and the alias."""
    package = tmp_path / "site" / "radeval"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class RadEval:\n"
        "    def __init__(self, metrics, detailed, show_progress): self.name = metrics[0]\n"
        "    def __call__(self, refs, hyps):\n"
        "        import RadEval\n"
        "        if self.name == 'bertscore': raise OSError('no weights')\n"
        "        return {'bleu': float(len(refs)), 'labels': {}}\n"
    )
    for name in ("radeval", "torch", "transformers", "rouge_score", "numpy"):
        info = tmp_path / "site" / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.json"
    rows.write_text("".join(json.dumps({"file": n, "prediction": "p", "reference": "r"}) + "\n" for n in (0, 0, 1)))
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "from verl_cxr.evaluate import radeval_program as program\n"
        f"program.main({str(rows)!r}, {str(out)!r}, ['bleu', 'bertscore'])"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    found = json.loads(out.read_text())
    assert found["values"] == {"bleu": [2.0, 1.0]}
    assert found["skipped"] == {"bertscore": "OSError: no weights"}
    assert found["versions"]["radeval"] == "1.0"


def test_tables_of_names_fit():
    assert set(METRICS) == {"bleu2", "bleu4", "rougeL", "bertscore", "facts", "chexbert"}
    assert set(METRICS.values()) == {"bleu", "rouge", "bertscore", "radgraph", "f1chexbert"}


@pytest.mark.parametrize(
    ("answers", "names", "offline"), [(False, "facts", "1"), (True, "facts", None), (False, "bleu2", None)]
)
def test_an_absent_hub_is_not_asked_again_and_again(tmp_path, monkeypatch, answers, names, offline):
    seen = []

    def run(command, *, cwd, extra):
        seen.append(extra.get("HF_HUB_OFFLINE"))
        Path(command[3]).write_text(json.dumps({"values": {}, "skipped": {}, "versions": {}}))

    monkeypatch.setattr(official, "ensure", lambda folder: Path("python"))
    monkeypatch.setattr(official, "_hub_answers", lambda: answers)
    monkeypatch.setattr(official, "_run", run)
    score([[("a", "a")]], [names])
    assert seen == [offline]
