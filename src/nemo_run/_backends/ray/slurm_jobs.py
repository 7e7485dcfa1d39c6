"""Ray clusters on Slurm as any process finds them again: by a record, by a number, or by name."""

from __future__ import annotations

import copy
import json
import logging
import time
from dataclasses import replace
from pathlib import Path, PurePosixPath

from nemo_run._backends.ray.slurm_batch import RayBatch
from nemo_run._backends.slurm import request as slurm_request
from nemo_run._backends.slurm.batch import STATE_DIR
from nemo_run._backends.slurm.job import SubmittedJob, client_for, submit_once
from nemo_run._backends.slurm.status import job_status
from nemo_run._home import get_nemorun_home
from nemo_run._jobs.records import JobRecord, JobRef, RoleSize
from nemo_run._jobs.status import JobStatus
from nemo_run._jobs.store import JobStore
from nemo_run._values import expandable_environment
from nemo_run.core.execution.slurm import SlurmExecutor
from nemo_run.exceptions import ConfigError, SubmitError

log = logging.getLogger(__name__)

SCHEDULER = "slurm_ray"
"""Where the records of Ray clusters on Slurm are, below ``<home>/jobs``."""


def batch_of(
    executor: SlurmExecutor, name: str, cluster_dir: str, *, tag: str = "", command: str = ""
) -> RayBatch:
    """Return the job that is a cluster, before anything is said of its command's surroundings."""
    if not cluster_dir.startswith("/"):
        raise ConfigError(
            f"job_dir={executor.tunnel.job_dir!r} of the tunnel is no place on the cluster. "
            "Give the whole path, such as '/scratch/me/jobs'."
        )
    own = copy.deepcopy(executor)
    # Code is kept two levels above the directory of an experiment, which a cluster has none of.
    own.tunnel.job_dir = str(PurePosixPath(cluster_dir).parent / "ray" / name)
    own.job_dir = str(Path(get_nemorun_home()) / "ray" / own.tunnel.key / name)
    return RayBatch(
        launch_cmd=["sbatch", "--parsable"],
        jobs=[name],
        command_groups=[[command]],
        executor=own,
        max_retries=executor.retries or 0,
        extra_env=expandable_environment(executor.env_vars),
        cluster_dir=cluster_dir,
        command=command,
        tag=tag,
        code_of=name,
        template_name=executor.ray_template,
    )


class Ledger:
    """The record of one cluster: written before it is submitted, read by every later process."""

    def __init__(self, executor: SlurmExecutor, name: str, cluster_dir: str) -> None:
        self._executor, self._name, self._cluster_dir = executor, name, cluster_dir
        self._app_id = f"{executor.tunnel.key}:{cluster_dir}"

    def submit(self, batch: RayBatch) -> str:
        """Submit ``batch`` once, whatever breaks on the way, and return the number of the job.

        Raises:
            SubmitError: Slurm did not accept it.
        """
        script = batch.materialize().encode()
        record = self._new(batch)
        store = JobStore()
        # The one before it has ended, and an ended job stays as it was.
        store.delete(record.app_id, SCHEDULER)
        # Before the submission: a later process finds by the tag what a killed one submitted.
        store.put(record)
        client = client_for(batch.executor.tunnel)
        try:
            job_id = submit_once(client, slurm_request.submission(batch, script))
        except SubmitError as err:
            store.put(replace(record, state="FAILED", message=str(err)))
            raise
        ref = slurm_request.reference(batch, job_id, job_id)
        store.put(replace(record, ref=ref, state="SUBMITTED"))
        return job_id

    def _new(self, batch: RayBatch) -> JobRecord:
        now = time.time()
        return JobRecord(
            app_id=self._app_id,
            scheduler=SCHEDULER,
            roles=(RoleSize(self._name, 1),),
            ref=slurm_request.reference(batch, "", ""),
            tag=batch.tag,
            submitted_at=now,
            last_seen_at=now,
            job_dir=batch.executor.job_dir,
        )

    def known(self) -> str | None:
        """Return the number of the job that was last submitted from here; None for none.

        Raises:
            BackendUnavailableError: its launcher was killed, and Slurm cannot be asked now.
        """
        store = JobStore()
        record = store.find(self._app_id, SCHEDULER)
        if record is None or record.ref is None:
            return None
        if record.ref.native_id:
            return record.ref.native_id
        if record.is_terminal:
            return None
        where = record.ref.where
        found = client_for(self._executor.tunnel).find(where["state_dir"])
        if found is None:
            return None
        ref = JobRef(native_id=found, where={**where, "job_id": found})
        store.put(replace(record, ref=ref, state="SUBMITTED"))
        return found

    def job(self, job_id: str) -> SubmittedJob:
        """Return how to ask for a job, which need not have been submitted by us."""
        record = JobStore().find(self._app_id, SCHEDULER)
        if record is not None and record.ref is not None and record.ref.native_id == job_id:
            return SubmittedJob(record.ref)
        batch = batch_of(self._executor, self._name, self._cluster_dir)
        ref = slurm_request.reference(batch, job_id, job_id)
        state_dir = f"{self._cluster_dir}/{STATE_DIR}/job-{job_id}"
        return SubmittedJob(replace(ref, where={**ref.where, "state_dir": state_dir}))

    def remember(self, job_id: str, status: JobStatus) -> None:
        """Write down how the recorded job ended."""
        record = JobStore().find(self._app_id, SCHEDULER)
        if record is None or record.ref is None or record.ref.native_id != job_id:
            return
        ended = replace(
            record,
            state=status.state.name,
            message=status.message,
            exit_code=status.exit_code,
            ended_at=status.ended_at,
        )
        JobStore().put(ended)


def words(job: SubmittedJob) -> tuple[str, JobStatus]:
    """Return Slurm's word for the state of a job, and what it means; see `SubmittedJob.report`."""
    report = job.report()
    status = job_status(report)
    if report.rows and not report.exits:
        return report.rows[-1].state, status
    known = {"SUCCEEDED": "COMPLETED", "FAILED": "FAILED", "CANCELLED": "CANCELLED"}
    return known.get(status.state.name, status.state.name), status


def parse_info(data: bytes) -> dict[str, str] | None:
    """Return what a cluster says of itself; None where that is not whole."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else None
