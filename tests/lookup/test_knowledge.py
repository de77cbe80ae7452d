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
"""The curated look-up: every statement has its source, every name finds one entry, the unknown stays unknown."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.lookup import LookupAnswer, make_lookup
from verl_cxr.lookup.knowledge import KnowledgeBase, KnowledgeError

BOOK = KnowledgeBase()
CHEXPERT = [
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation",
    "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices",
]  # fmt: skip


@pytest.mark.parametrize("label", CHEXPERT)
def test_the_labels_of_chexpert_are_there(label: str) -> None:
    answer = BOOK.look_up(label)
    assert answer.known
    assert answer.finding == label.lower()
    assert answer.sources


def test_at_least_25_further_findings_are_there() -> None:
    assert len({finding.name for finding in BOOK.findings} - {label.lower() for label in CHEXPERT}) >= 25


def test_every_statement_names_its_sources_and_every_source_is_used() -> None:
    cited = {source for finding in BOOK.findings for statement in finding.statements for source in statement.sources}
    assert cited == set(BOOK.sources)
    for finding in BOOK.findings:
        for statement in finding.statements:
            assert statement.sources
            assert statement.text.endswith(".")
            assert len(statement.text) <= 240
            assert "  " not in statement.text


def test_no_statement_is_there_twice() -> None:
    texts = [statement.text for finding in BOOK.findings for statement in finding.statements]
    assert len(texts) == len(set(texts))


def test_every_name_and_synonym_finds_its_entry() -> None:
    for finding in BOOK.findings:
        for name in (finding.name, *finding.synonyms):
            assert BOOK.look_up(name).finding == finding.name


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("Cardiac enlargement", "cardiomegaly"),
        ("  CARDIOMEGALY. ", "cardiomegaly"),
        ("the effusion", "pleural effusion"),
        ("effusion, pleural", "pleural effusion"),
        ("Pleural effusions", "pleural effusion"),
        ("Kerley-B lines", "septal lines"),
        ("oedema", "edema"),
        ("NG tube", "enteric tube"),
        ("ground glass", "ground-glass opacity"),
        ("Pneumothoraces", "pneumothorax"),
    ],
)
def test_names_as_people_write_them(asked: str, found: str) -> None:
    assert BOOK.look_up(asked).finding == found


def test_an_answer_carries_its_citations() -> None:
    answer = BOOK.look_up("cardiomegaly")
    assert answer.text.startswith("Cardiomegaly: ")
    assert "(Danzer 1919; Felson)" in answer.text
    assert any("Am J Med Sci 1919" in source for source in answer.sources)


def test_the_number_of_statements_is_bounded() -> None:
    short = KnowledgeBase(statements=1)
    assert short.look_up("pneumonia").text.count("(") == 1
    assert short.look_up("cardiomegaly").text in BOOK.look_up("cardiomegaly").text + " "
    with pytest.raises(ValueError, match="statements=0"):
        KnowledgeBase(statements=0)


@pytest.mark.parametrize(
    ("asked", "close"),
    [("pnuemothorax", "pneumothorax"), ("cardiomegally", "cardiomegaly"), ("bloody effusion", "pleural effusion")],
)
def test_a_name_that_is_not_there_says_nothing_and_names_close_ones(asked: str, close: str) -> None:
    answer = BOOK.look_up(asked)
    assert not answer.known
    assert answer.text.startswith(f"Nothing is recorded about '{asked}'; that says nothing about the film. Known names")
    assert close in answer.text
    assert answer.sources == ()


def test_a_name_that_is_close_to_nothing() -> None:
    text = "Nothing is recorded about 'unicorn'; that says nothing about the film."
    assert BOOK.look_up("unicorn") == LookupAnswer("unicorn", text, known=False)


@given(asked=st.text(max_size=200))
def test_no_name_breaks_it(asked: str) -> None:
    answer = BOOK.look_up(asked)
    assert len(answer.text) < 2000
    assert answer.known == bool(answer.sources)


@pytest.mark.parametrize("asked", ["a" * 10**6, "effusion " * 10**5, "\ud800" * 10**6, "\n" * 10**6])
def test_a_megabyte_is_cut(asked: str) -> None:
    assert len(BOOK.look_up(asked).text) < 2000


def own(tmp_path: Path, text: str) -> str:
    path = tmp_path / "book.yaml"
    path.write_text(text)
    return str(path)


GOOD = """
sources: {me: {short: Me 2026, full: "Me. My notes. 2026."}}
findings: {unicorn sign: {also: [horn], says: [["One horn.", me]]}}
"""


def test_a_book_of_ones_own(tmp_path: Path) -> None:
    answer = make_lookup("knowledge", path=own(tmp_path, GOOD)).look_up("horns")
    assert (answer.text, answer.sources) == ("Unicorn sign: One horn. (Me 2026)", ("Me. My notes. 2026.",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD.replace(", me]", "]"), "a statement names no source: 'One horn.'"),
        (GOOD.replace('["One horn.", me]', '["One horn.", you]'), "no source 'you'"),
        (GOOD.replace('[["One horn.", me]]', "[]"), "says nothing"),
        (GOOD.replace("Me 2026", "' '"), "needs a short and a full form"),
        ("[1", "not a knowledge base"),
        ("7", "not a knowledge base"),
        ("findings: {}", "KeyError: 'sources'"),
    ],
)
def test_a_file_that_is_no_knowledge_base(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(KnowledgeError, match=problem):
        KnowledgeBase(path=own(tmp_path, text))


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    record = yaml.safe_load(GOOD)
    record["findings"]["narwhal sign"] = {"also": ["Horns"], "says": [["A tooth.", "me"]]}
    with pytest.raises(KnowledgeError, match="'Horns' is a name of 'unicorn sign' and of 'narwhal sign'"):
        KnowledgeBase(path=own(tmp_path, yaml.safe_dump(record, sort_keys=False)))


def test_a_look_up_is_chosen_by_name() -> None:
    assert make_lookup("knowledge").name == "knowledge"
    with pytest.raises(ValueError, match="unknown look-up 'oracle': use one of knowledge, openai"):
        make_lookup("oracle")
    with pytest.raises(ValueError, match=r"lookup=knowledge: .*'pages'"):
        make_lookup("knowledge", pages=3)
    with pytest.raises(ValueError, match=r"lookup=openai: .*'url'"):
        make_lookup("openai", model="m")
    with pytest.raises(FileNotFoundError):
        make_lookup("knowledge", path="/no/such/book.yaml")


def test_the_configurations_make_their_look_ups() -> None:
    import hydra_configs

    for path in (Path(next(iter(hydra_configs.__path__))) / "lookup").glob("*.yaml"):
        options = yaml.safe_load(path.read_text())
        assert options["name"] == path.stem
        assert make_lookup(**options).name.startswith(path.stem)
