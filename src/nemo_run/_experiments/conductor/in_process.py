"""Run the jobs of an experiment in this process, one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from torchx.specs import AppState

from nemo_run._experiments.conductor.direct import SUFFIX
from nemo_run._experiments.conductor.loop import Conductor
from nemo_run._experiments.jobs.task_text import decoded
from nemo_run.exceptions import ConfigError
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.task import direct_run_fn
from nemo_run.run.torchx_backend.runner import SESSION
from nemo_run.run.torchx_backend.schedulers.api import get_executor_str
from nemo_run.run.utils import TeeStdoutStderr


def only_single_jobs(jobs: Sequence[Job | JobGroup]) -> list[Job]:
    """Return the jobs, if they can run one after the other in one process.

    Raises:
        ConfigError: one is a group, or depends on another.
    """
    single = [job for job in jobs if isinstance(job, Job) and not job.dependencies]
    if len(single) < len(jobs):
        name = next(job.id for job in jobs if job not in single)
        raise ConfigError(
            f"direct=True runs single tasks in this process; {name!r} is a group or depends on "
            "others. Run the experiment without direct=True."
        )
    return single


def run_directly(jobs: Sequence[Job], conductor: Conductor) -> None:
    """Run each task, keeping a copy of what it prints; an exception ends the row."""
    for index, job in enumerate(jobs):
        member = conductor.states[index].members[0]
        member.handle = f"{get_executor_str(job.executor)}://{SESSION}/{job.id}{SUFFIX}"
        member.state, member.started_at = AppState.RUNNING, time.time()
        conductor.write_down(index)
        try:
            with TeeStdoutStderr(str(Path(job.executor.job_dir) / f"log_{job.id}{SUFFIX}.out")):
                direct_run_fn(decoded(job.task))
            member.state, member.exit_code = AppState.SUCCEEDED, 0
        except BaseException as err:
            member.state, member.message = AppState.FAILED, f"{type(err).__name__}: {err}"
            raise
        finally:
            member.ended_at = time.time()
            conductor.explain(index)
            conductor.write_down(index)


def is_first_rank() -> bool:
    """Tell whether this is the one process of a Slurm step that keeps the books."""
    return not int(os.environ.get("SLURM_PROCID") or 0)
