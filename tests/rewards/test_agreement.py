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
"""What a text says about a measurement, and whether it is so, as tables."""

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reward_plugins.agreement import read, stance
from reward_plugins.relevance import TableError, load_table
from verl_cxr.facts.lexicon import read_facts
from verl_cxr.measure import MEASUREMENTS
from verl_cxr.question import Kind, Question

TABLE = load_table()

CLAIMS = [
    # text, value that it agrees with, value that it contradicts
    ("Cardiomegaly.", "ctr", 0.58, 0.42),
    ("The heart is enlarged.", "ctr", 0.58, 0.42),
    ("Possible cardiomegaly", "ctr", 0.58, 0.42),
    ("CTR is increased.", "ctr", 0.58, 0.42),
    ("The cardiothoracic ratio is above normal", "ctr", 0.58, 0.42),
    ("Heart size normal", "ctr", 0.42, 0.58),
    ("No cardiomegaly.", "ctr", 0.42, 0.58),
    ("The heart is not enlarged.", "ctr", 0.42, 0.58),
    ("The CTR is within normal limits", "ctr", 0.42, 0.58),
    ("CTR 0.55", "ctr", 0.56, 0.50),
    ("A CTR of 55 %", "ctr", 0.56, 0.50),
    ("CTR (cardiothoracic ratio) = .55", "ctr", 0.55, 0.60),
    ("a 0.55 cardiothoracic ratio", "ctr", 0.55, 0.60),
    ("CTR 0.55, so the heart is enlarged", "ctr", 0.55, 0.60),
    ("cardiothoracic ratio 0.55 (heart width over thorax width; from heart, lungs)", "ctr", 0.55, 0.60),
    ("The heart size is borderline", "ctr", 0.51, 0.58),
    ("larger right lung", "lfa", 0.4, 0.0),
    ("The right lung is larger than the left", "lfa", 0.4, -0.6),
    ("right lung bigger than left lung", "lfa", 0.4, -0.6),
    ("The left lung volume is reduced", "lfa", 0.4, -0.6),
    ("Volume loss on the right", "lfa", -0.6, 0.4),
    ("Right lower lobe collapse", "lfa", -0.6, 0.4),
    ("The lungs are symmetric", "lfa", -0.1, 0.6),
    ("No asymmetry of the lungs", "lfa", -0.1, 0.6),
    ("Asymmetric lungs", "lfa", 0.6, -0.1),
    ("the lungs are equal in size", "lfa", -0.1, -0.6),
    ("LFA \u22121.01", "lfa", -1.01, 1.01),
    ("LFA = ln(A_R/A_L) = -1.01", "lfa", -1.01, -0.5),
    ("lung-field asymmetry LFA = -0.12, symmetric lungs", "lfa", -0.12, 0.3),
    ("lung-field asymmetry is within the normal range", "lfa", -0.1, 0.6),
    ("mediastinal shift to the right", "shift", -0.1, 0.1),
    ("The mediastinum is shifted to the left", "shift", 0.1, -0.1),
    ("mediastinum displaced to the right", "shift", -0.1, 0.0),
    ("mediastinal shift", "shift", 0.1, 0.0),
    ("No mediastinal shift", "shift", 0.01, 0.1),
    ("No mediastinal shift to the right", "shift", 0.1, -0.1),
    ("The mediastinum is midline", "shift", 0.0, 0.1),
    ("The thoracic shift is 0.01, the mediastinum is central", "shift", 0.01, 0.1),
    ("mediastinal shift of 0.10 to the left", "shift", 0.1, -0.1),
    ("thoracic shift -0.08", "shift", -0.08, 0.08),
    ("The mediastinal shift is negligible", "shift", 0.01, 0.1),
]


@pytest.mark.parametrize(("text", "name", "so", "not_so"), CLAIMS, ids=[text for text, *_ in CLAIMS])
def test_a_text_agrees_with_what_is_so_and_contradicts_what_is_not(
    text: str, name: str, so: float, not_so: float
) -> None:
    said, measure = read(text, TABLE), TABLE.measures[name]
    assert stance(said[name], so, measure).agrees
    assert not stance(said[name], so, measure).contradicts
    assert not stance(said[name], not_so, measure).agrees
    assert stance(said[name], not_so, measure).contradicts


SILENT = [
    "", "The film is rotated.", "Rib fracture", "Heart size cannot be assessed.", "A CTR above 0.5 is abnormal.",
    "The CTR was not measured on 2 films.", "cardiothoracic ratio", "thoracic shift: see above", "LFA",
    "The trachea is deviated.", "ratio 0.55", "shift work",
]  # fmt: skip


@pytest.mark.parametrize("text", SILENT)
def test_a_text_that_says_nothing_neither_agrees_nor_contradicts(text: str) -> None:
    for name, said in read(text, TABLE).items():
        for value in (-1.0, 0.0, 0.45, 0.6):
            assert not stance(said, value, TABLE.measures[name]).agrees
            assert not stance(said, value, TABLE.measures[name]).contradicts


@pytest.mark.parametrize(
    "text",
    ["Cardiomegaly. The heart size is normal.", "CTR 0.45. CTR 0.58.", "The heart is not enlarged, CTR 0.58."],
)
def test_saying_both_earns_nothing_at_any_value(text: str) -> None:
    said = read(text, TABLE)["ctr"]
    assert not any(stance(said, value / 100, TABLE.measures["ctr"]).agrees for value in range(20, 49))
    assert not any(stance(said, value / 100, TABLE.measures["ctr"]).agrees for value in range(54, 90))


def test_numbers_of_the_question_are_no_quotations() -> None:
    assert read("The CTR of 0.6 is high", TABLE)["ctr"].quoted
    assert not read("The CTR of 0.6 is high", TABLE, asked="The CTR is 0.6. Why?")["ctr"].quoted


def test_a_length_is_quoted_but_cannot_be_compared() -> None:
    said = read("mediastinal shift of 2 cm", TABLE)["shift"]
    assert [quotation.value for quotation in said.quoted] == [None]
    assert stance(said, 0.1, TABLE.measures["shift"]).agrees is False


@pytest.mark.parametrize(
    ("asked", "denied", "so"),
    [
        ("Is there cardiomegaly?", False, 0.58),
        ("Is there cardiomegaly?", True, 0.42),
        ("Is the heart enlarged?", False, 0.58),
        ("Is the heart size normal?", True, 0.58),
        ("Is the heart size normal?", False, 0.42),
    ],
)
def test_yes_and_no_claim_what_the_question_asks(asked: str, denied: bool, so: float) -> None:
    said = read("", TABLE, asked=asked, denied=denied)["ctr"]
    assert stance(said, so, TABLE.measures["ctr"]).agrees
    assert stance(said, 1 - so, TABLE.measures["ctr"]).contradicts
    assert not read("", TABLE, asked=asked)["ctr"].allowed


@pytest.mark.parametrize(
    ("asked", "options", "relevant"),
    [
        ("Is there cardiomegaly?", (), {"ctr"}),
        ("What is the most likely diagnosis?", ("Cardiomegaly", "Rib fracture"), {"ctr"}),
        ("Which lung is larger?", (), {"lfa"}),
        ("Is there volume loss in the left lung?", (), {"lfa"}),
        ("Is the mediastinum shifted?", (), {"shift"}),
        ("Is there a tension pneumothorax?", (), {"shift"}),
        ("Is there a rib fracture?", (), set()),
        ("Where is the catheter tip?", ("SVC", "Right atrium"), set()),
    ],
)
def test_relevance_by_words(asked: str, options: tuple[str, ...], relevant: set[str]) -> None:
    kind = Kind.MULTIPLE_CHOICE if options else Kind.CLOSED
    assert TABLE.relevant(Question("q", (), asked, options, options[:1] or ("yes",), kind)) == relevant


@pytest.mark.parametrize(("said", "relevant"), [("lfa", {"lfa"}), (["ctr", "shift"], {"ctr", "shift"}), (None, set())])
def test_a_question_that_names_its_measurement_is_believed(said: object, relevant: set[str]) -> None:
    question = Question("q", (), "Is there cardiomegaly?", (), ("yes",), Kind.CLOSED, extra={"measurement": said})
    assert TABLE.relevant(question) == relevant


def test_the_table_knows_every_measurement_and_only_words_that_the_lexicon_knows() -> None:
    assert set(TABLE.measures) == set(MEASUREMENTS)
    unknown = set()
    for measure in TABLE.measures.values():
        for claim in measure.claims:
            for finding in claim.findings:
                texts = (
                    f"{finding} heart",
                    f"the lung is {finding}",
                    f"{finding} of the mediastinum",
                    f"{finding} lung",
                )
                found = {entity.tokens for text in texts for entity in read_facts(text).entities}
                unknown |= set() if finding in found else {finding}
    assert unknown == set()


@pytest.mark.parametrize("name", list(TABLE.measures))
@given(value=st.floats(-3, 3))
def test_every_value_is_in_a_state(name: str, value: float) -> None:
    assert TABLE.measures[name].states(value)
    assert TABLE.measures[name].states(value) <= TABLE.measures[name].all_states


def own(tmp_path: Path, **changes: object) -> str:
    record = yaml.safe_load((Path(__file__).parents[2] / "reward_plugins" / "measurements.yaml").read_text())
    record["measurements"]["ctr"] |= changes
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
    path.write_text(yaml.safe_dump(record))
    return str(path)


def test_a_table_of_ones_own_with_bands_of_a_mask_backend(tmp_path: Path) -> None:
    bands = {
        "default": {"normal": [None, 0.5], "borderline": [0.5, 0.5], "enlarged": [0.5, None]},
        "cxas": {"normal": [None, 0.6], "borderline": [0.6, 0.6], "enlarged": [0.6, None]},
    }
    measure = load_table(own(tmp_path, bands=bands)).measures["ctr"]
    assert measure.states(0.55) == {"enlarged"}
    assert measure.states(0.55, "phantom") == {"enlarged"}
    assert measure.states(0.55, "cxas") == {"normal"}


def test_a_real_mediastinum_lies_a_little_to_the_left() -> None:
    shift = TABLE.measures["shift"]
    assert shift.states(0.033) == {"central"}
    assert shift.states(0.06) == {"central", "to_left"}
    assert shift.states(0.06, "phantom") == {"to_left"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"bands": {"default": {"normal": [None, 0.5]}}}, "names the state"),
        ({"bands": {}}, "KeyError: 'default'"),
        ({"named": ["("]}, "is not a pattern"),
        ({"tolerance": "much"}, "could not convert"),
        ({"claims": [{"states": ["normal"]}]}, "KeyError"),
    ],
)
def test_a_table_that_is_none_is_an_error(tmp_path: Path, changes: dict[str, object], problem: str) -> None:
    path = own(tmp_path, **changes)
    with pytest.raises(TableError, match=problem) as error:
        load_table(path)
    assert path in str(error.value) or problem == "is not a pattern"


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    for text in ("[1, 2", "7", "- 1", ""):
        path.write_text(text)
        load_table.cache_clear()
        with pytest.raises(TableError, match=r"table\.yaml"):
            load_table(str(path))
    with pytest.raises(FileNotFoundError):
        load_table("/no/such/table.yaml")


HOSTILE = [
    "ctr " * 250_000, "ctr 0.5 " * 125_000, "lung is are of " * 70_000, "heart " * 160_000, "9" * 10**6,
    "shift to the right " * 50_000, "\ufdfa" * 300_000, "no " * 300_000, "mediastin " * 100_000, "lung " * 200_000,
    "0." * 500_000, "ctr" + " " * 10**6, "asymmetry of the " * 60_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:10].encode("unicode_escape").decode() for text in HOSTILE])
def test_a_megabyte_takes_bounded_time(text: str) -> None:
    begun = time.process_time()
    read(text, TABLE, asked="Is the heart enlarged?", denied=True)
    assert time.process_time() - begun < 3
