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
"""Where the scene graphs and the lists of Chest ImaGenome lie.

The published layout is accepted as it comes, and so is the zip file unpacked in either way::

    ROOT/silver_dataset/scene_graph.zip                      scene_graph/<dicom_id>_SceneGraph.json
    ROOT/silver_dataset/scene_graph/[scene_graph/]<dicom_id>_SceneGraph.json
    ROOT/silver_dataset/splits/images_to_avoid.csv           (index), subject_id, study_id, dicom_id, path, ViewPosition
    ROOT/gold_dataset/gold_bbox_coordinate_annotations_1000images.csv     image_id, bbox_name, original_x1, original_x2

ROOT may also be the folder `silver_dataset` itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_cxr.data.adapters import BuildContext
from verl_cxr.data.members import Place, ZipIndex
from verl_cxr.data.tables import read_rows
from verl_cxr.geometry import is_number

__all__ = ["GoldBoxes", "SceneGraphs", "patients_to_avoid", "read_gold_boxes"]

_MEMBER = r"(?:[^/]+/)*([0-9a-f]{8}(?:-[0-9a-f]{8}){4})_SceneGraph\.json"

GoldBoxes = dict[str, tuple[tuple[str, float, float, float, float], ...]]
"""By dicom_id: name of a region, and x1, y1, x2, y2 in pixels of the film."""


@dataclass(frozen=True, slots=True)
class SceneGraphs:
    """The scene graphs of one download, in a folder or in a zip file."""

    folder: Path | None
    index: ZipIndex | None

    @classmethod
    def find(cls, root: Path) -> SceneGraphs:
        """Look for them under the folder of the data set. Unpacked files are preferred to the zip file.

        Raises:
            FileNotFoundError: neither is there.
            MemberError: the zip file is damaged.
        """
        silver = _silver(root)
        for folder in (silver / "scene_graph" / "scene_graph", silver / "scene_graph"):
            if folder.is_dir():
                return cls(folder, None)
        archive = silver / "scene_graph.zip"
        if archive.is_file():
            return cls(None, ZipIndex(archive, _MEMBER))
        raise FileNotFoundError(f"no scene graphs: {silver} holds neither scene_graph.zip nor the folder scene_graph")

    def place(self, dicom: str) -> Place | None:
        """Where the scene graph of a film is; None if it has none. Some ids of the published splits have none."""
        if self.index is not None:
            return self.index.place(dicom)
        assert self.folder is not None
        path = self.folder / f"{dicom}_SceneGraph.json"
        return Place(path) if path.is_file() else None


def patients_to_avoid(root: Path, context: BuildContext) -> frozenset[int]:
    """Patients of the gold set, who must not be trained on: all those of `images_to_avoid.csv`.

    Raises:
        FileNotFoundError: the list is not there. A build without it would train on the gold set.
    """
    path = _silver(root) / "splits" / "images_to_avoid.csv"
    patients = set()
    for row, (subject,) in read_rows(path, ["subject_id"], context):
        if subject.isdecimal():
            patients.add(int(subject))
        else:
            context.problem(path, row, "subject_id", f"not a patient's number: {subject[:40]!r}")
    return frozenset(patients)


def read_gold_boxes(root: Path, context: BuildContext) -> GoldBoxes:
    """The boxes that people drew, for the 1,000 films of the gold set.

    Its columns stand in the order x1, x2, y1, y2: they are read by name. An image_id may end in `.dcm`.
    """
    base = root if (root / "gold_dataset").is_dir() else root.parent
    path = base / "gold_dataset" / "gold_bbox_coordinate_annotations_1000images.csv"
    columns = ["image_id", "bbox_name", "original_x1", "original_y1", "original_x2", "original_y2"]
    boxes: dict[str, list[tuple[str, float, float, float, float]]] = {}
    for row, (image, name, *corners) in read_rows(path, columns, context):
        try:
            x1, y1, x2, y2 = (float(corner) for corner in corners)
        except ValueError:
            x1 = y1 = x2 = y2 = float("nan")
        if not all(map(is_number, (x1, y1, x2, y2))):
            context.problem(path, row, "original_x1", f"not a box: {', '.join(corners)[:80]}")
            continue
        boxes.setdefault(image.removesuffix(".dcm"), []).append((name, x1, y1, x2, y2))
    return {image: tuple(rows) for image, rows in boxes.items()}


def _silver(root: Path) -> Path:
    return root / "silver_dataset" if (root / "silver_dataset").is_dir() else root
