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
"""How the lexicon annotator agrees with public labels: radlabels 0.2.0, 1,000 chest reports, 49 findings.

    python tests/facts/measure_lexicon.py [FOLDER] [--half odd|even|all] [--labels]

FOLDER holds ``synthetic_labels.json`` and ``synthetic_reports/`` (default: the ``samples`` folder of the installed
radlabels package, whose code is not imported). The labels were made by RadGraph-XL and a phrase matcher, so this
measures agreement with RadGraph-XL as much as truth. The word list was written while looking at the reports with even
numbers; the odd ones are the held-out half.

The rule of the labels is followed: a finding takes the status of the observation that it is linked to, so in "opacity,
which may be pneumonia" a present opacity makes the pneumonia present; the strongest status of a report wins (present,
uncertain, absent).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from verl_cxr.facts import FactGraph
from verl_cxr.facts.lexicon import read_facts

STATUSES = ("definitely present", "definitely absent", "uncertain")
_STRONGEST_FIRST = ("definitely present", "uncertain", "definitely absent")


def _sided(*parts: str) -> frozenset[str]:
    return frozenset(f"{side}{part}" for side in ("", "left ", "right ") for part in parts)


_LUNGS = _sided("lung", "upper lung", "mid lung", "lower lung", "lung base")
_MEDIASTINUM = frozenset({"mediastinum", "cardiomediastinal silhouette", "heart"})

# finding -> alternatives of (observations, places or None, modifiers or None)
_Rule = tuple[frozenset[str], frozenset[str] | None, frozenset[str] | None]


def _rule(observations: str, places: frozenset[str] | None = None, modifiers: str | None = None) -> _Rule:
    return frozenset(observations.split(", ")), places, frozenset(modifiers.split(", ")) if modifiers else None


FINDINGS: dict[str, list[_Rule]] = {
    "pleural_effusion": [_rule("pleural effusion")],
    "pneumothorax": [_rule("pneumothorax, hydropneumothorax")],
    "pulmonary_congestion_pulmonary_venous_congestion": [
        _rule("pulmonary edema, vascular congestion"),
        _rule("engorged", _sided("pulmonary vasculature", "lung", "hilum")),
        _rule("prominent", frozenset({"pulmonary vasculature"})),
    ],
    "air_space_opacity": [
        _rule("consolidation, pneumonia, aspiration pneumonia, infiltrate, airspace opacity, ground glass opacity"),
        _rule("opacity", None, "patchy, confluent, alveolar"),
    ],
    "cardiomegaly": [_rule("enlarged", frozenset({"heart"}))],
    "pulmonary_edema": [_rule("pulmonary edema")],
    "atelectasis": [_rule("atelectasis, collapse")],
    "pneumonia": [_rule("pneumonia, aspiration pneumonia")],
    "enteric_tube": [_rule("nasogastric tube")],
    "endotracheal_tube": [_rule("endotracheal tube")],
    "lung_opacity": [_rule("opacity", _LUNGS), _rule("opacity", None, "patchy, focal, diffuse, multifocal")],
    "consolidation": [_rule("consolidation")],
    "central_venous_catheter": [_rule("picc, central venous catheter")],
    "intercostal_drain": [_rule("chest tube")],
    "emphysema": [_rule("emphysema, subcutaneous emphysema")],
    "fracture_generic": [_rule("fracture, compression fracture")],
    "pacemaker_electronic_cardiac_device_or_wires": [_rule("pacemaker")],
    "calcification_of_the_aorta": [_rule("calcified, atherosclerosis", frozenset({"aorta"}))],
    "tortuous_aorta": [_rule("tortuous", frozenset({"aorta"}))],
    "subcutaneous_emphysema": [_rule("subcutaneous emphysema")],
    "tracheostomy_tube": [_rule("tracheostomy tube")],
    "hyperinflation": [_rule("hyperinflated")],
    "lung_nodule_or_mass": [
        _rule("nodule, mass, malignancy, lesion", _LUNGS),
        _rule("granuloma"),
        _rule("opacity", None, "nodular"),
    ],
    "support_devices_generic": [_rule("support device, monitoring device, hardware")],
    "enlarged_cardiomediastinum": [_rule("widened", _MEDIASTINUM)],
    "non_acute_rib_fracture": [_rule("fracture", _sided("rib"), "old, chronic")],
    "pleural_thickening": [_rule("pleural thickening, pleural plaque")],
    "interstitial_thickening": [_rule("interstitial markings, kerley lines")],
    "ground_glass_opacity": [_rule("ground glass opacity"), _rule("opacity", None, "hazy")],
    "pneumomediastinum": [_rule("pneumomediastinum")],
    "infiltration": [_rule("infiltrate")],
    "acute_rib_fracture": [_rule("fracture", _sided("rib"), "acute, new, displaced")],
    "lung_lesion": [_rule("lesion", _LUNGS), _rule("cavity, lytic lesion")],
    "lobar_segmental_collapse": [_rule("atelectasis, collapse", None, "segmental")],
    "peribronchial_cuffing": [_rule("peribronchial cuffing")],
    "pulmonary_fibrosis": [_rule("fibrosis")],
    "pneumoperitoneum": [_rule("pneumoperitoneum")],
    "hiatus_hernia": [_rule("hernia")],
    "whole_lung_or_majority_collapse": [_rule("collapse, atelectasis", _LUNGS, "complete")],
    "tracheal_deviation": [_rule("deviated", frozenset({"trachea"}))],
    "bullous_disease": [_rule("bulla")],
    "hilar_lymphadenopathy": [_rule("lymphadenopathy", _sided("hilum"))],
    "implantable_electronic_device": [_rule("stimulator, loop recorder")],
    "shoulder_dislocation": [_rule("dislocation", _sided("shoulder"))],
    "other_hernia": [_rule("diaphragmatic hernia")],
    "pulmonary_artery_enlargement": [_rule("enlarged, dilated, prominent", _sided("pulmonary artery"))],
    "nonsurgical_internal_foreign_body": [_rule("foreign body")],
    "pleural_other": [
        _rule("abnormality, lesion, calcified", _sided("pleura")),
        _rule("pleural plaque"),
    ],
    "bronchial_wall_thickening": [_rule("bronchial wall thickening")],
}


def findings(graph: FactGraph) -> dict[str, str]:
    """The status of each finding that the graph speaks of."""
    names = {e.id: e.tokens for e in graph.entities}
    modifiers: dict[str, set[str]] = {}
    statuses: dict[str, set[str]] = {}
    for e in graph.entities:
        kind, _, status = e.label.partition("::")
        if kind != "Observation":
            continue
        statuses.setdefault(e.id, set()).add(status)
        for relation, target in e.relations:
            if relation == "modify":
                modifiers.setdefault(target, set()).add(e.tokens)
            if relation == "suggestive_of":
                statuses.setdefault(target, set()).add(status)
    found: dict[str, set[str]] = {}
    for e in graph.entities:
        if e.id not in statuses or any(relation == "modify" for relation, _ in e.relations):
            continue
        places = {names[target] for relation, target in e.relations if relation == "located_at"}
        for finding, rules in FINDINGS.items():
            for observations, where, which in rules:
                if (
                    e.tokens in observations
                    and (where is None or not where.isdisjoint(places))
                    and (which is None or not which.isdisjoint(modifiers.get(e.id, ())))
                ):
                    found.setdefault(finding, set()).update(statuses[e.id])
    return {finding: next(s for s in _STRONGEST_FIRST if s in seen) for finding, seen in found.items()}


def default_folder() -> Path | None:
    """The sample reports of the installed radlabels package, found without importing it."""
    spec = importlib.util.find_spec("radlabels")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "samples"


def load(folder: Path, half: str) -> list[tuple[str, str, dict[str, str]]]:
    """(id, report, labels) of each report of a half, in order of id."""
    labels = json.loads((folder / "synthetic_labels.json").read_text(encoding="utf-8"))
    wanted = {"even": (0,), "odd": (1,), "all": (0, 1)}[half]
    return [
        (id_, (folder / "synthetic_reports" / f"{id_}.txt").read_text(encoding="utf-8"), labels[id_])
        for id_ in sorted(labels)
        if int(id_.rpartition("_")[2]) % 2 in wanted
    ]


def agreement(
    pairs: Iterable[tuple[Mapping[str, str], Mapping[str, str]]],
) -> dict[str, tuple[float, float, float, int]]:
    """Precision, recall, F1 and support of each status over all (ours, theirs) pairs and findings together."""
    hits, ours, theirs = Counter[str](), Counter[str](), Counter[str]()
    for mine, reference in pairs:
        ours.update(mine.values())
        theirs.update(reference.values())
        hits.update(status for finding, status in mine.items() if reference.get(finding) == status)
    table = {}
    for status in STATUSES:
        precision = hits[status] / ours[status] if ours[status] else 0.0
        recall = hits[status] / theirs[status] if theirs[status] else 0.0
        f1 = 2 * precision * recall / (precision + recall) if hits[status] else 0.0
        table[status] = (precision, recall, f1, theirs[status])
    return table


def _only(finding: str, labels: Mapping[str, str]) -> dict[str, str]:
    return {name: status for name, status in labels.items() if name == finding}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=default_folder(), help="folder of the radlabels samples"
    )
    parser.add_argument("--half", choices=("odd", "even", "all"), default="odd", help="which reports (odd is held out)")
    parser.add_argument("--labels", action="store_true", help="also one row a finding")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("radlabels is not installed (pip install --no-deps radlabels==0.2.0) and no FOLDER is given")
    reports = load(options.folder, options.half)
    pairs = [(findings(read_facts(text)), labels) for _, text, labels in reports]
    print(f"{len(reports)} reports ({options.half})")
    print(f"{'status':<20} precision  recall      f1  support")
    for status, row in agreement(pairs).items():
        print("{:<20} {:9.3f} {:7.3f} {:7.3f} {:8d}".format(status, *row))
    if options.labels:
        for finding in sorted({name for pair in pairs for labels in pair for name in labels}):
            only = [(_only(finding, ours), _only(finding, theirs)) for ours, theirs in pairs]
            scores = {status: row for status, row in agreement(only).items() if row[3]}
            print(f"{finding:<50}", "  ".join(f"{s.split()[-1]} {r[2]:.2f} ({r[3]})" for s, r in scores.items()))


if __name__ == "__main__":
    main()
