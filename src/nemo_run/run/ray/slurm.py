"""Ray clusters and jobs on Slurm: each cluster is one batch job."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torchx.specs import is_terminal

from nemo_run import _shell
from nemo_run._backends.ray.slurm_jobs import Ledger, batch_of, parse_info, words
from nemo_run._backends.ray.slurm_request import SlurmRayRequest
from nemo_run._backends.ray.slurm_request import job_config as _job_config
from nemo_run._backends.slurm.job import SubmittedJob
from nemo_run._jobs.records import new_tag
from nemo_run._transport.waiting import Waiting
from nemo_run.core.execution.slurm import SlurmExecutor
from nemo_run.core.tunnel.client import SSHTunnel
from nemo_run.core.tunnel.rsync import rsync
from nemo_run.exceptions import (
    BackendUnavailableError,
    ConfigError,
    JobNotFoundError,
)
from nemo_run.run.ray._forward import Forwarding, way_to
from nemo_run.run.ray._log import show_log

__all__ = [
    "SlurmRayCluster",
    "SlurmRayJob",
    "SlurmRayRequest",
    "cancel_slurm_job",
    "get_last_job_id",
    "logger",
    "rsync",
]

logger = logging.getLogger(__name__)

DASHBOARD = 8265
"""Stands for the dashboard of a cluster, whatever port it has there."""

_GOING_ON = frozenset({"PENDING", "RUNNING", "CONFIGURING"})
_OVER = frozenset({"FAILED", "CANCELLED", "TIMEOUT", "NOT_FOUND", "COMPLETED", "OUT_OF_MEMORY"})
_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Variable by which Ray itself hands a driver its runtime environment."""


def cancel_slurm_job(
    executor: SlurmExecutor,
    name: str,
    job_id: int | str,
    *,
    wait: bool = False,
    timeout: int = 60,
    poll_interval: int = 5,
) -> bool:
    """Cancel the job of a cluster; with ``wait`` tell whether it ended within ``timeout`` s."""
    cluster = SlurmRayCluster(name=name, executor=executor)
    cluster.cluster_map[name] = str(job_id)
    return cluster.delete(wait=wait, timeout=timeout, poll_interval=poll_interval)


def get_last_job_id(cluster_dir: str, executor: SlurmExecutor) -> int | None:
    """Return the number of the last job that was the cluster of a directory; None for none."""
    try:
        ids = json.loads(executor.tunnel.read(f"{cluster_dir}/job_ids.json"))
        return int(ids[-1])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


@dataclass(kw_only=True)
class SlurmRayCluster:
    """A Ray cluster in the directory ``<tunnel.job_dir>/<name>`` of a Slurm cluster.

    Attributes:
        cluster_map: numbers of jobs by the names of their clusters; one that is put here wins.
    """

    EXECUTOR_CLS: ClassVar[type[SlurmExecutor]] = SlurmExecutor

    name: str
    executor: SlurmExecutor
    cluster_map: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    @property
    def cluster_dir(self) -> str:
        return f"{self.executor.tunnel._base_dir()}/{self.name}"

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.executor, self.name, self.cluster_dir)

    def status(self, *, display: bool = False) -> dict[str, Any]:
        """Return ``state`` in Slurm's words, ``job_id`` and ``ray_ready``.

        A state that cannot be asked for now is ``UNKNOWN``: an outage is not the end of a cluster.
        """
        found = self._status()
        if display:
            logger.info(
                "Ray cluster %s: %s, job %s, %s",
                self.name,
                found["state"],
                found["job_id"],
                "ready" if found["ray_ready"] else "not ready",
            )
        return found

    def _status(self) -> dict[str, Any]:
        job_id = self.cluster_map.get(self.name)
        try:
            job_id = job_id or self._ledger.known() or self._queued_id()
            job_id = job_id or str(get_last_job_id(self.cluster_dir, self.executor) or "")
            if not job_id:
                return {"state": "NOT_FOUND", "job_id": None, "ray_ready": False}
            state, status = words(self._job(job_id))
            if is_terminal(status.state):
                self._ledger.remember(job_id, status)
            ready = self._info(job_id) is not None if state == "RUNNING" else state == "COMPLETED"
        except JobNotFoundError:
            state, ready = "UNKNOWN", False
        except BackendUnavailableError as err:
            logger.warning("%s", err)
            state, ready = "UNKNOWN", False
        return {"state": state, "job_id": job_id or None, "ray_ready": ready}

    def _job(self, job_id: str) -> SubmittedJob:
        return self._ledger.job(job_id)

    def _queued_id(self) -> str | None:
        """Return the number of a queued job with the name of this cluster."""
        name = SlurmRayRequest.get_job_name(self.executor, self.name)
        argv = ["squeue", "--me", "-n", name, "-h", "-o", "%A"]
        done = self.executor.tunnel.run(_shell.render(argv), hide=True, warn=True)
        numbers = [line.strip() for line in done.stdout.splitlines() if line.strip().isdigit()]
        return numbers[-1] if numbers else None

    def _info(self, job_id: str) -> dict[str, str] | None:
        """Return where the cluster is, as its job wrote; None before it is ready."""
        data = self.executor.tunnel.read(f"{self.cluster_dir}/ray_cluster_info.json")
        info = parse_info(data)
        # That of a job which was killed may have stayed.
        return info if info is not None and info.get("job_id", job_id) == job_id else None

    def create(
        self,
        pre_ray_start_commands: list[str] | None = None,
        dryrun: bool = False,
        command: str | None = None,
        workdir: str | None = None,
        command_groups: list[list[str]] | None = None,
    ) -> str | None:
        """Submit the cluster and return the number of its job; None where it is there already.

        Raises:
            SubmitError: Slurm did not accept it.
        """
        request = SlurmRayRequest(
            name=self.name,
            cluster_dir=self.cluster_dir,
            template_name=self.executor.ray_template,
            executor=self.executor,
            pre_ray_start_commands=pre_ray_start_commands,
            command=command,
            workdir=workdir,
            command_groups=command_groups,
            launch_cmd=["sbatch", "--parsable"],
        )
        if dryrun:
            print(repr(request))
            return None
        before = self.status()
        if before["state"] in _GOING_ON:
            logger.info("%s: is %s already, as job %s", self.name, *list(before.values())[:2])
            return None
        job_id = self._ledger.submit(request.batch(new_tag()))
        self.cluster_map[self.name] = job_id
        logger.info("%s: submitted as job %s", self.name, job_id)
        return job_id

    def wait_until_running(self, timeout: int = 600, delay_between_attempts: float = 30) -> bool:
        """Tell whether all nodes have joined, once they have, the job is over, or the time is."""
        waiting = Waiting(0.5, delay_between_attempts, timeout_s=timeout)
        while True:
            status = self.status()
            if status["ray_ready"]:
                return True
            if status["state"] in _OVER or waiting.is_over:
                return False
            waiting.pause()

    def delete(self, wait: bool = False, timeout: int = 60, poll_interval: float = 5) -> bool:
        """Cancel the job; with ``wait`` tell whether it ended within ``timeout`` seconds."""
        found = self.status()
        if found["job_id"] is None or found["state"] in _OVER:
            return True
        job = self._job(found["job_id"])
        job.client.cancel(job.id, job.state_dir)
        waiting = Waiting(0.2, poll_interval, timeout_s=timeout)
        while wait:
            if self.status()["state"] in _OVER:
                return True
            if waiting.is_over:
                return False
            waiting.pause()
        return True

    def port_forward(
        self, port: int = DASHBOARD, target_port: int = DASHBOARD, wait: bool = False
    ) -> Forwarding:
        """Have ``port`` of this machine lead to ``target_port`` of the head, over our connection.

        8265 and 10001 stand for the dashboard and for Ray's client, whatever ports these have.

        Raises:
            RuntimeError: the cluster is not ready.
            BackendError: the local port is taken, or the login host does not allow it.
        """
        found = self.status()
        info = self._info(found["job_id"]) if found["ray_ready"] else None
        if info is None:
            raise RuntimeError(
                f"Ray cluster {self.name!r} is not ready ({found['state']}), so no port can lead "
                "to it. Wait for it with wait_until_running()."
            )
        host = info["head_ip"]
        if target_port == DASHBOARD:
            host, target_port = info.get("dashboard_host", host), int(info["dashboard_port"])
        elif target_port == 10001 and "client_port" in info:
            target_port = int(info["client_port"])
        forwarding = Forwarding(
            way_to(self.executor.tunnel, host, target_port, local_port=port), port
        )
        forwarding.start()
        forwarding.wait_until_up()
        logger.info("%s: http://127.0.0.1:%s leads to %s:%s", self.name, port, host, target_port)
        if wait:
            forwarding.wait()
        return forwarding

    def token(self) -> str:
        """Return what proves to Ray that a client is its user's; empty where Ray needs no proof."""
        info = self._info(str(self.status()["job_id"])) or {}
        path = info.get("token_file", "")
        return self.executor.tunnel.read(path).decode().strip() if path else ""


@dataclass(kw_only=True)
class SlurmRayJob:
    """A command on a Ray cluster of its own, which ends with it.

    Attributes:
        job_id: of Slurm; may be assigned, to look at a job that another process submitted.
    """

    name: str
    executor: SlurmExecutor
    job_id: str | int | None = field(default=None, init=False)

    @property
    def cluster_dir(self) -> str:
        return self._cluster().cluster_dir

    def _cluster(self) -> SlurmRayCluster:
        cluster = SlurmRayCluster(name=self.name, executor=self.executor)
        if self.job_id is not None:
            cluster.cluster_map[self.name] = str(self.job_id)
        return cluster

    def start(
        self,
        command: str,
        workdir: str | None = None,
        runtime_env_yaml: str | None = None,
        pre_ray_start_commands: list[str] | None = None,
        dryrun: bool = False,
        command_groups: list[list[str]] | None = None,
    ) -> str | int | None:
        """Send ``workdir``, or else what the packager collects, and submit; return the number.

        Args:
            command: a line for bash, run in the code that was sent.
            runtime_env_yaml: a file with Ray's settings for what the command starts, or its text.
        """
        if runtime_env_yaml:
            setting = f"export {_JOB_CONFIG}={_shell.render([_job_config(runtime_env_yaml)])}"
            command = f"{setting}\n{command}"
        cluster = SlurmRayCluster(name=self.name, executor=self.executor)
        code = f"{self.cluster_dir}/code"
        if not dryrun:
            before = cluster.status()
            if before["state"] in _GOING_ON:
                logger.info("%s: is %s already, so nothing is sent", self.name, before["state"])
                self.job_id = before["job_id"]
                return self.job_id
            self._send(workdir, code)
        job_id = cluster.create(
            pre_ray_start_commands=pre_ray_start_commands,
            dryrun=dryrun,
            command=command,
            workdir=code,
            command_groups=command_groups,
        )
        if not dryrun:
            self.job_id = job_id or cluster.status()["job_id"]
            cluster.status(display=True)
        return self.job_id

    def _send(self, workdir: str | None, code: str) -> None:
        from nemo_run.core.packaging._staging import stage

        tunnel = self.executor.tunnel
        directory = Path(batch_of(self.executor, self.name, self.cluster_dir).executor.job_dir)
        # The archive is where the submission finds it, which unpacks it on the cluster.
        (directory / f"{self.name}.tar.gz").unlink(missing_ok=True)
        if not workdir:
            directory.mkdir(parents=True, exist_ok=True)
            stage(self.executor.packager, str(directory), self.name)
            return
        source = f"{Path(workdir).expanduser().resolve()}/"
        if isinstance(tunnel, SSHTunnel):
            rsync(tunnel, source, code, rsync_opts="--filter=':- .gitignore'")
            return
        program = shutil.which("rsync")
        if program is None:
            raise ConfigError("There is no rsync on this machine. Install it to send workdir.")
        Path(code).mkdir(parents=True, exist_ok=True)
        argv = [program, "-a", "--filter=:- .gitignore", "--", source, f"{code}/"]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)

    def status(self, display: bool = True) -> dict[str, Any]:
        """Return ``state``, ``job_id`` and ``ray_ready``: see `SlurmRayCluster.status`."""
        found = self._cluster().status(display=display)
        if self.job_id is None:
            self.job_id = found["job_id"]
        return found

    def stop(self, *, wait: bool = False, timeout: int = 60, poll_interval: float = 5) -> bool:
        """Cancel the job; with ``wait`` tell whether it ended within ``timeout`` seconds.

        Raises:
            RuntimeError: no job of this name is known.
        """
        self._known_id()
        return self._cluster().delete(wait=wait, timeout=timeout, poll_interval=poll_interval)

    def _known_id(self) -> str:
        found = self.job_id or self.status(display=False)["job_id"]
        if found is None:
            raise RuntimeError(
                f"No job of Ray job {self.name!r} is known in {self.cluster_dir}. Start it first, "
                "or assign job_id."
            )
        return str(found)

    def logs(self, follow: bool = False, lines: int = 100, timeout: int = 100) -> None:
        """Print the last ``lines`` of the log; with ``follow`` also what comes until the end.

        ``timeout`` is how many seconds to wait for a log that is not there yet.

        Raises:
            RuntimeError: no job of this name is known.
        """
        job = self._cluster()._job(self._known_id())
        show_log(job, self.name, lines=lines, follow=follow, timeout_s=timeout)
