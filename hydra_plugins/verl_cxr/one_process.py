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
"""``hydra/launcher=one_process``: runs each job of a ``--multirun`` in a process of its own.

Ray keeps the resources of a finished job until its process ends, so a second job in the same process waits for ever. A
process a job also keeps a failing job from taking the rest of the sweep with it.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

__all__ = ["OneProcessLauncher"]

log = logging.getLogger(__name__)


_TARGET = {"_target_": "hydra_plugins.verl_cxr.one_process.OneProcessLauncher"}
ConfigStore.instance().store(group="hydra/launcher", name="one_process", node=_TARGET, provider="verl-cxr")


class OneProcessLauncher(Launcher):
    """Runs the jobs one after another. A job that fails is reported, and raises only after the others have finished."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Run ``python -m MODULE overrides hydra.run.dir=SWEEP/NUMBER`` for each job."""
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        sweep = Path(self.config.hydra.sweep.dir).absolute()
        main = sys.modules["__main__"]
        program = ["-m", main.__spec__.name] if main.__spec__ else [str(Path(sys.argv[0]).absolute())]
        results = []
        for number, overrides in enumerate(job_overrides, start=initial_job_idx):
            folder = sweep / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            log.info("job %d: %s", number, " ".join(filter_overrides(overrides)))
            command = [sys.executable, *program, *overrides, f"hydra.run.dir={folder}", "hydra.mode=RUN"]
            code = subprocess.run(command, check=False).returncode
            result = JobReturn(overrides=overrides, working_dir=str(folder))
            result.status = JobStatus.FAILED if code else JobStatus.COMPLETED
            # reading the value of a failed job raises: Hydra does so once all jobs are done
            result.return_value = (
                RuntimeError(f"job {number} ({folder}) ended with exit status {code}") if code else None
            )
            log.info("job %d: %s", number, f"FAILED with exit status {code}" if code else "done")
            results.append(result)
        return results
