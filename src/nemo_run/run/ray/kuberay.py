"""Ray clusters and jobs on Kubernetes, by the KubeRay operator."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_run._backends.kubeflow.site import Site
from nemo_run._backends.ray.kuberay import manifests, objects
from nemo_run._backends.ray.kuberay.client import DASHBOARD, KubeRay
from nemo_run._backends.ray.kuberay.files import RayVolume, send_directory
from nemo_run._backends.ray.kuberay.logs import SubmitterLog
from nemo_run._backends.ray.runtime_env import read_settings, settings_text
from nemo_run._extras import require
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendError, ConfigError
from nemo_run.run.ray._forward import Forwarding
from nemo_run.run.ray._kuberay import (
    SCHEDULER,
    KubeRayBackend,
    free_port,
    get_user,
    print_yaml,
)
from nemo_run.run.ray._lines import show_lines

logger = logging.getLogger(__name__)

_STOP_S = 300.0


@dataclass(kw_only=True)
class KubeRayCluster(KubeRayBackend):
    """A RayCluster of the operator's, called ``<user>-<name>-raycluster``."""

    PLURAL = manifests.PLURAL
    SUFFIX = "raycluster"
    MOST = manifests.MAX_CLUSTER_NAME

    def create(
        self, pre_ray_start_commands: list[str] | None = None, dryrun: bool = False
    ) -> dict[str, Any] | None:
        """Create the cluster and return its description; None where it is there already.

        ``pre_ray_start_commands`` run in every pod before Ray; where one fails, Ray does not start.

        Raises:
            SubmitError: the cluster did not take it.
        """
        self._check()
        body = self.executor.get_cluster_body(self.object_name)
        if pre_ray_start_commands:
            manifests.run_before_ray(body["spec"], pre_ray_start_commands)
        if dryrun:
            print_yaml(body)
            return body
        if self._object(self._served_api()) is not None:
            logger.info("%s: %s is there already", self.name, self.object_name)
            return None
        namespace = self.executor.namespace
        site = Site.current(namespace, patience_s=objects.SUBMIT_PATIENCE_S)
        self._submit(body, site, self.object_name)
        return body

    def status(
        self, timeout: int = 60, delay_between_attempts: int = 5, display: bool = False
    ) -> dict[str, Any] | None:
        """Return what the operator says of the cluster, waiting up to ``timeout`` s for a word.

        None where there is no cluster, the operator says nothing, or Kubernetes cannot be asked.
        """
        waiting = Waiting(0.2, max(0.2, delay_between_attempts), timeout_s=timeout)
        found: dict[str, Any] | None = None
        while found is None:
            try:
                there = self._object(self._api())
                if there is None:
                    break
                found = dict(there.status) or None
            except BackendError as err:
                logger.warning("%s: %s", self.name, err)
            if found is None and waiting.is_over:
                break
            if found is None:
                waiting.pause()
        if display:
            state = "not found" if found is None else found.get("state", "being made")
            logger.info("Ray cluster %s (%s): %s", self.name, self.object_name, state)
        return found

    def wait_until_running(self, timeout: int = 600, delay_between_attempts: int = 5) -> bool:
        """Tell whether the head can be used, once it can, the cluster is gone or the time is up."""
        waiting = Waiting(0.2, max(0.2, delay_between_attempts), timeout_s=timeout)
        said = ""
        while True:
            try:
                api = self._api()
                there = self._object(api)
                if there is None:
                    return False
                head = api.head(self.object_name)
                address = (there.status.get("head") or {}).get("serviceIP")
                if address and head is not None and objects.is_ready(head):
                    return True
                why = there.said("reason") or objects.why_not_ready(api, self.object_name)
            except BackendError as err:
                why = str(err)
            if why and why != said:
                logger.info("%s: not ready: %s", self.name, why)
                said = why
            if waiting.is_over:
                return False
            waiting.pause()

    def delete(self, wait: bool = False, timeout: int = 300, poll_interval: int = 5) -> bool | None:
        """Delete the cluster; with ``wait`` tell whether it and its pods were gone in time.

        Returns None where there is none.
        """
        return self._delete(wait=wait, timeout_s=timeout, poll_s=poll_interval)

    def patch(self, ray_patch: dict[str, Any]) -> bool:
        """Merge changes into the RayCluster; tell whether Kubernetes took them."""
        try:
            self._api(objects.STOP_PATIENCE_S).change(self.PLURAL, self.object_name, ray_patch)
        except BackendError as err:
            logger.warning("%s: not changed: %s", self.name, err)
            return False
        return True

    def port_forward(
        self, port: int = DASHBOARD, target_port: int = DASHBOARD, wait: bool = False
    ) -> Forwarding:
        """Have ``port`` of this machine lead to ``target_port`` of the head, over the API server.

        Raises:
            RuntimeError: there is no such cluster, or it has no service yet.
            BackendError: the local port is taken.
        """
        api = self._api()
        service = f"{self.object_name}-head-svc"
        if self._object(api) is None or not api.service_exists(service):
            raise RuntimeError(
                f"Ray cluster {self.name!r} has no service {service} in namespace "
                f"{self.executor.namespace!r}, so no port can lead to it. Start it first."
            )
        forwarding = self._forward(api, self.object_name, port, target_port)
        logger.info("%s: http://127.0.0.1:%s leads to %s", self.name, port, service)
        if wait:
            forwarding.wait()
        return forwarding

    def token(self) -> str:
        """Return what proves to Ray that a client may use it; empty where Ray needs no proof."""
        return self._api().token(self.object_name)


@dataclass(kw_only=True)
class KubeRayJob(KubeRayBackend):
    """A RayJob of the operator's, called ``<user>-<name>-rayjob``: a command and its own cluster.

    Attributes:
        job_id: what Ray calls the job; may be assigned, to look at another one of the cluster.
    """

    PLURAL = manifests.JOBS
    SUFFIX = "rayjob"
    MOST = manifests.MAX_JOB_NAME

    job_id: str | None = field(default=None, init=False)
    _way: Forwarding | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def submission_id(self) -> str | None:
        """The same as ``job_id``, in the word of Ray's Jobs API."""
        return self.job_id

    def start(
        self,
        command: str,
        workdir: str | None = None,
        runtime_env_yaml: str | None = None,
        pre_ray_start_commands: list[str] | None = None,
        dryrun: bool = False,
    ) -> str | dict[str, Any] | None:
        """Send ``workdir``, if given, and create the RayJob; return what Ray calls the job.

        An ended RayJob of the same name is deleted first; of one that goes on the id is returned.

        Args:
            command: a line for bash, run on the head in the code that was sent.
            runtime_env_yaml: a file with Ray's settings for what the command starts, or its text.

        Raises:
            ValueError: there is no volume that ``workdir`` could be sent to.
            RuntimeError: the cluster did not take the job.
        """
        self._check()
        if not command.strip():
            raise ConfigError("command is empty. Say what the job is to run.")
        if runtime_env_yaml:
            read_settings(runtime_env_yaml)  # says what is wrong with it
        target = self._target(workdir)
        submission_id = f"{self.name}-{time.strftime('%Y%m%d%H%M%S')}"
        body = manifests.job_body(
            self.executor,
            self.object_name,
            command,
            submission_id=submission_id,
            workdir=target or "/workspace",
            runtime_env=settings_text(runtime_env_yaml) if runtime_env_yaml else "",
            before_ray=pre_ray_start_commands or (),
        )
        if dryrun:
            print_yaml(body)
            return body
        if not self._make_way():
            return self.job_id
        namespace = self.executor.namespace
        site = Site.current(namespace, patience_s=objects.SUBMIT_PATIENCE_S)
        if workdir is not None and target:
            self._send(workdir, target, site)
        self._submit(body, site, submission_id)
        self.job_id = submission_id
        return self.job_id

    def _target(self, workdir: str | None) -> str:
        """Return where the pods have the code; empty where none is sent."""
        if workdir is None:
            return ""
        if not self.executor.volumes or not self.executor.volume_mounts:
            raise ConfigError(
                f"workdir={workdir!r} cannot be sent: the executor has no volumes and "
                "volume_mounts that all pods see. Give both, or put the code into the image."
            )
        source = Path(workdir).expanduser().resolve()
        if not source.is_dir():
            raise ConfigError(f"workdir={workdir!r} is no directory of this machine.")
        start = str(self.executor.volume_mounts[0]["mountPath"]).rstrip("/")
        return f"{start}/{get_user()}/code/{source.name}"

    def _make_way(self) -> bool:
        """Delete an ended RayJob of this name; False where one goes on."""
        api = self._served_api()
        there = self._object(api)
        if there is None:
            return True
        how = objects.seen(api, there)
        if not how.has_ended and not there.deleting:
            self.job_id = there.said("jobId") or self._records.native_id
            logger.info("%s: %s is %s already", self.name, there.name, how.deployment)
            return False
        api.remove(self.PLURAL, there.name)
        if objects.wait_gone(api, self.PLURAL, there.name, timeout_s=_STOP_S, poll_s=2):
            return True
        raise objects.KubeRaySubmitError(
            f"The ended RayJob {there.name} is being deleted, and its pods are still there after "
            f"{_STOP_S:.0f} s. Try again later, or use another name.",
            backend=SCHEDULER,
            operation="submit",
        )

    def _send(self, workdir: str, target: str, site: Site) -> None:
        volume = RayVolume.current(
            self.executor.namespace,
            start=self.object_name,
            volumes=self.executor.volumes,
            mounts=self.executor.volume_mounts,
            pod=self.executor.spec_kwargs,
            site=site,
        )
        send_directory(volume, workdir, target)

    def status(self, display: bool = True) -> dict[str, str]:
        """Return ``jobStatus``, ``jobDeploymentStatus`` and ``message``, in the operator's words.

        A job that is not there is ``NOT_FOUND``; where Kubernetes cannot be asked both are
        ``ERROR``, which says nothing about the job. One that a head which was started again does
        not know any more has failed, though the operator may say for ever that it runs.
        """
        try:
            api = self._api()
            there = self._object(api)
            how = (
                objects.SeenJob(job="NOT_FOUND", deployment="NOT_FOUND")
                if there is None
                else objects.seen(api, there)
            )
            if there is not None:
                self.job_id = self.job_id or there.said("jobId") or None
            if how.has_ended:
                self._records.ended(how.outcome, how.message)
        except BackendError as err:
            logger.warning("%s: %s", self.name, err)
            how = objects.SeenJob(job="ERROR", deployment="ERROR", message=str(err))
        if display:
            said = f": {how.message}" if how.message else ""
            logger.info("Ray job %s: %s, %s%s", self.name, how.job, how.deployment, said)
        return {
            "jobStatus": how.job,
            "jobDeploymentStatus": how.deployment,
            "message": how.message,
        }

    def _has_ended(self) -> bool:
        return self.status(display=False)["jobDeploymentStatus"] in (
            "Complete",
            "Failed",
            "NOT_FOUND",
        )

    def logs(self, follow: bool = False, lines: int = 100, timeout: int | None = None) -> None:
        """Print the last ``lines`` of the log; with ``follow`` also what comes until the end.

        ``timeout`` is how many seconds to wait for a log that is not there yet.
        """
        log = SubmitterLog(self._api(), self.object_name)

        def read(follow: bool) -> Iterator[bytes]:
            # Nothing keeps the log of a submitter that is gone.
            return log.read(follow=follow, ended=self._has_ended, otherwise=lambda: iter(()))

        timeout_s = math.inf if timeout is None else timeout
        show_lines(read, lines=lines, follow=follow, timeout_s=timeout_s, ended=self._has_ended)

    def stop(self, wait: bool = False, timeout: int = 300, poll_interval: int = 5) -> bool | None:
        """Delete the RayJob; with ``wait`` tell whether it and its pods were gone in time.

        Returns None where there is none.
        """
        if self._way is not None:
            self._way.stop_forwarding()
            self._way = None
        return self._delete(wait=wait, timeout_s=timeout, poll_s=poll_interval)

    def follow_logs_until_completion(
        self, poll_interval: int = 10, delete_on_finish: bool = True
    ) -> None:
        """Print the log until the job has ended, and then delete it."""
        self.logs(follow=True)
        waiting = Waiting(0.2, max(0.2, poll_interval))
        while not self._has_ended():
            waiting.pause()
        self.status()
        if delete_on_finish:
            self.stop(wait=True)

    def _ray_client(self) -> Any:
        """Return a client of Ray's own for the job's cluster, over a port of this machine.

        Raises:
            RuntimeError: the cluster is not there, or not any more.
        """
        made = require("ray.job_submission", extra="ray", needed_by="_ray_client()")
        if self._way is not None:
            self._way.stop_forwarding()
        port = free_port()
        self._way = self.port_forward(port=port)
        token = self.token()
        headers = {"Authorization": f"Bearer {token}"} if token else None
        return made.JobSubmissionClient(f"http://127.0.0.1:{port}", headers=headers)

    def port_forward(
        self, port: int = DASHBOARD, target_port: int = DASHBOARD, wait: bool = False
    ) -> Forwarding:
        """Have ``port`` of this machine lead to the head of the job's cluster.

        Raises:
            RuntimeError: the cluster is not there, or not any more.
            BackendError: the local port is taken.
        """
        api = self._api()
        forwarding = self._forward(api, self._ray_cluster(api), port, target_port)
        if wait:
            forwarding.wait()
        return forwarding

    def token(self) -> str:
        """Return what proves to Ray that a client may use it; empty where Ray needs no proof."""
        api = self._api()
        return api.token(self._ray_cluster(api))

    def _ray_cluster(self, api: KubeRay) -> str:
        there = self._object(api)
        cluster = there.said("rayClusterName") if there is not None else ""
        if not cluster or api.head(cluster) is None:
            raise RuntimeError(
                f"Ray job {self.name!r} has no cluster now: it is not there yet, or was shut down "
                "after the job. logs() shows what the job printed."
            )
        return cluster
