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
"""``verl-cxr facts``: what each command writes and says, and how it fails."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.facts import make_scorer
from verl_cxr.facts.published import PUBLISHED, Published
from verl_cxr.facts.references import reference_texts
from verl_cxr.facts.store import FactStore
from verl_cxr.files import RecordError


def record(number: int, *findings: str) -> dict:
    return {
        "id": f"s{number}",
        "image": None,
        "width": 100,
        "height": 100,
        "view": "PA",
        "split": "train",
        "report": {"findings": f"Report {number}.", "impression": None, "notes": None},
        "regions": [
            {"name": f"region {i}", "box": [0, 0, 50, 50], "frame": "pixel_xyxy", "finding": text}
            for i, text in enumerate(findings)
        ],
    }


@pytest.fixture
def studies(tmp_path, phrases):
    rows = [record(0, phrases[0], phrases[1], ""), record(1, phrases[1], phrases[2]), record(2, phrases[0])]
    path = tmp_path / "studies.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def parquet(tmp_path, studies):
    rows = [{"style": "rule", "ground_truth": line} for line in studies.read_text().splitlines()]
    path = tmp_path / "grpo_train.parquet"
    pq.write_table(pa.table({"reward_model": rows}), path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["facts", *map(str, arguments)])


@pytest.mark.parametrize("data", ["studies", "parquet"])
def test_references_are_the_distinct_findings(request, data, phrases):
    path = request.getfixturevalue(data)
    assert list(reference_texts(path)) == phrases[:3]
    assert list(reference_texts(path, reports=True)) == [
        phrases[0], phrases[1], "Report 0.", phrases[2], "Report 1.", "Report 2.",
    ]  # fmt: skip


def test_rows_that_hold_no_study_are_named(tmp_path):
    pq.write_table(pa.table({"messages": ["x"]}), tmp_path / "sft.parquet")
    with pytest.raises(RecordError, match=r"sft\.parquet, field 'reward_model': missing"):
        list(reference_texts(tmp_path / "sft.parquet"))
    good = json.dumps(record(0, "x"))
    pq.write_table(pa.table({"reward_model": [{"ground_truth": good}, {"ground_truth": "{"}]}), tmp_path / "b.parquet")
    with pytest.raises(RecordError, match=r"b\.parquet, row 2, field 'reward_model.ground_truth': not the JSON text"):
        list(reference_texts(tmp_path / "b.parquet"))
    (tmp_path / "c.parquet").write_text("text")
    with pytest.raises(RecordError, match=r"c\.parquet: not a parquet file"):
        list(reference_texts(tmp_path / "c.parquet"))


def test_warm_fills_a_store_and_training_finds_it(tmp_path, parquet, studies, radgraph_root, phrases, monkeypatch):
    store = tmp_path / "facts.sqlite"
    result = run("warm", "--data", parquet, "--store", store, "--weights", radgraph_root)
    assert result.exit_code == 0, result.output
    assert "3 distinct references: 3 read, 0 were there" in result.output
    result = run("warm", "--data", studies, "--store", store, "--weights", radgraph_root, "--reports")
    assert "6 distinct references: 3 read, 3 were there" in result.output
    scorer = make_scorer("radgraph-xl", weights=str(radgraph_root), store=str(store), service=False)
    assert scorer.score([(phrases[0], phrases[1])]) == make_scorer(f"radgraph-xl:{radgraph_root}").score(
        [(phrases[0], phrases[1])]
    )
    assert scorer.annotate.counts.store == 2
    assert scorer.annotate.counts.read == 0
    scorer.annotate.close()
    result = run("stats", "--store", store)
    assert result.exit_code == 0
    assert "radgraph-xl" in result.output
    assert FactStore.read_stats(store).models[0].graphs == 6


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--model", "modern-radgraph-xl"], 2, "is refused"),
        (["--device", "tpu"], 2, "use cpu, cuda"),
        (["--weights", "nowhere"], 1, "verl-cxr facts fetch"),
    ],
)
def test_warm_says_what_is_wrong(tmp_path, studies, arguments, code, message):
    result = run("warm", "--data", studies, "--store", tmp_path / "s.sqlite", *arguments)
    assert result.exit_code == code
    assert message in result.output
    assert not (tmp_path / "s.sqlite").exists()


def test_stats_of_something_else(tmp_path, studies):
    result = run("stats", "--store", studies)
    assert result.exit_code == 1
    assert "no fact store" in result.output
    assert run("stats", "--store", tmp_path / "none").exit_code == 1


def test_check_compares_with_what_is_published(radgraph_root, monkeypatch):
    result = run("check", "--weights", radgraph_root)  # random weights cannot give the published F1
    assert result.exit_code == 1
    assert "published: 0.6667" in result.output
    assert "do not trust it" in result.output
    easy = Published("what it should", (("small effusion", "small effusion"),), {"partial": 1.0})
    monkeypatch.setattr("verl_cxr.facts.published.PUBLISHED", {"radgraph-xl": easy})
    result = run("check", "--weights", radgraph_root)
    assert result.exit_code == 0, result.output
    assert "radgraph-xl gives what it should" in result.output


def test_each_model_has_something_to_be_checked_by():
    assert set(PUBLISHED) == {"radgraph-xl", "radgraph"}
    for published in PUBLISHED.values():
        assert set(published.f1) == {"simple", "partial", "complete"}


def test_fetch(tmp_path, monkeypatch, radgraph_root):
    import verl_cxr.facts.weights as weights

    result = run("fetch", "--out", tmp_path, "--model", "echograph")
    assert result.exit_code == 2
    monkeypatch.setattr(weights, "fetch", lambda model, out: weights.locate(model, radgraph_root))
    result = run("fetch", "--out", radgraph_root)
    assert result.exit_code == 0
    assert "verl-cxr facts check" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": ""}, "store=''"),
        ({"threads": 0}, "threads=0"),
        ({"gpus": -1}, "gpus=-1"),
        ({"download": "yes"}, "download='yes'"),
        ({"weight": "x"}, "weight"),
        ({"store_gib": float("nan")}, "store_gib"),
    ],
)
def test_options_outside_their_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_scorer("radgraph-xl", **options)


def test_options_that_others_do_not_have_are_refused():
    with pytest.raises(ValueError, match="'lexicon' has no use for store, service"):
        make_scorer("lexicon", store="x", service=True)
