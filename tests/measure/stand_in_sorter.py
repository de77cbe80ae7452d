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
"""Stands in for OpenCXR's process: speaks its worker's protocol, and misbehaves on demand.

    python stand_in_sorter.py MODE [FILE]

FILE counts the starts of the process.
"""

import json
import os
import sys
import time

MODE = sys.argv[1]
GOOD = {
    "Type": "PA",
    "Type_Probs_PA_AP_lateral_notCXR": [0.9, 0.06, 0.03, 0.01],
    "Rotation_Probs_0_90_180_270": [0.98, 0.01, 0.01, 0.0],
    "Inversion_Probs_No_Yes": [0.75, 0.25],
    "Lateral_Flip_Probs_No_Yes": [0.875, 0.125],
}


def say(message):
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def main():
    starts = 0
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a") as file:
            file.write("x")
        starts = os.path.getsize(sys.argv[2])
    if MODE == "no_start":
        sys.exit("ImportError: no module named tensorflow")
    if MODE == "slow_start":
        time.sleep(30)
    if MODE == "chatter":
        for number in range(20):
            say(f"Loading the network, step {number}")
        say('{"progress": 100}')
        sys.stderr.write("a warning\n" * 5000)
    say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        assert os.path.isfile(request["image"])
        if MODE == "dies" or (MODE == "dies_once" and starts == 1):
            sys.exit("Segmentation fault")
        if MODE == "hangs":
            time.sleep(30)
        if MODE == "error":
            say({"id": request["id"], "error": "ValueError: too small"})
            continue
        if MODE == "flood":
            while True:
                say("spam")
        answer = dict(GOOD)
        if MODE == "nan":
            answer["Type_Probs_PA_AP_lateral_notCXR"] = [float("nan")] * 4
        if MODE == "short":
            answer["Type_Probs_PA_AP_lateral_notCXR"] = [1.0, 0.0, 0.0]
        if MODE == "missing":
            del answer["Rotation_Probs_0_90_180_270"]
        if MODE == "chatter":
            say("1/1 [==============] - 0s")
            say({"id": -1, "answer": {}})
        say({"id": request["id"], "answer": None if MODE == "null" else answer})


main()
