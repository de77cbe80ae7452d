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
"""OpenCXR's image sorter as a process: paths in, its answers out, one JSON object a line.

Runs in OpenCXR's own environment (Python 3.8 to 3.10, TensorFlow 2.11), which cannot hold this package; so it imports
nothing of it::

    /envs/opencxr/bin/python opencxr_worker.py
    <- {"ready": true}
    -> {"id": 1, "image": "/tmp/film.png"}
    <- {"id": 1, "answer": {"Type": "PA", "Type_Probs_PA_AP_lateral_notCXR": [0.98, ...], ...}}
    <- {"id": 1, "error": "..."}                   # where a film could not be sorted
"""

import json
import os
import sys
from typing import IO


def main() -> None:
    """Answer until the input ends."""
    # TensorFlow and OpenCXR print to standard output, the former below Python: keep that for answers alone.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import opencxr
    from opencxr.utils.file_io import read_file

    sorter = opencxr.load(opencxr.algorithms.image_sorter)
    _say(out, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            pixels = read_file(request["image"])[0]
            answer = {key: _plain(value) for key, value in sorter.run(pixels).items()}
            _say(out, {"id": request["id"], "answer": answer})
        except Exception as error:
            _say(out, {"id": request["id"], "error": f"{type(error).__name__}: {error}"})


def _plain(value: object) -> object:
    return [float(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


def _say(out: IO[str], message: object) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
