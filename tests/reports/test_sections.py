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
"""Sections of MIMIC-CXR reports, and overrides by file."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.files import RecordError
from verl_cxr.reports.overrides import read_overrides
from verl_cxr.reports.sections import split_report

REPORT = """                                 FINAL REPORT
 EXAMINATION:  CHEST (PA AND LAT)

 INDICATION:  ___ year old woman with cough: rule out
 pneumonia.

 COMPARISONS:  ___.

 FINDINGS:

 The lungs are clear.  There is no effusion.

 The heart is normal.

 IMPRESSION:  No acute process.
""".replace("\n\n", "\n \n")


def test_sections_by_name():
    sections = split_report(REPORT)
    assert sections.findings == "The lungs are clear.  There is no effusion.\n \n The heart is normal."
    assert sections.impression == "No acute process."
    assert sections.named["examination"] == "CHEST (PA AND LAT)"
    assert sections.named["comparison"] == "___."
    assert sections.named["indication"] == "___ year old woman with cough: rule out\n pneumonia."
    assert sections.last_paragraph is None


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("FINDINGS", "findings"),
        ("FINDINGS AND IMPRESSION", "impression"),
        ("FINDINGS/IMPRESSION", "impression"),
        ("CONCLUSION", "impression"),
        ("IMPRESSON", "impression"),
        ("FINIDNGS", "findings"),
        ("CHEST, TWO VIEWS", "findings"),
        ("CHEST (PORTABLE AP)", "findings"),
        ("PORTABLE SUPINE FRONTAL VIEW", "findings"),
        ("RIGHT RIBS", "findings"),
        ("PRELIMINARY IMPRESSION", "impression"),
        ("COMPARISON EXAM", "comparison"),
        ("COMPARISON TO PRIOR", "comparison"),
        ("REASON FOR EXAM", "indication"),
        ("CLINICAL INFORMATION", "history"),
        ("PAST MEDICAL HISTORY", "history"),
        ("RECOMMENDATION(S)", "recommendations"),
        ("WETREAD", "wet read"),
        ("TECHNIQUE", "technique"),
    ],
)
def test_names_of_headers(header, name):
    assert split_report(f" FINAL REPORT\n {header}:  Text.\n").named[name] == "Text."


def test_what_is_no_header():
    text = " FINAL REPORT\n FINDINGS: One.\nIMPRESSION: not behind a space.\n Note: lower case.\n NOTE:no space.\n"
    sections = split_report(text)
    assert sections.impression is None
    assert sections.findings == text.partition("FINDINGS: ")[2].strip()


def test_a_header_in_the_line_of_another_is_text():
    assert split_report(" X\n COMPARISON: FINDINGS: A.\n").named["comparison"] == "FINDINGS: A."


def test_an_empty_findings_does_not_count_and_the_last_of_a_name_holds():
    text = " R\n CHEST, PA LATERAL:\n \n INDICATION: Cough.\n \n IMPRESSION: Old.\n \n IMPRESSION: New.\n \n"
    text += " FINDINGS:\n \n"
    sections = split_report(text)
    assert sections.findings is None
    assert sections.impression == "New."


def test_a_report_holds_over_the_addendum_before_it():
    line = " " + "_" * 78
    text = f" ADDENDUM\n IMPRESSION:  Of the addendum.\n{line}\n FINAL REPORT\n IMPRESSION:  Of the report.\n"
    assert split_report(text).impression == "Of the report."
    only = split_report(text.replace("IMPRESSION:  Of the report", "FINDINGS:  Of the report"))
    assert (only.findings, only.impression) == ("Of the report.", "Of the addendum.")  # not up to FINAL REPORT


def test_last_paragraph():
    without = " FINAL REPORT\n INDICATION:  Cough.\n \n The lungs are clear.\n \n No effusion.\n"
    sections = split_report(without)
    assert sections.last_paragraph == "The lungs are clear.\n \n No effusion."
    assert sections.named["indication"] == "Cough."
    bare = split_report(" CHEST RADIOGRAPH\n The lungs are clear.\n")
    assert bare.last_paragraph == "CHEST RADIOGRAPH\n The lungs are clear."
    paragraphs = split_report(" FINAL REPORT\n \n The lungs are clear.\n")
    assert paragraphs.last_paragraph == "The lungs are clear."
    assert split_report("").named == {}


def test_overrides():
    assert split_report(REPORT, "indication").impression == "___ year old woman with cough: rule out\n pneumonia."
    assert split_report(REPORT, "indication").findings is None
    start = REPORT.index("The heart")
    assert split_report(REPORT, (start, start + 20)).impression == "The heart is normal."
    assert split_report(REPORT, "no such section").named == {}


@given(st.text(alphabet="AB :\n_,()/-a."))
def test_never_an_error_and_never_empty(text):
    assert all(section.strip() for section in split_report(text).named.values())


def test_time_is_not_quadratic_in_hostile_text():
    start = time.perf_counter()
    for hostile in ("\n " + "A" * 200_000, "\n A: " * 20_000, "\n" + "_" * 200_000, "\n \t" * 60_000):
        split_report(hostile)
    assert time.perf_counter() - start < 5


def test_overrides_of_ones_own(tmp_path):
    path = tmp_path / "o.yaml"
    path.write_text("s50000001: recommendations\ns50000002: [201, 349]\n")
    assert read_overrides(path) == {"s50000001": "recommendations", "s50000002": (201, 349)}
    path = tmp_path / "o.json"
    path.write_text('{"s50000001": [0, 3]}')
    assert read_overrides(path) == {"s50000001": (0, 3)}


def test_the_published_program_is_read_and_not_run(tmp_path):
    path = tmp_path / "section_parser.py"
    path.write_text(
        "import nowhere_to_be_found\n"
        "def custom_mimic_cxr_rules():\n"
        "    custom_section_names = {\n        's50000001': 'recommendations',  # files/p10/...\n    }\n"
        "    custom_indices = {'s50000002': [201, 349]}\n"
        "    return custom_section_names, custom_indices\n"
    )
    assert read_overrides(path) == {"s50000001": "recommendations", "s50000002": (201, 349)}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("o.yaml", "- a\n", "by study, not a list"),
        ("o.yaml", "s1: [1]\n", "field 's1'"),
        ("o.yaml", "s1: [-1, 4]\n", "first, last"),
        ("o.yaml", "s1: {", "cannot be read"),
        ("o.py", "x = 1\n", "custom_section_names"),
        ("o.py", "custom_indices = {'s1': open('/etc/passwd')}\n", "cannot be read"),
        ("o.py", "def (", "cannot be read"),
    ],
)
def test_overrides_that_are_none(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(RecordError, match=message):
        read_overrides(path)
