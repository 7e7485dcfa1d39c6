"""Where the jobs of an experiment live on the cluster."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nemo_run._names import is_path_of_id
from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel

if TYPE_CHECKING:
    from nemo_run.core.execution.leftovers import Leftover
    from nemo_run.core.execution.slurm import SlurmExecutor


def tunnel_for(executor: SlurmExecutor, experiment_id: str) -> SSHTunnel | LocalTunnel:
    """Return a tunnel like the executor's, whose ``job_dir`` is the experiment's."""
    before = executor.experiment_id
    tunnel = copy.deepcopy(executor.tunnel)
    # What went through it for another experiment is not this one's.
    tunnel.packaging_jobs = {
        key: job for key, job in tunnel.packaging_jobs.items() if not key.startswith(f"{before}:")
    }
    if before:
        tunnel.job_dir = _without(tunnel.job_dir, before)
    tunnel._set_job_dir(experiment_id)
    return tunnel


@functools.lru_cache(maxsize=1024)  # it is asked for dozens of times for each job
def inside(directory: str, job_dir: str) -> str:
    """Return the directory on the cluster of a job that has ``job_dir`` here."""
    return str(PurePosixPath(directory) / Path(job_dir).name)


def _without(directory: str, experiment_id: str) -> str:
    """Return the directory that an earlier experiment's was made below."""
    title = experiment_id.rpartition("_")[0] or experiment_id
    return directory.removesuffix(f"{title}/{experiment_id}").rstrip("/") or directory


def leftovers(executor: SlurmExecutor) -> Iterator[Leftover]:
    """Yield the directory of the experiment on the cluster, where that is not the one here."""
    from nemo_run.core.execution.leftovers import Leftover

    tunnel, id = executor.tunnel, executor.experiment_id or ""
    directory = PurePosixPath(tunnel.job_dir)
    is_of_experiment = is_path_of_id(directory, id)
    is_here = isinstance(tunnel, LocalTunnel) and Path(directory) == Path(executor.job_dir).parent
    if id and is_of_experiment and not is_here:
        argv = ["rm", "-rf", "--", str(directory)]
        where = tunnel.key.strip("@")
        yield Leftover(f"directory {directory} on {where}", lambda: tunnel.run(argv))
