"""Ray jobs on DGX Cloud (Run:ai): each is a workload whose pods become a Ray cluster."""

from __future__ import annotations

import logging
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NoReturn

from nemo_run import _shell
from nemo_run._backends.kubernetes import script as kubernetes_script
from nemo_run._backends.kubernetes.pod_lines import Window
from nemo_run._backends.ray.files import copy_unignored
from nemo_run._backends.ray.runai_script import build_ray_bootstrap_script
from nemo_run._backends.runai import jobs, payloads
from nemo_run._backends.runai.client import Workload
from nemo_run._backends.runai.logs import WorkloadLogs, files_of
from nemo_run._backends.runai.site import Site
from nemo_run._backends.runai.volume import Item
from nemo_run._jobs.records import new_tag
from nemo_run._transport.waiting import Waiting
from nemo_run.core.execution.dgxcloud import DGXCloudExecutor, DGXCloudState
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    JobNotFoundError,
    SubmitError,
)
from nemo_run.run.ray._lines import show_lines
from nemo_run.run.ray._records import Records

__all__ = ["DGXCloudRayCluster", "DGXCloudRayJob", "build_ray_bootstrap_script", "logger"]

logger = logging.getLogger(__name__)

SCHEDULER = "dgx_cloud_ray"
"""Where the records of Ray jobs on DGX Cloud are, below ``<home>/jobs``."""
_ENDED = frozenset({"Completed", "Failed", "Stopped", "Degraded"})
_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


class DGXCloudRayError(SubmitError, RuntimeError):
    """A workload was not created, or failed. Also a ``RuntimeError``, as in 0.12."""


@dataclass(kw_only=True)
class DGXCloudRayCluster:
    """What a Ray cluster is on DGX Cloud: a part of each job, so that there is nothing to do."""

    EXECUTOR_CLS: ClassVar[type[DGXCloudExecutor]] = DGXCloudExecutor

    name: str
    executor: DGXCloudExecutor

    def create(self, pre_ray_start_commands: list[str] | None = None, dryrun: bool = False) -> None:
        """Do nothing: a job makes its own cluster."""

    def wait_until_running(self, timeout: int = 600, delay_between_attempts: int = 30) -> bool:
        return True

    def delete(self, wait: bool = False, timeout: int = 60, poll_interval: int = 5) -> bool:
        return True

    def status(self, *, display: bool = False) -> dict[str, Any]:
        if display:
            logger.info("Ray clusters on DGX Cloud are parts of their jobs")
        return {"state": "Implicit", "cluster_name": self.name, "ray_ready": True}

    def port_forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "A Ray cluster on DGX Cloud is a part of its job, and no port leads to it."
        )

    def stop_forwarding(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("On DGX Cloud no port leads to a Ray cluster.")


@dataclass(kw_only=True)
class DGXCloudRayJob:
    """A command on a Ray cluster of its own, in the pods of one workload.

    Attributes:
        workload_id: Run:ai's; may be given or assigned, to look at a job of another process.
        poll_interval: seconds between two looks of `wait`.
    """

    name: str
    executor: DGXCloudExecutor
    workload_id: str | None = None
    poll_interval: float = 30
    _site: Site | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def job_id(self) -> str | None:
        """The same as ``workload_id``."""
        return self.workload_id

    @job_id.setter
    def job_id(self, value: str | None) -> None:
        self.workload_id = value

    @property
    def submission_id(self) -> str | None:
        return self.workload_id

    @property
    def _records(self) -> Records:
        app_id = f"{self.executor.base_url}:{self.executor.project_name}:{self.name}"
        return Records(SCHEDULER, app_id, self.name)

    def _found_site(self) -> Site:
        """Return the project, looked up once.

        Raises:
            RuntimeError: Run:ai shows no such project, or does not let us in.
        """
        if self._site is None:
            try:
                self._site = jobs.site_of(self.executor).found()
            except SubmitError as err:
                raise DGXCloudRayError(
                    str(err), backend=SCHEDULER, operation=err.operation, detail=err.detail
                ) from err
        return self._site

    def start(
        self,
        command: str,
        workdir: str | None = None,
        runtime_env_yaml: str | None = None,
        pre_ray_start_commands: list[str] | None = None,
        dryrun: bool = False,
    ) -> str | None:
        """Send ``workdir``, if given, and create the workload; return its id.

        Args:
            command: a line for bash, run in the first pod, in the code that was sent.
            runtime_env_yaml: a file with Ray's settings for what the command starts, or its text.
            pre_ray_start_commands: lines of bash that every pod runs before Ray.

        Raises:
            RuntimeError: Run:ai did not take it.
        """
        executor = self.executor
        executor.check()
        if not command.strip():
            raise ConfigError("command is empty. Say what the job is to run.")
        if workdir is not None and not Path(workdir).expanduser().is_dir():
            raise ConfigError(f"workdir={workdir!r} is no directory of this machine.")
        if runtime_env_yaml:
            from nemo_run._backends.ray.slurm_request import job_config

            setting = f"export {_JOB_CONFIG}={_shell.render([job_config(runtime_env_yaml)])}"
            command = f"{setting}\n{command}"
        tag = new_tag()
        name = payloads.workload_name(self.name, tag)
        bootstrap = build_ray_bootstrap_script(
            command,
            executor.gpus_per_node,
            executor.nodes,
            self._directory(name),
            before_ray=pre_ray_start_commands or (),
        )
        if dryrun:
            logger.info("%s would run in each of %d pods:\n%s", name, executor.nodes, bootstrap)
            return None
        if self._goes_on():
            logger.info("%s: goes on as workload %s", self.name, self.workload_id)
            return self.workload_id
        self.workload_id = self._submit(name, tag, bootstrap, workdir)
        return self.workload_id

    def _directory(self, name: str) -> str:
        """Return where a workload has its code, its logs and the files of its bootstrap."""
        return str(PurePosixPath(self.executor.pvc_nemo_run_dir) / "ray" / name)

    def _goes_on(self) -> bool:
        where = self._records.where()
        if not where and self.workload_id is None:
            return False
        return self.status(display=False)["state"] not in (*_ENDED, "NotFound")

    def _submit(self, name: str, tag: str, bootstrap: str, workdir: str | None) -> str:
        executor, site = self.executor, self._found_site()
        directory = self._directory(name)
        path = str(PurePosixPath(executor.pvc_nemo_run_dir) / f"ray_bootstrap_{name}.sh")
        script = kubernetes_script.render(
            ["/bin/bash", "-c", bootstrap],
            name=name,
            directory=directory,
            # A Ray that knows tokens lets in no one else; others do not look at these.
            env={
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN": secrets.token_hex(16),
                **executor.env_vars,
            },
            nodes=executor.nodes,
        )
        # Before the submission: a later process finds by the name what a killed one has created.
        self._records.begin(tag, {**site.to_where(), "name": name, "ray_name": self.name})
        try:
            with tempfile.TemporaryDirectory() as scratch:
                if workdir is not None:
                    copy_unignored(Path(workdir).expanduser().resolve(), Path(scratch))
                item = Item(path=f"{directory}/code", source=Path(scratch))
                volume = jobs.volume_of(executor, site)
                volume.put([item], last=Item(path=path, text=script))
            body = jobs.payload(executor, site, name=name, tag=tag, script=path)
            workload = site.client().create_named(executor._kind, body)
        except BackendError as err:
            if not isinstance(err, BackendUnavailableError):
                self._records.ended("FAILED", str(err))
            raise DGXCloudRayError(
                f"Ray job {self.name} was not submitted to DGX Cloud: {err}",
                backend=SCHEDULER,
                operation="submit",
                detail=err.detail,
            ) from err
        self._records.submitted(workload.id)
        logger.info("%s: created workload %s (%s)", self.name, name, workload.id)
        return workload.id

    def _workload(self) -> Workload | None:
        """Return the workload: by its id, or by the name that was recorded; None for none."""
        where = self._records.where()
        site = Site.from_where(where) if where else self._found_site()
        client = site.client()
        if self.workload_id is None:
            self.workload_id = self._records.native_id or None
        if self.workload_id is not None:
            try:
                return client.get(self.executor._kind, self.workload_id)
            except JobNotFoundError:
                return None
        found = client.find(where["name"], site.project_id) if where else None
        if found is not None:
            self.workload_id = found.id
            self._records.submitted(found.id)
        return found

    def status(self, display: bool = True) -> dict[str, Any]:
        """Return ``workload_id``, ``state`` in Run:ai's words, and ``name``.

        One that is not there is ``NotFound``; where Run:ai cannot be asked it is ``Unknown``.
        """
        try:
            found = self._workload()
            state = "NotFound" if found is None else DGXCloudState.of(found.phase).value
        except BackendError as err:
            logger.warning("%s: %s", self.name, err)
            state = DGXCloudState.UNKNOWN.value
        if state in _ENDED:
            outcome = {"Completed": "SUCCEEDED", "Stopped": "CANCELLED"}
            self._records.ended(outcome.get(state, "FAILED"))
        if display:
            logger.info("Ray job %s: %s, workload %s", self.name, state, self.workload_id)
        return {"workload_id": self.workload_id, "state": state, "name": self.name}

    def _required_id(self) -> str:
        found = self.workload_id or self.status(display=False)["workload_id"]
        if found is None:
            raise RuntimeError(
                f"No workload of Ray job {self.name!r} is known. Start it first, or assign "
                "workload_id."
            )
        return str(found)

    def stop(self, wait: bool = False, **_: Any) -> bool:
        """Ask the workload to stop; with ``wait`` return when it has.

        Raises:
            RuntimeError: no workload of this job is known.
            BackendError: with ``wait``, it goes on.
        """
        workload_id, kind = self._required_id(), self.executor._kind
        client = self._found_site().client()
        if jobs.has_ended(client, kind, workload_id):
            return True
        if wait:
            jobs.stop(client, kind, workload_id)
        else:
            client.suspend(kind, workload_id)
        return True

    def _has_ended(self) -> bool:
        return self.status(display=False)["state"] in (*_ENDED, "NotFound")

    def logs(self, follow: bool = False, lines: int = 100, timeout: float = 100, **_: Any) -> None:
        """Print the last ``lines`` of the first pod; with ``follow`` also what comes until the end.

        ``timeout`` is how many seconds to wait for a log that is not there yet.

        Raises:
            RuntimeError: no workload of this job is known.
        """
        site, workload_id = self._found_site(), self._required_id()
        name = self._records.where().get("name", "")
        pattern = files_of(name, 0, self.executor.nodes)
        volume = jobs.volume_of(self.executor, site)
        reader = WorkloadLogs(site.client(), site.kube(), workload_id, 0, Window())

        def read(follow: bool) -> Iterator[bytes]:
            return reader.read(
                follow=follow,
                ended=self._has_ended,
                otherwise=lambda: volume.read(self._directory(name), pattern),
            )

        show_lines(read, lines=lines, follow=follow, timeout_s=timeout, ended=self._has_ended)

    def wait(self, poll: float | None = None) -> str:
        """Return ``Completed`` once the workload has.

        Raises:
            RuntimeError: it ended otherwise.
        """
        self._required_id()
        pause_s = self.poll_interval if poll is None else poll
        waiting = Waiting(min(0.2, pause_s), pause_s)
        while not self._has_ended():
            waiting.pause()
        state = str(self.status()["state"])
        if state != "Completed":
            raise DGXCloudRayError(
                f"Ray job {self.name} ended as {state}. Its log says why.",
                backend=SCHEDULER,
                operation="wait",
                detail=state,
            )
        return state
