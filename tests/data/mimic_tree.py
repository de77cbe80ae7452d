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
"""A miniature of MIMIC-CXR-JPG, its reports and Chest ImaGenome, of any size, with the published archives' quirks.

Nothing in it is real: ids, texts and boxes are drawn from a seed. The films are flat grey and tiny, so that a tree of
20,000 studies takes less than a minute. `Tree.quirks` names the film that each quirk is about.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import random
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from PIL import Image

__all__ = ["SENTENCES", "Tree", "make_tree", "scene_graph"]

WIDTH, HEIGHT = 250, 305
METADATA = (
    "dicom_id", "subject_id", "study_id", "PerformedProcedureStepDescription", "ViewPosition", "Rows", "Columns",
    "StudyDate", "StudyTime", "ProcedureCodeSequence_CodeMeaning", "ViewCodeSequence_CodeMeaning",
    "PatientOrientationCodeSequence_CodeMeaning",
)  # fmt: skip
VIEWS = (("PA", "LATERAL"), ("AP",), ("PA", "LL"), ("AP", "AP"), ("AP",), ("PA", "LATERAL"))

_LUNGS = ("right lung", "left lung")
SENTENCES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("The lungs are clear.", _LUNGS, ("nlp|yes|normal", "anatomicalfinding|no|lung opacity")),
    ("There is no pleural effusion or\n pneumothorax.",
     (*_LUNGS, "right costophrenic angle", "left costophrenic angle"),
     ("anatomicalfinding|no|pleural effusion", "anatomicalfinding|no|pneumothorax")),
    ("Heart size is mildly enlarged.", ("cardiac silhouette",), ("anatomicalfinding|yes|enlarged cardiac silhouette",)),
    ("The cardiomediastinal silhouette is unchanged.", ("cardiac silhouette", "mediastinum", "upper mediastinum"),
     ("nlp|yes|normal",)),
    ("Unchanged small left pleural effusion.", ("left lung", "left costophrenic angle"),
     ("anatomicalfinding|yes|pleural effusion",)),
    ("Compared to the prior study of ___, there is new consolidation in the right lower lobe.",
     ("right lung", "right lower lung zone"), ("anatomicalfinding|yes|consolidation",)),
    ("Mild bibasilar atelectasis.", ("right lower lung zone", "left lower lung zone", *_LUNGS),
     ("anatomicalfinding|yes|atelectasis",)),
    ("The hilar contours are normal.", ("right hilar structures", "left hilar structures"), ("nlp|yes|normal",)),
    ("A right internal jugular line ends in the lower SVC.", ("svc", "neck", "right clavicle"),
     ("tubesandlines|yes|ij line",)),
    ("The aortic arch is calcified.", ("aortic arch",), ("anatomicalfinding|yes|calcified",)),
    ("There is elevation of the right hemidiaphragm.", ("right hemidiaphragm",),
     ("anatomicalfinding|yes|elevated hemidiaphragm",)),
    ("No acute osseous abnormality is seen.", ("spine", "right clavicle", "left clavicle"),
     ("anatomicalfinding|no|bone lesion",)),
    ("Interval removal of the endotracheal tube.", ("trachea", "carina"), ("tubesandlines|no|endotracheal tube",)),
)  # fmt: skip
"""Text of a sentence, the regions that its phrase describes, the attributes."""

# Place of each region in a frame of 100 x 100: 36 boxes, as the silver set has them.
BOXES: dict[str, tuple[int, int, int, int]] = {
    "abdomen": (5, 78, 95, 100), "aortic arch": (50, 22, 62, 33), "cardiac silhouette": (35, 42, 75, 80),
    "carina": (46, 30, 54, 37), "cavoatrial junction": (38, 42, 45, 49), "descending aorta": (50, 33, 60, 80),
    "left apical zone": (56, 5, 80, 18), "left cardiac silhouette": (50, 42, 75, 80),
    "left cardiophrenic angle": (55, 70, 65, 80), "left clavicle": (52, 8, 88, 18),
    "left costophrenic angle": (80, 72, 92, 84), "left hemidiaphragm": (55, 70, 92, 84),
    "left hilar structures": (54, 32, 68, 52), "left lower lung zone": (55, 52, 92, 84), "left lung": (52, 6, 92, 84),
    "left mid lung zone": (55, 34, 90, 52), "left upper abdomen": (50, 80, 95, 100),
    "left upper lung zone": (54, 14, 86, 34), "mediastinum": (35, 8, 75, 80), "right apical zone": (20, 5, 44, 18),
    "right atrium": (34, 48, 45, 74), "right cardiac silhouette": (34, 42, 50, 80),
    "right cardiophrenic angle": (35, 70, 45, 80), "right clavicle": (12, 8, 48, 18),
    "right costophrenic angle": (8, 72, 20, 84), "right hemidiaphragm": (8, 70, 45, 84),
    "right hilar structures": (32, 32, 46, 52), "right lower lung zone": (8, 52, 45, 84), "right lung": (8, 6, 48, 84),
    "right mid lung zone": (10, 34, 45, 52), "right upper abdomen": (5, 80, 50, 100),
    "right upper lung zone": (14, 14, 46, 34), "spine": (44, 0, 56, 100), "svc": (38, 28, 45, 45),
    "trachea": (46, 0, 54, 32), "upper mediastinum": (38, 8, 62, 36),
}  # fmt: skip


@dataclass(slots=True)
class Tree:
    """Where a miniature lies, and what is in it.

    Attributes:
        mimic: the folder of MIMIC-CXR-JPG, with the reports beside the study folders.
        imagenome: the folder of Chest ImaGenome.
        quirks: dicom_id of the film that a quirk is about, by the quirk's name.
        films, reports: how many the metadata list, repeated and unreadable rows left out.
        frontal: how many of the films are PA or AP.
        graphs: dicom_ids that have a scene graph, sound or not.
    """

    mimic: Path
    imagenome: Path
    quirks: dict[str, str] = field(default_factory=dict)
    films: int = 0
    reports: int = 0
    frontal: int = 0
    graphs: list[str] = field(default_factory=list)


def make_tree(
    root: Path,
    studies: int,
    seed: int = 0,
    quirks: bool = True,
    *,
    version: str = "2.0.0",
    zipped: bool = True,
) -> Tree:
    """Write a miniature of `studies` studies, and a further one for each quirk.

    Args:
        root: folder to make `mimic-cxr-jpg` and `chest-imagenome` in.
        version: of MIMIC-CXR-JPG; 2.1.0 adds the labelled test set.
        zipped: whether the scene graphs are in `scene_graph.zip` or unpacked.
    """
    writer = _Writer(root, seed, version=version, zipped=zipped)
    for number in range(studies):
        patient = number // 2
        split = {18: "validate", 19: "test"}.get(patient % 20, "train")
        chosen = writer.sentences()
        writer.study(patient, split, VIEWS[number % len(VIEWS)], chosen, _report(chosen))
    if quirks:
        _add_quirks(writer)
    return writer.close()


def scene_graph(
    dicom: str, study: int, patient: int, view: str, chosen: Sequence[int], rng: random.Random, priors: bool = True
) -> dict[str, Any]:
    """A scene graph in the published form: all boxes, one attribute entry a described region, comparisons."""
    dx, dy = rng.randint(-3, 3), rng.randint(-3, 3)
    objects = []
    for name, corners in BOXES.items():
        x1, y1, x2, y2 = (corners[0] + dx, corners[1] + dy, corners[2] + dx, corners[3] + dy)
        unit = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        small = {key: round(value * 2.24) for key, value in unit.items()}
        large = {
            key: round(value * (WIDTH if key[0] == "x" else HEIGHT) / 100) for key, value in unit.items()
        }  # pixels of the film; some overrun it, as they do in the silver set
        objects.append(
            {"object_id": f"{dicom}_{name}", **small, "width": small["x2"] - small["x1"],
             "height": small["y2"] - small["y1"], "bbox_name": name, "synsets": ["C0225706"], "name": name.capitalize(),
             **{f"original_{key}": value for key, value in large.items()},
             "original_width": large["x2"] - large["x1"], "original_height": large["y2"] - large["y1"]}
        )  # fmt: skip
    phrases: dict[str, list[tuple[int, str, tuple[str, ...]]]] = {}
    relationships = []
    for place, number in enumerate(chosen):
        text, regions, attributes = SENTENCES[number]
        for region in regions:
            phrases.setdefault(region, []).append((place, text, attributes))
            if "nchanged" in text or "ompared" in text:
                relationships.append(
                    {"relationship_id": f"{study}|{place}_{region}", "predicate": "['No status change']",
                     "synsets": ["C0442739"], "relationship_names": ["comparison|yes|no change"],
                     "relationship_contexts": [1.0], "phrase": text, "attributes": list(attributes),
                     "bbox_name": region, "subject_id": f"{dicom}_{region}", "object_id": f"{dicom}_{region}"}
                )  # fmt: skip
    described = []
    for region, rows in sorted(phrases.items()):
        rows = rows[::-1]  # the silver set is not in reading order
        described.append(
            {region: True, "bbox_name": region, "synsets": ["C0225706"], "name": region.capitalize(),
             "attributes": [list(attributes) for _, _, attributes in rows],
             "attributes_ids": [["CL556823"] * len(attributes) for _, _, attributes in rows],
             "phrases": [text for _, text, _ in rows], "phrase_IDs": [f"{study}|{place}" for place, _, _ in rows],
             "sections": ["finalreport"] * len(rows), "comparison_cues": [[] for _ in rows],
             "temporal_cues": [[] for _ in rows], "severity_cues": [[] for _ in rows],
             "texture_cues": [[] for _ in rows], "object_id": f"{dicom}_{region}"}
        )  # fmt: skip
    return {
        "image_id": dicom, "viewpoint": view, "patient_id": patient, "study_id": study, "gender": "F",
        "age_decile": "50-60", "reason_for_exam": "___F with cough.", "StudyOrder": 1,
        "StudyDateTime": "2178-10-05 15:05:32 UTC", "objects": objects, "attributes": described,
        "relationships": relationships if priors else [],
    }  # fmt: skip


class _Writer:
    def __init__(self, root: Path, seed: int, *, version: str, zipped: bool) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.version = version
        self.tree = Tree(root / "mimic-cxr-jpg", root / "chest-imagenome")
        self.silver = self.tree.imagenome / "silver_dataset"
        (self.silver / "splits").mkdir(parents=True)
        self.tree.mimic.mkdir(parents=True)
        self.metadata: list[dict[str, Any]] = []
        self.split: list[tuple[Any, ...]] = []
        self.avoid: list[tuple[Any, ...]] = []
        self.studies = 0
        self.archive = zipfile.ZipFile(self.silver / "scene_graph.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self.zipped = zipped
        self.films = []
        for shade in range(4):
            out = io.BytesIO()
            Image.new("L", (WIDTH, HEIGHT), 60 + 40 * shade).save(out, "JPEG", quality=30)
            self.films.append(out.getvalue())

    def sentences(self) -> list[int]:
        return self.rng.sample(range(len(SENTENCES)), self.rng.randint(4, 9))

    def dicom(self) -> str:
        digest = hashlib.blake2b(f"{self.seed}/{len(self.metadata)}".encode(), digest_size=20).hexdigest()
        return "-".join(digest[start : start + 8] for start in range(0, 40, 8))

    def folder(self, patient: int) -> Path:
        subject = _subject(patient)
        return self.tree.mimic / "files" / f"p{str(subject)[:2]}" / f"p{subject}"

    def study(
        self,
        patient: int,
        split: str | None,
        views: Sequence[str],
        chosen: Sequence[int],
        report: str | bytes | None,
        *,
        graph: bool = True,
        quirk: str | None = None,
    ) -> list[str]:
        """Add a study; returns the dicom_ids of its films."""
        subject, study = _subject(patient), 50000000 + 37 * self.studies
        self.studies += 1
        self.tree.reports += 1
        folder = self.folder(patient) / f"s{study}"
        folder.mkdir(parents=True)
        if report is not None:
            data = report if isinstance(report, bytes) else report.encode()
            (folder.parent / f"s{study}.txt").write_bytes(data)
        ids = []
        for view in views:
            dicom = self.dicom()
            ids.append(dicom)
            shade = len(self.metadata) % len(self.films)
            (folder / f"{dicom}.jpg").write_bytes(self.films[shade] + dicom.encode())  # no two films are equal
            self.metadata.append(
                dict.fromkeys(METADATA, "") | {
                    "dicom_id": dicom, "subject_id": subject, "study_id": study, "ViewPosition": view, "Rows": HEIGHT,
                    "Columns": WIDTH, "StudyDate": 21800506, "StudyTime": "213014.531",
                    "PerformedProcedureStepDescription": "CHEST (PA AND LAT)", "ViewCodeSequence_CodeMeaning": "",
                    "ProcedureCodeSequence_CodeMeaning": "CHEST (PA AND LAT)",
                    "PatientOrientationCodeSequence_CodeMeaning": "Erect",
                }
            )  # fmt: skip
            self.tree.films += 1
            if split is not None:
                self.split.append((dicom, study, subject, split))
            if view in ("PA", "AP"):
                self.tree.frontal += 1
                if graph:
                    self.graph(dicom, orjson.dumps(scene_graph(dicom, study, subject, view, chosen, self.rng)))
        if quirk is not None:
            self.tree.quirks[quirk] = ids[0]
        return ids

    def graph(self, dicom: str, data: bytes) -> None:
        if dicom not in self.tree.graphs:
            self.tree.graphs.append(dicom)
        if self.zipped:
            self.archive.writestr(f"scene_graph/{dicom}_SceneGraph.json", data)
        else:
            path = self.silver / "scene_graph" / f"{dicom}_SceneGraph.json"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)

    def close(self) -> Tree:
        self.archive.close()
        if not self.zipped:
            (self.silver / "scene_graph.zip").unlink()
        _write_csv(self.tree.mimic / "mimic-cxr-2.0.0-metadata.csv.gz", METADATA, (r.values() for r in self.metadata))
        _write_csv(
            self.tree.mimic / "mimic-cxr-2.0.0-split.csv.gz",
            ("dicom_id", "study_id", "subject_id", "split"),
            self.split,
        )
        if self.version == "2.1.0":
            tested = dict.fromkeys(row[1] for row in self.split if row[3] == "test")
            header = ("study_id", "Airspace Opacity", "Edema")
            rows = ((study, "1.0", "0.0") for study in tested)
            _write_csv(self.tree.mimic / "mimic-cxr-2.1.0-test-set-labeled.csv", header, rows)
        header = ("", "subject_id", "study_id", "dicom_id", "path", "ViewPosition")
        _write_csv(self.silver / "splits" / "images_to_avoid.csv", header, self.avoid)
        frontal = [
            (row["subject_id"], row["study_id"], row["dicom_id"], "path.dcm", row["ViewPosition"])
            for row in self.metadata
            if row["ViewPosition"] in ("PA", "AP")
        ]
        for number, name in enumerate(("train", "valid", "test")):
            part = [(index, *row) for index, row in enumerate(frontal[number::3])]
            _write_csv(self.silver / "splits" / f"{name}.csv", header, part)
        return self.tree


def _add_quirks(writer: _Writer) -> None:
    tree, patients = writer.tree, iter(range(100_000, 200_000))
    text = _report([0, 2])

    def plain(quirk: str, report: str | bytes | None = text, *, split: str | None = "train", **more: Any) -> str:
        return writer.study(next(patients), split, ("PA",), [0, 2], report, quirk=quirk, **more)[0]

    # views
    views = ("PA", "", "AP AXIAL", "AP LLD", "LAO", "XTABLE LATERAL", "SWIMMERS")
    writer.study(next(patients), "train", views, [0, 2], text, quirk="views")
    # reports
    plain("no report", None)
    plain("empty report", "")
    plain("no section", "                                 FINAL REPORT\n CHEST RADIOGRAPH\n \n The lungs are clear.\n")
    plain("last paragraph", " FINAL REPORT\n INDICATION:  Cough.\n \n The lungs are clear.\n \n No effusion.\n")
    plain(
        "addendum", f" ADDENDUM  ___ saw this.\n ______________________________________________________________\n{text}"
    )
    plain("two impressions", text + "\n IMPRESSION:  Small left effusion.\n")
    plain("both in one", " FINAL REPORT\n FINDINGS AND IMPRESSION:  Mild bibasilar atelectasis.\n")
    plain("title", " FINAL REPORT\n CHEST, PA AND LATERAL:  Heart size is\n mildly enlarged.\n")
    plain("prior only", " FINAL REPORT\n IMPRESSION:  No interval change.\n")
    plain("not utf-8", text.encode().replace(b"clear", b"cl\xe9ar"))
    # scene graphs
    plain("no graph", graph=False)
    writer.graph(plain("graph not json", graph=False), b'{"objects": [')
    writer.graph(plain("graph of wrong type", graph=False), b'{"objects": {}, "attributes": 3}')
    writer.graph(plain("graph is a list", graph=False), b"[]")
    writer.graph(plain("bomb", graph=False), b" " * (80 << 20))
    for quirk, change in _GRAPH_QUIRKS.items():
        dicom = plain(quirk, graph=False)
        row = writer.metadata[-1]
        graph = scene_graph(dicom, row["study_id"], row["subject_id"], "PA", [0, 2], random.Random(3))
        change(graph)
        writer.graph(dicom, orjson.dumps(graph))
    # films
    folder = {name: plain(name) for name in ("corrupt film", "no film")}
    for name, dicom in folder.items():
        path = next(tree.mimic.rglob(f"{dicom}.jpg"))
        path.unlink()
        if name == "corrupt film":
            path.write_bytes(b"\xff\xd8\xff\xe0 not a film")
    # tables
    plain("no split", split=None)
    dicom = plain("repeated")
    row = dict(writer.metadata[-1])
    writer.metadata.append(row)
    writer.metadata += [
        row | {"dicom_id": "../../../../etc/passwd"},
        row | {"dicom_id": writer.dicom(), "study_id": "s5"},
        row | {"dicom_id": "0" * 8 + "-1" * 4, "subject_id": "../.."},
    ]
    tree.quirks["no size"] = plain("no size")
    writer.metadata[-1]["Rows"] = ""
    plain("unknown split", split="holdout")
    # leaks
    gold = plain("gold patient")
    row = writer.metadata[-1]
    other = writer.dicom()  # another film of that patient is the one that is listed
    writer.avoid.append((0, row["subject_id"], row["study_id"] + 1, other, "path.dcm", "PA"))
    tree.quirks["gold patient"] = gold
    patient = next(patients)
    writer.study(patient, "train", ("PA",), [0, 2], text, quirk="patient of two splits")
    writer.study(patient, "test", ("PA",), [0, 2], text)


def _overrun(graph: dict[str, Any]) -> None:
    """Boxes beyond the film, without area, twice, and with numbers that are none."""
    by_name = {item["bbox_name"]: item for item in graph["objects"]}
    by_name["right lung"] |= {"original_x1": -20, "original_y1": -5, "original_x2": 120, "original_y2": 400}
    by_name["left lung"] |= {"original_x1": 140, "original_y1": 20, "original_x2": 140, "original_y2": 200}
    by_name["cardiac silhouette"] |= {"original_x1": 100, "original_y1": 100, "original_x2": 150, "original_y2": 200}
    second = by_name["cardiac silhouette"] | {"original_x1": 140, "original_y1": 150, "original_x2": 180}
    graph["objects"].append(second)
    by_name["spine"]["original_x1"] = "12"
    graph["objects"].append({"bbox_name": "svc"})


def _described(graph: dict[str, Any]) -> None:
    """Entries for regions without object, unknown regions, phrases that are no text, lists of unequal length."""
    first = graph["attributes"][0]
    graph["objects"] = [item for item in graph["objects"] if item["bbox_name"] != "right lung"]
    neck = {"bbox_name": "neck", "phrases": ["A tracheostomy tube is present."], "phrase_IDs": ["1|0"]}
    odd = {"bbox_name": "left ear", "phrases": ["Not of the chest."], "phrase_IDs": ["1|0"]}
    broken = first | {
        "bbox_name": "aortic arch",
        "phrases": ["The aortic arch is calcified.", 7, None],
        "phrase_IDs": [],
    }
    graph["attributes"] += [neck, odd, broken, "text", {"bbox_name": "spine", "phrases": "text"}]


def _lateral(graph: dict[str, Any]) -> None:
    graph["viewpoint"] = "LATERAL"


def _silent(graph: dict[str, Any]) -> None:
    graph["attributes"] = []


def _other_image(graph: dict[str, Any]) -> None:
    graph["image_id"] = "00000000-00000000-00000000-00000000-00000000"


_GRAPH_QUIRKS = {
    "boxes overrun": _overrun,
    "odd attributes": _described,
    "lateral graph": _lateral,
    "no phrase": _silent,
    "graph of another image": _other_image,
}


def _subject(patient: int) -> int:
    return 10000032 + 11 * patient


def _report(chosen: Sequence[int]) -> str:
    texts = [SENTENCES[number][0] for number in chosen]
    body = "  ".join(texts[:-1]) or texts[0]
    return (
        "                                 FINAL REPORT\n EXAMINATION:  CHEST (PA AND LAT)\n \n INDICATION:  ___ year"
        " old woman with cough.\n \n COMPARISON:  ___\n \n FINDINGS: \n \n "
        f"{body}\n \n IMPRESSION: \n \n {texts[-1]}\n"
    )


def _write_csv(path: Path, header: Sequence[str], rows: Any) -> None:
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
