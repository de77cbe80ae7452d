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
"""Question sets: the real rows of SLAKE, VQA-RAD and Rad-ReStruct, and miniatures of the others with their quirks."""

import gzip
import json
from collections import Counter

import pytest
from reading import drops, film, lines, problems, questions_of, shared

from verl_cxr.data.questions import load_question_sets
from verl_cxr.files import RecordError
from verl_cxr.question import Question


def kinds(questions):
    return Counter((question.split, question.kind.value) for question in questions)


def one(found):
    (question,), _ = found
    return question


def dump(path, value, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, **options))
    return path


def test_every_set_is_registered():
    assert list(load_question_sets()) == [
        "chestagentbench", "chexbench", "gemex", "mimic_cxr_vqa", "rad_restruct", "slake", "vqa_rad",
    ]  # fmt: skip
    assert all(chosen.summary.startswith("Read ") for chosen in load_question_sets().values())


# SLAKE


def test_real_rows_of_slake():
    questions, funnel = questions_of("slake", root=shared("slake"))
    assert lines(funnel) == {"questions listed": 2122}
    assert drops(funnel) == {}
    assert kinds(questions) == {
        ("train", "closed"): 379, ("train", "two_option"): 70, ("train", "multiple_choice"): 3, ("train", "open"): 971,
        ("validate", "closed"): 84, ("validate", "two_option"): 10, ("validate", "multiple_choice"): 1,
        ("validate", "open"): 243,
        ("test", "closed"): 96, ("test", "two_option"): 18, ("test", "open"): 247,
    }  # fmt: skip
    # The set's own label: 454, 95 and 114 closed rows, of which two are answered by Both.
    closed = Counter(question.split for question in questions if question.extra["answer_type"] == "CLOSED")
    assert closed == {"train": 454, "validate": 95, "test": 114}
    assert sum(q.answer == ("Both",) and q.extra["answer_type"] == "CLOSED" for q in questions) == 2
    assert len({question.id for question in questions}) == 2122
    assert Counter(question.category[0] for question in questions)["Abnormality"] == 615


SLAKE = {
    "img_id": 1, "img_name": "xmlab1/source.jpg", "question": "Which organ is abnormal, heart or lung?",
    "answer": "Lung", "q_lang": "en", "location": "Lung", "modality": "X-Ray", "answer_type": "CLOSED",
    "base_type": "vqa", "content_type": "Abnormality", "triple": ["vhead", "_", "_"], "qid": 9,
}  # fmt: skip


def test_slake_as_it_is_published(tmp_path):
    image = film(tmp_path / "imgs" / "xmlab1" / "source.jpg")
    dump(tmp_path / "train.json", [SLAKE])
    dump(tmp_path / "validate.json", [SLAKE | {"qid": 10, "answer": "Yes", "question": "Is it?"}])
    rows = [{"q_lang": "zh"}, {"modality": "CT"}, {"location": "Abdomen"}, {"qid": 11, "location": "Chest"}]
    dump(tmp_path / "test.json", [SLAKE | row for row in rows])
    questions, funnel = questions_of("slake", root=tmp_path)
    assert [(q.id, q.split, q.kind.value, q.options, q.answer, q.images) for q in questions] == [
        ("slake-9", "train", "two_option", ("heart", "lung"), ("lung",), (image,)),
        ("slake-10", "validate", "closed", (), ("yes",), (image,)),
        ("slake-11", "test", "two_option", ("heart", "lung"), ("lung",), (image,)),
    ]
    assert drops(funnel) == {"another language": 1, "another modality": 1, "another part of the body": 1}


# VQA-RAD


def test_real_rows_of_vqa_rad():
    views = shared("vqa_rad", "view_labels_from_qa.json")
    questions, funnel = questions_of("vqa_rad", root=shared("vqa_rad"), views=views)
    assert lines(funnel) == {"questions listed": 620}
    assert drops(funnel) == {}
    assert kinds(questions) == {("train", "closed"): 368, ("train", "two_option"): 21, ("train", "open"): 231}
    assert Counter(question.extra["answer_type"] for question in questions) == {"CLOSED": 395, "OPEN": 225}
    assert len({question.id for question in questions}) == 620
    images = {question.images[0] for question in questions}
    assert len(images) == 107
    assert all(image.is_file() for image in images)
    told = {question.images[0].name: question.view for question in questions if question.view}
    assert told == json.loads(views.read_bytes())
    assert Counter(q.category for q in questions)["ATTRIB",] == 18  # 17, and one that is spelt ATRIB
    by_id = {question.id: question for question in questions}
    assert by_id["vqa_rad-1"].answer == ("no",)
    assert [q.answer for q in questions if q.answer[0].isdecimal()] != []  # two answers are numbers


VQA_RAD = {
    "qid": 1, "phrase_type": "freeform", "image_name": "a.jpg", "image_organ": "CHEST", "question_type": "PRES, ATRIB",
    "question": "Is it normal?", "answer": "Yes ", "answer_type": "CLOSED ",
}  # fmt: skip


def test_vqa_rad_as_it_is_published(tmp_path):
    image = film(tmp_path / "VQA_RAD Image Folder" / "a.jpg")
    rows = [
        VQA_RAD,
        VQA_RAD | {"qid": 2, "phrase_type": "test_para", "answer": 3, "answer_type": "OPEN"},
        VQA_RAD | {"qid": 3, "image_organ": "HEAD"},
    ]
    dump(tmp_path / "VQA_RAD Dataset Public.json", rows)
    questions, funnel = questions_of("vqa_rad", root=tmp_path)
    assert [(q.id, q.split, q.kind.value, q.answer, q.category, q.images) for q in questions] == [
        ("vqa_rad-1", "train", "closed", ("yes",), ("PRES", "ATTRIB"), (image,)),
        ("vqa_rad-2", "test", "open", ("3",), ("PRES", "ATTRIB"), (image,)),
    ]
    assert drops(funnel) == {"another part of the body": 1}


# Rad-ReStruct


def test_real_rows_of_rad_restruct():
    questions, funnel = questions_of("rad_restruct", root=shared("rad_restruct"))
    assert lines(funnel) == {"reports": 100, "questions listed": 5217}
    assert drops(funnel) == {}
    assert funnel["problems"] == []
    assert kinds(questions) == {
        ("test", "closed"): 4792, ("test", "multi_label"): 251, ("test", "multiple_choice"): 142,
        ("test", "two_option"): 32,
    }  # fmt: skip
    assert all(question.images for question in questions)
    first = questions[6]
    assert first.extra["question"] == "What is the degree?"
    assert first.question == (
        "Is there anything abnormal in the lung? yes\nIs there anything abnormal in the whole lung? yes\n"
        "In which area? unspecified\nWhat are the attributes? no selection\nWhat is the degree?"
    )
    assert first.answer == ("hyperdistention", "mild")
    assert (first.category, first.extra["study"]) == (("lung",), "CXR5")
    assert first.images[0].name == "CXR5_IM-2117-1003002.png"
    bare, _ = questions_of("rad_restruct", root=shared("rad_restruct"), history=False)
    assert bare[6].question == "What is the degree?"
    assert bare[6].extra == first.extra


ITEM = ["In which area?", ["left"], [["Is it?", ["yes"]]], {
    "answer_type": "multi_choice", "options": ["left", "right"], "path": "lung_signs",
}]  # fmt: skip


def test_rad_restruct_as_it_is_published(tmp_path):
    dump(tmp_path / "train_qa_pairs" / "10.json", [ITEM])
    dump(tmp_path / "train_qa_pairs" / "9.json", [ITEM])
    dump(tmp_path / "val_qa_pairs" / "3.json", [ITEM])
    dump(tmp_path / "id_to_img_mapping_frontal_reports.json", {"9": ["CXR9_IM-1-1001", "CXR9_IM-1-1002"]})
    films = [film(tmp_path / "films" / f"CXR9_IM-1-100{number}.png") for number in (1, 2)]
    questions, _ = questions_of("rad_restruct", root=tmp_path, images=tmp_path / "films")
    assert [(q.id, q.split, q.images) for q in questions] == [
        ("rad_restruct-CXR9-000", "train", tuple(films)),
        ("rad_restruct-CXR10-000", "train", ()),
        ("rad_restruct-CXR3-000", "validate", ()),
    ]


# CheXbench

CHEXBENCH = {
    "data_source": "MIMIC-CXR", "image_path": "files/a.jpg", "question": "What is the view?", "option_0": "AP",
    "option_1": "PA", "option_2": "LATERAL", "option_3": float("nan"), "answer": 1, "slice": "PA",
}  # fmt: skip


def test_chexbench(tmp_path):
    grounding = "<|ref|>effusion<|/ref|><|box|>(12,30),(45,61)<|/box|>"
    tasks = {
        "View Classification": [CHEXBENCH, CHEXBENCH | {"answer": "2.0", "option_2": None, "option_3": "LATERAL"}],
        "Binary Disease": [CHEXBENCH | {"option_0": "Yes", "option_1": "No", "option_2": float("nan")}],
        "Temporal": [CHEXBENCH | {"image_path": "a.jpg|b/c.jpg", "option_2": float("nan"), "slice": float("nan")}],
        "Two": [CHEXBENCH | {"image_path": ["a.jpg", "b.jpg"]}],
        "Phrase Grounding": [{"image_path": ["a.jpg"], "question": "Where?", "answer": grounding, "data_source": "x"}],
    }
    dump(tmp_path / "data.json", tasks)
    questions, funnel = questions_of("chexbench", root=tmp_path)
    assert funnel["problems"] == []
    view, moved, binary, temporal, two, where = questions
    assert (view.id, view.options, view.answer, view.letters) == (
        "chexbench-view-classification-00001", ("AP", "PA", "LATERAL"), ("PA",), ("B",),
    )  # fmt: skip
    assert view.category == ("View Classification", "PA")
    assert (moved.options, moved.answer) == (("AP", "PA", "LATERAL"), ("LATERAL",))
    assert (binary.kind.value, binary.options, binary.answer) == ("closed", (), ("no",))
    assert (temporal.kind.value, [path.name for path in temporal.images]) == ("two_option", ["a.jpg", "c.jpg"])
    assert temporal.category == ("Temporal",)
    assert [path.name for path in two.images] == ["a.jpg", "b.jpg"]
    assert (where.kind.value, where.extra["boxes"], where.extra["box_frame"]) == (
        "open",
        [[12, 30, 45, 61]],
        "percent_xyxy",
    )
    assert {question.split for question in questions} == {"test"}
    some, _ = questions_of("chexbench", root=tmp_path / "data.json", tasks="temporal, two")
    assert [question.extra["task"] for question in some] == ["Temporal", "Two"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"answer": 3}, "field 'answer': no such option: number 3 of 3"),
        ({"answer": float("nan")}, "field 'answer': missing"),
        ({"answer": [9]}, "field 'answer': no such option"),
        ({"image_path": 5}, "field 'image_path': must be a path"),
        ({"image_path": "a.jpg||b.jpg"}, "field 'image_path': must be a path"),
        ({"image_path": "../../etc/passwd"}, "field 'image_path': lies outside the root"),
        ({"question": float("nan")}, "field 'question': missing"),
        ({"option_2": "PA"}, "field 'options[2]': 'PA' repeats"),
        (
            {"option_0": float("nan"), "option_1": float("nan"), "option_2": float("nan"), "answer": []},
            "field 'answer'",
        ),
    ],
)
def test_a_broken_row_of_chexbench(tmp_path, change, place):
    dump(tmp_path / "data.json", {"View": [CHEXBENCH | change, CHEXBENCH], "Other": "text"})
    questions, funnel = questions_of("chexbench", root=tmp_path)
    assert [question.id for question in questions] == ["chexbench-view-00002"]
    assert drops(funnel) == {"broken record": 1}
    assert any("data.json, row 1" in text and place in text for text in problems(funnel))
    assert any("field 'Other': a task must be a list" in text for text in problems(funnel))
    with pytest.raises(RecordError, match="row 1"):
        questions_of("chexbench", root=tmp_path, strict=True)


# ChestAgentBench

AGENT = {
    "question_id": "17_2", "full_question_id": "17_2", "case_id": "17", "answer": "B",
    "question": "What is a likely cause?\nA) Edema\nB) Effusion\nC) Collapse\nD) Mass\nE) Fracture\nF) None",
    "images": ["figures/17/figure_1.jpg"], "image_source_urls": [["https://x", "https://y"]], "explanation": "E.",
    "categories": "Detection,Diagnosis", "sections": "", "type": "multiple_choice",
}  # fmt: skip


def test_chestagentbench(tmp_path):
    rows = [AGENT, AGENT | {"question_id": "17_1", "images": [], "answer": "F"}]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    questions, funnel = questions_of("chestagentbench", root=tmp_path)
    first, second = questions
    assert (first.id, first.images, first.answer) == ("17_1", (), ("None",))
    assert (second.question, second.letters) == ("What is a likely cause?", ("B",))
    assert second.options == ("Edema", "Effusion", "Collapse", "Mass", "Fracture", "None")
    assert second.category == ("Detection", "Diagnosis")
    assert second.images == (tmp_path / "figures/17/figure_1.jpg",)
    assert second.extra["case_id"] == "17"
    assert funnel["problems"] == []


def test_the_order_of_chestagentbench_does_not_matter(tmp_path):
    rows = [AGENT | {"question_id": f"{number}_1"} for number in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, reversed(rows))))
    read = [questions_of("chestagentbench", root=tmp_path / name)[0] for name in ("a.jsonl", "b.jsonl")]
    assert read[0] == read[1]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"answer": "G"}, "field 'answer': none of the options: 'G'"),
        ({"answer": ["B", "H"]}, "field 'answer'"),
        ({"question": "No options here"}, "field 'question': no options found"),
        ({"images": "figures/a.jpg"}, "field 'images': must be a list"),
        ({"images": ["../../../etc/passwd"]}, "field 'images': lies outside the root"),
        ({"question_id": None}, "field 'question_id': missing"),
        ({"categories": ["a"]}, "field 'categories': must be text"),
    ],
)
def test_a_broken_row_of_chestagentbench(tmp_path, change, place):
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, [AGENT | change, AGENT])))
    questions, funnel = questions_of("chestagentbench", root=tmp_path)
    assert len(questions) == 1
    (problem,) = problems(funnel)
    assert f"metadata.jsonl, row 1, {place}" in problem


# MIMIC-CXR-VQA

VQA = {
    "split": "train", "idx": 1, "image_id": "d1", "subject_id": "10000032", "study_id": "50414267",
    "image_path": "p10/p10000032/s50414267/d1.jpg", "question": "Is there an effusion?", "content_type": "presence",
    "semantic_type": "verify", "template_arguments": {"object": {"0": "left lung"}, "attribute": {"0": "effusion"}},
    "answer": ["yes"],
}  # fmt: skip
OFFERED = {"object": {"0": "left lung"}, "attribute": {"0": "effusion", "1": "mass"}}


def test_mimic_cxr_vqa(tmp_path):
    image = film(tmp_path / "jpg" / "files" / VQA["image_path"])
    rows = [
        VQA,
        VQA | {"idx": 2, "semantic_type": "query", "answer": []},
        VQA | {"idx": 3, "semantic_type": "query", "answer": ["effusion", "mass"]},
        VQA | {"idx": 4, "semantic_type": "choose", "answer": ["mass"], "template_arguments": OFFERED},
        VQA | {"idx": 5, "semantic_type": "choose", "answer": ["nodule"], "template_arguments": OFFERED},
        VQA | {"idx": 6, "answer": "No"},
        {key: value for key, value in (VQA | {"idx": 7}).items() if key != "image_path"},
    ]
    dump(tmp_path / "dataset" / "train.json", rows)
    dump(tmp_path / "dataset" / "valid.json", [VQA])
    questions, funnel = questions_of("mimic_cxr_vqa", root=tmp_path, films=tmp_path / "jpg")
    assert funnel["problems"] == []
    assert [(q.id.rpartition("-")[2], q.kind.value, q.options, q.answer) for q in questions] == [
        ("1", "closed", (), ("yes",)),
        ("2", "multi_label", (), ()),
        ("3", "multi_label", (), ("effusion", "mass")),
        ("4", "multi_label", ("effusion", "mass"), ("mass",)),
        ("5", "multi_label", (), ("nodule",)),
        ("6", "closed", (), ("no",)),
        ("7", "closed", (), ("yes",)),
        ("1", "closed", (), ("yes",)),
    ]
    assert {question.images for question in questions} == {(image,)}
    assert {question.split for question in questions} == {"train", "validate"}
    assert questions[0].extra == {"image": "d1", "study": "s50414267"}
    assert questions[0].category == ("presence", "verify")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"answer": []}, "field 'answer': must not be empty"),
        ({"answer": ["yes", "no"]}, "field 'answer': a closed question has one"),
        ({"answer": ["maybe"]}, "field 'answer[0]': a closed question is answered by yes or no"),
        ({"image_path": "../../x.jpg"}, "field 'image_path': lies outside the root"),
        ({"idx": None}, "field 'idx': missing"),
        ({"semantic_type": "choose", "template_arguments": "x"}, "field 'template_arguments': must be an object"),
    ],
)
def test_a_broken_row_of_mimic_cxr_vqa(tmp_path, change, place):
    dump(tmp_path / "test.json", [VQA | change, VQA])
    questions, funnel = questions_of("mimic_cxr_vqa", root=tmp_path)
    assert len(questions) == 1
    assert f"test.json, row 1, {place}" in problems(funnel)[0]


def test_rows_whose_answers_were_not_made_yet(tmp_path):
    dump(tmp_path / "_train.json", [VQA])
    with pytest.raises(FileNotFoundError, match=r"train\.json"):
        questions_of("mimic_cxr_vqa", root=tmp_path)
    dump(tmp_path / "train.json", [{key: value for key, value in VQA.items() if key != "answer"}])
    assert "field 'answer': missing" in problems(questions_of("mimic_cxr_vqa", root=tmp_path)[1])[0]


# GEMeX

GEMEX = {
    "image_path": "p10/p10000032/s50414267/d1.jpg", "question_type": "single-choice", "question": "Which side?",
    "choices": ["A. Left", "B. Right"], "answer": "A", "reason": "Blunted.",
    "visual_regions": ["left costophrenic angle"], "visual_locations": [[150, 120, 190, 160]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "kind", "options", "answer"),
    [
        ({}, "two_option", ("Left", "Right"), ("Left",)),
        ({"choices": {"B": "Right", "A": "Left"}, "answer": "B. Right"}, "two_option", ("Left", "Right"), ("Right",)),
        ({"choices": "A. Left B. Right"}, "two_option", ("Left", "Right"), ("Left",)),
        ({"choices": None, "question": "Which side? A. Left B. Right"}, "two_option", ("Left", "Right"), ("Left",)),
        (
            {"choices": ["Left", "Right", "Top"], "question_type": "multi-choice", "answer": "A, C"},
            "multi_label", ("Left", "Right", "Top"), ("Left", "Top"),
        ),
        ({"choices": [], "question_type": "closed-ended", "answer": "Yes."}, "closed", (), ("yes",)),
        ({"choices": ["A. Yes", "B. No"], "answer": "B"}, "closed", (), ("no",)),
        ({"choices": [], "question_type": "open-ended", "answer": "An effusion."}, "open", (), ("An effusion.",)),
    ],
)  # fmt: skip
def test_gemex(tmp_path, change, kind, options, answer):
    dump(tmp_path / "gemex_train.json", [GEMEX | change])
    question = one(questions_of("gemex", root=tmp_path))
    assert (question.kind.value, question.options, question.answer) == (kind, options, answer)
    assert question.question == "Which side?"
    assert question.split == "train"
    assert question.extra["box_frame"] == "padded_224"
    assert question.extra["visual_locations"] == [[150, 120, 190, 160]]
    assert question.images == (tmp_path / "files" / GEMEX["image_path"],)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"answer": "C"}, "field 'answer': none of the options"),
        ({"choices": 5}, "field 'choices': must be a list, an object or text"),
        ({"choices": "Left or right"}, "field 'choices': no options found"),
        ({"image_path": None}, "field 'image_path': missing"),
        ({"image_path": "/etc/passwd"}, "field 'image_path': lies outside the root"),
        ({"choices": [], "question_type": "closed-ended", "answer": ["yes", "no"]}, "field 'answer'"),
    ],
)
def test_a_broken_row_of_gemex(tmp_path, change, place):
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, [GEMEX | change, GEMEX])))
    questions, funnel = questions_of("gemex", root=tmp_path)
    assert [question.id for question in questions] == ["gemex-test-2"]
    assert place in problems(funnel)[0]


# All sets


@pytest.mark.parametrize(
    "name", ["slake", "vqa_rad", "chestagentbench", "gemex", "rad_restruct", "mimic_cxr_vqa", "chexbench"]
)
def test_a_folder_without_questions(tmp_path, name):
    with pytest.raises(FileNotFoundError):
        questions_of(name, root=tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "good"),
    [
        ("slake", "train.json", SLAKE),
        ("vqa_rad", "VQA_RAD Dataset Public.json", VQA_RAD),
        ("gemex", "train.json", GEMEX),
        ("mimic_cxr_vqa", "train.json", VQA),
    ],
)
def test_rows_of_any_wrong_type_are_reported(tmp_path, name, file, good):
    wrong = [
        5,
        None,
        "text",
        [1],
        True,
        {},
        dict.fromkeys(good, float("nan")),
        {key: [[]] for key in good},
        {key: {} for key in good},
    ]
    dump(tmp_path / file, [*wrong, good])
    questions, funnel = questions_of(name, root=tmp_path)
    assert len(questions) == 1
    assert sum(drops(funnel).values()) == len(wrong)
    with pytest.raises(RecordError, match="row 1"):
        questions_of(name, root=tmp_path, strict=True)


@pytest.mark.parametrize(
    "item",
    [
        5,
        ["q"],
        ["q", ["a"], [], "x"],
        ["q", [], [], ITEM[3]],
        ["q", ["up"], [], ITEM[3]],
        ["q", ["left"], ["x"], ITEM[3]],
    ],
)
def test_a_broken_item_of_rad_restruct(tmp_path, item):
    single = ITEM[3] | {"answer_type": "single_choice"}
    item = [*item[:3], single] if isinstance(item, list) and item[-1] == ITEM[3] else item
    dump(tmp_path / "test_qa_pairs" / "3.json", [item, ITEM])
    (tmp_path / "test_qa_pairs" / "4.json").write_text("{")
    dump(tmp_path / "test_qa_pairs" / "5.json", {"a": 1})
    questions, funnel = questions_of("rad_restruct", root=tmp_path)
    assert [question.id for question in questions] == ["rad_restruct-CXR3-001"]
    text = " ".join(problems(funnel))
    assert "3.json" in text
    assert "4.json: not JSON" in text
    assert "5.json, row 1, field 'qa': must be a list" in text


def test_questions_are_records_that_files_take(tmp_path):
    questions, _ = questions_of("slake", root=shared("slake"))
    for question in questions[:50]:
        assert Question.from_dict(json.loads(json.dumps(question.to_dict()))) == question


def test_a_gzipped_set(tmp_path):
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(json.dumps(SLAKE | {"split": "test"}).encode()))
    assert one(questions_of("slake", root=tmp_path)).split == "test"


def test_a_broken_line_is_reported_and_passed_over(tmp_path):
    (tmp_path / "metadata.jsonl").write_text("\n".join(["{", "[]", json.dumps(AGENT)]))
    questions, funnel = questions_of("chestagentbench", root=tmp_path)
    assert len(questions) == 1
    assert drops(funnel) == {"broken record": 2}
    assert any("metadata.jsonl, row 1: not JSON" in text for text in problems(funnel))
    with pytest.raises(RecordError, match="row 1: not JSON"):
        questions_of("chestagentbench", root=tmp_path, strict=True)
