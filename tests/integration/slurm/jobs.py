"""Short ways to say what most tests of Slurm jobs need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import patience
from tests.contract.backends import SlurmOverSsh
from tests.integration.slurm.cluster import SlurmCluster
from torchx.specs import AppState

import nemo_run as run


class Jobs(SlurmOverSsh):
    """Jobs on a running cluster, which ``engine`` is, and a home directory of their own."""

    def __init__(self, engine: SlurmCluster, root: Path) -> None:
        super().__init__(root)
        self.engine = engine

    @property
    def remote(self) -> Path:
        """Where jobs live on the cluster."""
        return self._remote

    def engine_says(self, app_id: str) -> str:
        return self.engine.told(app_id)

    def slurm_executor(self, **settings: Any) -> run.SlurmExecutor:
        executor = self.executor(**settings)
        assert isinstance(executor, run.SlurmExecutor)
        return executor

    def squeue(self, app_id: str, fields: str) -> str:
        """Return what the queue says of a job."""
        return self.engine.run("squeue", "-h", "-t", "all", "-j", app_id, "-o", fields).strip()

    def submitted(self) -> list[str]:
        """Return the scripts of all jobs that were ever submitted below our directory."""
        said = self.engine.run("squeue", "-h", "-t", "all", "-o", "%o")
        return [path for path in said.split() if path.startswith(str(self.remote))]

    def wait_for(self, app_id: str, state: AppState, timeout_s: float = 180) -> None:
        def arrived() -> bool:
            status = self.status(app_id)
            return status is not None and status.state is state

        try:
            wait_until(arrived, f"{app_id} to be {state.name}", timeout_s)
        except TimeoutError as err:
            raise TimeoutError(f"{err}{self.engine_says(app_id)}") from None

    def says(self, app_id: str, text: str) -> bool:
        """Tell whether the status of a job has ``text`` in its message."""
        status = self.status(app_id)
        return status is not None and text in status.message

    def run_group(
        self,
        tasks: Sequence[run.Script],
        executor: run.SlurmExecutor | list[run.SlurmExecutor],
        **settings: Any,
    ) -> run.Experiment:
        with run.Experiment("group", clean_mode=True, **settings) as exp:
            exp.add(tasks, executor=executor, name="group")
            exp.run()
        return exp


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = patience.deadline(timeout_s)
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {timeout_s:g} s")
        time.sleep(0.1)


def script(text: str, env: Mapping[str, str] | None = None) -> run.Script:
    return run.Script(inline=text, env=dict(env or {}))


def log_of(exp: run.Experiment, role: str) -> list[str]:
    """Return the log lines of one task of an experiment's first job."""
    scheduler, app_id = exp._runner.scheduler_of(exp.jobs[0].handle)
    return list(scheduler.log_iter(app_id, role))
