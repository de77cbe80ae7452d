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
"""White space, blanks and sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_cxr.reports.text import clean_text, has_blank, split_sentences


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("The lungs\n are  clear.\t No\r\n effusion. ", "The lungs are clear. No effusion."),
        ("Compared to ______, ____ is seen.", "Compared to ___, ___ is seen."),
        ("PORTABLE UPRIGHT AP VIEW OF THE CHEST: The lungs are clear.", "The lungs are clear."),
        ("PA AND LATERAL CHEST RADIOGRAPHS. Normal.", "Normal."),
        ("WET READ: ___ ___ 8:19 AM No pneumonia.", "No pneumonia."),
        ("PA and lateral views of the chest. Normal.", "PA and lateral views of the chest. Normal."),
        ("COPD. Normal.", "COPD. Normal."),
        ("THE LUNGS ARE CLEAR. NORMAL.", "THE LUNGS ARE CLEAR. NORMAL."),
        ("", ""),
    ],
)
def test_clean_text(text, clean):
    assert clean_text(text) == clean


def test_blanks():
    assert has_blank("Seen by Dr. ___.")
    assert has_blank("XXXX clips are noted.")
    assert not has_blank("Right lower lobe.")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("A 2.5 cm mass. It is new.", ["A 2.5 cm mass.", "It is new."]),
        ("Dr. Smith was told. 1. No pneumonia. 2. Scar.", ["Dr. Smith was told.", "1. No pneumonia.", "2. Scar."]),
        ("Seen by J. Smith at 5 p.m. on Monday.", ["Seen by J. Smith at 5 p.m. on Monday."]),
        ("Stable. ___ is seen. (See below.) XXXX clips.", ["Stable.", "___ is seen.", "(See below.)", "XXXX clips."]),
        ("One", ["One"]),
        ("", []),
    ],
)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


@given(st.text(alphabet="aB1. ?_)(\n"))
def test_no_word_is_lost(text):
    clean = clean_text(text)
    assert " ".join(split_sentences(clean)).split() == clean.split()
    assert clean_text(clean) == clean
