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
"""Where the reports of MIMIC-CXR lie, and what their sections say.

They are found in any of these places::

    ROOT/files/p10/p10000032/s50414267.txt            beside the study folder s50414267/, unpacked into MIMIC-CXR-JPG
    REPORTS/files/p10/p10000032/s50414267.txt         unpacked elsewhere
    mimic-cxr-reports.zip                             as it was downloaded
    mimic_cxr_sectioned.csv                           sections, made by the published program (see `sectioned`)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_cxr.data.members import Place, ZipIndex

__all__ = ["ReportFiles", "patient_folder"]

_MEMBER = r"(?:[^/]+/)*p[0-9]{2}/p[0-9]{8}/(s[0-9]{8})\.txt"


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The report files of one download, in a folder or in a zip file."""

    folder: Path | None
    index: ZipIndex | None

    @classmethod
    def find(cls, root: Path, reports: Path | None) -> ReportFiles:
        """Take `reports`; if it is None, `mimic-cxr-reports.zip` beside the tables, else the folder of the films.

        Raises:
            FileNotFoundError: `reports` is neither a zip file nor a folder.
            MemberError: the zip file is damaged.
        """
        beside = root / "mimic-cxr-reports.zip"
        source = reports or (beside if beside.is_file() else root)
        if source.is_file():
            return cls(None, ZipIndex(source, _MEMBER))
        if not source.is_dir():
            raise FileNotFoundError(f"{source}: give mimic-cxr-reports.zip or the folder it was unpacked to")
        return cls(source, None)

    def place(self, subject: int, study: int) -> Place | None:
        """Where the report of a study is; None if it is known to have none."""
        if self.index is not None:
            return self.index.place(f"s{study}")
        assert self.folder is not None
        return Place(patient_folder(self.folder, subject) / f"s{study}.txt")


def patient_folder(root: Path, subject: int) -> Path:
    """The folder of a patient's films and reports."""
    return root / "files" / f"p{str(subject)[:2]}" / f"p{subject}"
