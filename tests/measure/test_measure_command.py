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
"""`verl-cxr measure`, as it is typed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from chests import chest
from PIL import Image
from typer.testing import CliRunner

from verl_cxr.cli import app
from verl_cxr.data.phantom import PhantomOptions, make_phantom

MASKS = chest(200, 160, ratio=0.55)


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
    return path


def folder(root):
    for name, mask in MASKS.items():
        save(root / f"{name.replace(' ', '_')}.png", mask)
    return root


def run(*arguments):
    return CliRunner().invoke(app, ["measure", *map(str, arguments)])


def rows(result):
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_masks_of_one_film_without_the_film(tmp_path):
    (row,) = rows(run("--masks", folder(tmp_path / "case7"), "--view", "PA", "--out", tmp_path / "out"))
    assert row["id"] == "case7"
    assert row["image"] is None
    ctr = next(measurement for measurement in row["exposed"] if measurement["name"] == "ctr")
    assert ctr["value"] == pytest.approx(0.55, abs=0.01)
    assert "cardiothoracic ratio 0.5" in row["observation"]
    with Image.open(row["picture"]) as picture:
        assert picture.width == 900
        assert len(set(picture.convert("RGB").resize((90, 90)).tobytes())) > 20


def test_a_film_with_the_masks_beside_it(tmp_path):
    film = save(tmp_path / "films" / "a.png", np.zeros((160, 200), np.uint8))
    (row,) = rows(run("--masks", folder(tmp_path / "m"), "--image", film, "--view", "PA", "--out", tmp_path))
    assert row["decision"]["open"]
    assert row["image"] == str(film)


def test_a_folder_for_many_films(tmp_path):
    for film in ("a", "b"):
        folder(tmp_path / "m" / film)
    assert [row["id"] for row in rows(run("--masks", tmp_path / "m", "--view", "AP", "--out", tmp_path))] == ["a", "b"]


def test_without_a_view_the_gate_is_closed_and_the_log_holds_the_numbers(tmp_path):
    (row,) = rows(run("--masks", folder(tmp_path / "m"), "--out", tmp_path))
    assert row["decision"]["reasons"] == ["view_unknown"]
    assert row["exposed"] == []
    assert len(row["withheld"]) == 3
    assert not any(character.isdigit() for character in row["observation"])


def test_phantoms_with_views_from_their_studies(tmp_path):
    options = PhantomOptions(96, 96)
    studies = []
    images = []
    for index in range(4):
        phantom = make_phantom(1, index, options=options)
        images.append(save(tmp_path / f"{phantom.study.id}.png", phantom.image))
        studies.append(phantom.study.to_dict() | {"image": images[-1].name})
    (tmp_path / "studies.jsonl").write_text("\n".join(map(json.dumps, studies)))
    arguments = [part for image in images for part in ("--image", image)]
    found = rows(
        run("--masks", "phantom", "--view", f"metadata:{tmp_path}/studies.jsonl", "--out", tmp_path, *arguments)
    )
    assert [row["decision"]["view"] for row in found] == [study["view"] for study in studies]
    assert [bool(row["exposed"]) for row in found] == [study["view"] == "PA" for study in studies]


def test_thresholds_and_options_from_the_command_line(tmp_path):
    film = save(tmp_path / "a.png", np.zeros((200, 200), np.uint8))
    masks = folder(tmp_path / "m" / "a").parent
    arguments = ("--masks", masks, "--image", film, "--view", "PA", "--out", tmp_path)
    assert run(*arguments).exit_code == 1  # 200 x 160 masks on a square film
    (row,) = rows(run(*arguments, "--option", "stretched=true", "--threshold", "ctr=[0.6, 0.9]"))
    assert row["decision"]["withheld"]["ctr"] == ["width_implausible"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--masks is needed"),
        (["--masks", "phantom"], "needs --image"),
        (["--masks", "haar:x"], "takes no file"),
        (["--masks", "/no/such/folder"], "no folder of masks"),
        (["--masks", "cxas:/no/such.pth", "--image", "{film}"], "no weights of CXAS"),
        (["--masks", "{masks}", "--view", "sideways"], "not a view"),
        (["--masks", "{masks}", "--view", "guess:x"], "--view guess:x"),
        (["--masks", "{masks}", "--gate", "none"], "no gate"),
        (["--masks", "{masks}", "--threshold", "ctr"], "KEY=VALUE"),
        (["--masks", "{masks}", "--threshold", "ctr=[1"], "no value"),
        (["--masks", "{masks}", "--threshold", "size=1"], "no threshold"),
        (["--masks", "{masks}", "--option", "speed=1"], "speed"),
        (["--masks", "{masks}", "--image", "{film}", "--image", "{film}"], "one film"),
    ],
)
def test_a_wrong_argument_says_what_would_be_right(arguments, message, tmp_path):
    film, masks = save(tmp_path / "a.png", np.zeros((160, 200), np.uint8)), folder(tmp_path / "m")
    result = run(*(argument.format(film=film, masks=masks) for argument in arguments))
    assert result.exit_code == 2
    assert message in result.output


def test_a_file_that_is_no_film(tmp_path):
    (tmp_path / "a.png").write_text("no film")
    result = run("--masks", folder(tmp_path / "m"), "--image", tmp_path / "a.png")
    assert result.exit_code == 1
    assert "not an image file" in result.output
