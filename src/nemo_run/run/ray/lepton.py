"""Ray clusters of a DGX Cloud Lepton workspace, and jobs on them."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from nemo_run._backends.ray.lepton_client import LeptonRay
from nemo_run._backends.ray.runtime_env import runtime_env
from nemo_run._jobs.records import new_tag
from nemo_run._transport.waiting import Waiting
from nemo_run.core.execution.lepton import LeptonExecutor
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
)
from nemo_run.run.ray._lepton_jobs import (
    SCHEDULER,
    LeptonRayError,
    Reader,
    refusal,
    translated,
)
from nemo_run.run.ray._lines import show_lines
from nemo_run.run.ray._records import Records

logger = logging.getLogger(__name__)


DEFAULT_RAY_VERSION = "2.49.2"
"""What the vendor's own client takes where none is named."""
TAG_LABEL = "nemo-run-tag"
_MOST_NAME = 35
_OVER = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
_FAILED_STATES = frozenset({"stopped", "stopping", "deleting"})


def cluster_name_of(name: str) -> str:
    """Return a name as Lepton takes it: lower case, ``-`` for ``_`` and ``.``, 35 at most."""
    found = re.sub(r"[_.]", "-", name.lower())
    return found if len(found) <= _MOST_NAME else found[: _MOST_NAME - 1].rstrip("-")


@dataclass(kw_only=True)
class LeptonRayCluster:
    """A Ray cluster of the workspace that one is logged in to."""

    EXECUTOR_CLS: ClassVar[type[LeptonExecutor]] = LeptonExecutor

    name: str
    executor: LeptonExecutor

    @property
    def cluster_name(self) -> str:
        """What the workspace calls the cluster."""
        return cluster_name_of(self.name)

    def _records(self, client: LeptonRay) -> Records:
        app_id = f"{client.workspace}:rayclusters:{self.cluster_name}"
        return Records(SCHEDULER, app_id, self.name)

    def create(
        self, pre_ray_start_commands: list[str] | None = None, dryrun: bool = False
    ) -> str | None:
        """Create the cluster, unless it is there, and return its name.

        Lepton starts Ray itself: ``pre_ray_start_commands`` cannot run before, and are refused.

        Raises:
            RuntimeError: Lepton did not take it.
        """
        self._check()
        if pre_ray_start_commands:
            raise ConfigError(
                "Lepton starts Ray itself, so pre_ray_start_commands cannot run before it. Put "
                "them into the image, or in front of the job's command."
            )
        if dryrun:
            import yaml

            print(yaml.safe_dump(self._body("", None), sort_keys=False))
            return None
        client = LeptonRay()
        if client.patiently(lambda: client.find_cluster(self.cluster_name)) is not None:
            logger.info("%s: Ray cluster %s is there already", self.name, self.cluster_name)
            return self.cluster_name
        tag = new_tag()
        body = self._body(tag, self.executor._affinity(client))
        records = self._records(client)
        # Before the submission: a later process finds by the name what a killed one has created.
        records.begin(tag, {"name": self.cluster_name, "ray_name": self.name}, self.cluster_name)
        try:
            client.create_cluster(self.cluster_name, body)
        except BackendUnavailableError:
            raise
        except BackendError as err:
            records.ended("FAILED", str(err))
            raise LeptonRayError(
                f"Lepton did not accept Ray cluster {self.cluster_name}: {err}",
                backend=SCHEDULER,
                operation="submit",
                detail=err.detail,
            ) from err
        records.submitted()
        logger.info("%s: created Ray cluster %s", self.name, self.cluster_name)
        return self.cluster_name

    def _check(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*[a-z0-9]", self.cluster_name):
            raise ConfigError(
                f"name={self.name!r} makes {self.cluster_name!r}, which Lepton does not take. Use "
                "letters, digits and '-', with a letter first."
            )
        self.executor.check()

    def _body(self, tag: str, affinity: dict[str, Any] | None) -> dict[str, Any]:
        executor = self.executor
        job = executor.job_spec(executor.env_vars)
        shared = {
            "affinity": affinity,
            "envs": job["envs"],
            "mounts": job["mounts"],
            "shared_memory_size": job["shared_memory_size"],
            "queue_config": job["queue_config"],
            "reservation_config": job["reservation_config"],
        }
        shape = job["resource_shape"]
        head = {**shared, "resource_shape": executor.head_resource_shape or shape}
        worker = {**shared, "resource_shape": shape, "group_name": "workers"}
        return {
            "metadata": {
                "id": self.cluster_name,
                "name": self.cluster_name,
                **({"labels": {TAG_LABEL: tag}} if tag else {}),
            },
            "spec": {
                "image": executor.container_image,
                "image_pull_secrets": job["image_pull_secrets"],
                "ray_version": executor.ray_version or DEFAULT_RAY_VERSION,
                "suspend": False,
                "head_group_spec": {**head, "min_replicas": 1},
                "worker_group_specs": [{**worker, "min_replicas": executor.nodes}],
            },
        }

    def status(self, *, display: bool = False) -> dict[str, Any] | None:
        """Return ``state``, ``cluster_name`` and ``ray_ready``; None where there is no cluster.

        A state that cannot be asked for now is ``UNKNOWN``: an outage is not the end of a cluster.
        """
        found: dict[str, Any] | None = None
        try:
            client = LeptonRay()
            seen = client.find_cluster(self.cluster_name)
            if seen is not None:
                found = {
                    "state": seen.state,
                    "cluster_name": self.cluster_name,
                    "ray_ready": seen.is_ready,
                }
        except BackendUnavailableError as err:
            logger.warning("%s: %s", self.name, err)
            found = {"state": "UNKNOWN", "cluster_name": self.cluster_name, "ray_ready": False}
        if display:
            logger.info(
                "Ray cluster %s: %s", self.cluster_name, found["state"] if found else "not found"
            )
        return found

    def wait_until_running(self, timeout: int = 600, delay_between_attempts: int = 30) -> bool:
        """Tell whether the cluster is ready, once it is, it ends, or the time is up."""
        waiting = Waiting(0.5, max(0.5, delay_between_attempts), timeout_s=timeout)
        while True:
            found = self.status()
            if found is None or found["state"].lower() in _FAILED_STATES:
                return False
            if found["ray_ready"]:
                return True
            if waiting.is_over:
                return False
            waiting.pause()

    def delete(self, wait: bool = False, timeout: int = 60, poll_interval: int = 5) -> bool:
        """Delete the cluster; with ``wait`` tell whether it was gone within ``timeout`` seconds."""
        client = LeptonRay()
        client.patiently(lambda: client.delete_cluster(self.cluster_name))
        waiting = Waiting(0.2, max(0.2, poll_interval), timeout_s=timeout)
        while wait and client.patiently(lambda: client.find_cluster(self.cluster_name)):
            if waiting.is_over:
                return False
            waiting.pause()
        self._records(client).ended("CANCELLED")
        return True

    def port_forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "Lepton shows the dashboard of a Ray cluster on its own pages; no port leads to it."
        )

    def stop_forwarding(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("On Lepton no port leads to a Ray cluster.")


@dataclass(kw_only=True)
class LeptonRayJob:
    """A command on a Ray cluster of the workspace, which is made where it is missing, and stays.

    Attributes:
        cluster_name: of the cluster; by default the name of the job.
        cluster_ready_timeout: how many seconds the cluster may take to get ready.
        job_id: what Ray calls the job; may be assigned, to look at another one of the cluster.
    """

    name: str
    executor: LeptonExecutor
    cluster_name: str | None = None
    cluster_ready_timeout: int | None = 1800
    job_id: str | None = field(default=None, init=False)

    @property
    def submission_id(self) -> str | None:
        """The same as ``job_id``, in the word of Ray's Jobs API."""
        return self.job_id

    def _cluster(self) -> LeptonRayCluster:
        return LeptonRayCluster(name=self.cluster_name or self.name, executor=self.executor)

    def _records(self, client: LeptonRay) -> Records:
        cluster = self._cluster().cluster_name
        app_id = f"{client.workspace}:rayjobs:{cluster}:{self.name}"
        return Records(SCHEDULER, app_id, self.name)

    def start(
        self,
        command: str,
        workdir: str | None = None,
        runtime_env_yaml: str | None = None,
        pre_ray_start_commands: list[str] | None = None,
        dryrun: bool = False,
    ) -> str | None:
        """Submit ``command`` to the cluster, with the files of ``workdir``; return Ray's id.

        Args:
            command: a line for the shell of the head.
            runtime_env_yaml: a file with Ray's settings for what the command starts, or its text.

        Raises:
            RuntimeError: the cluster did not get ready in time, or Ray did not take the job.
        """
        environment = runtime_env(workdir, runtime_env_yaml)
        if not command.strip():
            raise ConfigError("command is empty. Say what the job is to run.")
        cluster = self._cluster()
        job_id = f"{self.name}-{time.strftime('%Y%m%d%H%M%S')}"
        if dryrun:
            logger.info(
                "would run %r as %s on Ray cluster %s", command, job_id, cluster.cluster_name
            )
            return None
        cluster.create(pre_ray_start_commands=pre_ray_start_commands)
        timeout_s = 1800 if self.cluster_ready_timeout is None else self.cluster_ready_timeout
        if not cluster.wait_until_running(timeout=timeout_s):
            raise LeptonRayError(
                f"Ray cluster {cluster.cluster_name} is not ready after up to {timeout_s} s: "
                f"{cluster.status()}. Look at it on Lepton's pages, or delete it.",
                backend=SCHEDULER,
                operation="submit",
            )
        client = LeptonRay()
        records = self._records(client)
        # Before the submission: Ray knows a job by this id or does not have it.
        records.begin(new_tag(), {"cluster": cluster.cluster_name, "ray_name": self.name}, job_id)
        self._submit(client, command, environment, job_id, records)
        self.job_id = job_id
        logger.info("%s: submitted to Ray cluster %s", job_id, cluster.cluster_name)
        return job_id

    def _submit(
        self,
        client: LeptonRay,
        command: str,
        environment: dict[str, Any],
        job_id: str,
        records: Records,
    ) -> None:
        def attempt() -> None:
            jobs = client.jobs_client(self._cluster().cluster_name)
            try:
                jobs.submit_job(entrypoint=command, runtime_env=environment, submission_id=job_id)
            except RuntimeError as err:
                # Of an attempt whose answer was lost: the id is ours alone.
                if "already exists" not in str(err):
                    raise refusal(err) from err

        try:
            client.patiently(lambda: translated(attempt))
        except BackendUnavailableError:
            raise
        except BackendError as err:
            records.ended("FAILED", str(err))
            raise

    def _ray_client(self) -> Any:
        """Return Ray's own client for the jobs of the cluster."""
        return LeptonRay().jobs_client(self._cluster().cluster_name)

    def _known_id(self, jobs: Any) -> str | None:
        """Return the job's id: as assigned, as recorded, else the latest that the cluster lists."""
        if self.job_id is None:
            self.job_id = self._records(LeptonRay()).native_id or None
        if self.job_id is None:
            listed = [job for job in jobs.list_jobs() if job.submission_id]
            latest = max(listed, key=lambda job: job.start_time or 0, default=None)
            self.job_id = latest.submission_id if latest is not None else None
        return self.job_id

    def status(self, display: bool = True) -> Any:
        """Return Ray's word for the state of the job; None where it cannot be had."""
        found = None
        try:
            found = translated(lambda: self._status(self._ray_client()))
        except BackendError as err:
            logger.warning("%s: %s", self.name, err)
        if found is not None and str(getattr(found, "value", found)) in _OVER:
            outcome = {"SUCCEEDED": "SUCCEEDED", "STOPPED": "CANCELLED"}
            self._records(LeptonRay()).ended(outcome.get(str(found.value), "FAILED"))
        if display:
            logger.info("Ray job %s: %s", self.job_id or self.name, found)
        return found

    def _status(self, jobs: Any) -> Any:
        job_id = self._known_id(jobs)
        return None if job_id is None else jobs.get_job_status(job_id)

    def _has_ended(self) -> bool:
        found = self.status(display=False)
        return found is not None and str(getattr(found, "value", found)) in _OVER

    def logs(self, follow: bool = False, lines: int = 100, timeout: int = 100, **_: Any) -> None:
        """Print the last ``lines`` of the log; with ``follow`` also what comes until the end.

        ``timeout`` is how many seconds to wait for a log that is not there yet. An outage while
        following is waited for.

        Raises:
            RuntimeError: no job of this name is known.
        """
        client = LeptonRay()
        jobs = client.patiently(self._ray_client) if follow else self._ray_client()
        job_id = self._required_id(jobs)
        show_lines(
            Reader(jobs, job_id, self._has_ended).read,
            lines=lines,
            follow=follow,
            timeout_s=timeout,
            ended=self._has_ended,
        )

    def _required_id(self, jobs: Any) -> str:
        job_id = self._known_id(jobs)
        if job_id is None:
            raise RuntimeError(
                f"No job of Ray job {self.name!r} is known on Ray cluster "
                f"{self._cluster().cluster_name!r}. Start it first, or assign job_id."
            )
        return job_id

    def stop(self, *, wait: bool = False, timeout: int = 60, poll_interval: int = 5) -> bool:
        """Ask Ray to end the job; with ``wait`` tell whether it ended within ``timeout`` seconds.

        The cluster stays: `RayCluster.stop` ends it.

        Raises:
            RuntimeError: no job of this name is known.
        """
        client = LeptonRay()
        jobs = client.patiently(self._ray_client)
        job_id = self._required_id(jobs)
        if self._has_ended():
            return True
        client.patiently(lambda: translated(lambda: jobs.stop_job(job_id)))
        waiting = Waiting(0.2, max(0.2, poll_interval), timeout_s=timeout)
        while wait and not self._has_ended():
            if waiting.is_over:
                return False
            waiting.pause()
        return True
