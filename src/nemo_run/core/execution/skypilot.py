"""Run on clusters that SkyPilot makes."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run._backends.skypilot import client, downloads, launches
from nemo_run._backends.skypilot.sdk import BACKEND, sdk
from nemo_run._backends.skypilot.task import SkypilotTask, log_directory, shown, task_name
from nemo_run._files import write_whole
from nemo_run._jobs.shown_text import show
from nemo_run.core.execution.base import Capabilities, ExecutorMacros
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import BackendError, ConfigError, JobNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sky

    from nemo_run.core.execution.leftovers import Leftover

logger = logging.getLogger(__name__)

_CLUSTER_NAME = re.compile(r"[A-Za-z]([-_.A-Za-z0-9]*[A-Za-z0-9])?")


def __getattr__(name: str) -> Any:
    if name == "_SKYPILOT_AVAILABLE":
        return find_spec("sky") is not None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(kw_only=True)
class SkypilotExecutor(SkypilotTask):
    """Runs tasks on a cluster of SkyPilot's, which is made when it is first needed.

    All jobs of an experiment share one cluster, named after it, unless ``cluster_name`` says
    otherwise.

    Attributes:
        autodown: take the cluster down when it has been idle.
        idle_minutes_to_autostop: how long it may be idle.
        retry_until_up: go on asking for machines until there are some.
    """

    SCHEDULER: ClassVar[str] = "skypilot"
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(detach=True, retries=True, log_times=False)

    # What a cluster of this executor is asked is written down here, for the public contract.

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        super().assign(exp_id, exp_dir, task_id, task_dir)

    def package(self, packager: Packager, job_name: str) -> None:
        super().package(packager, job_name)

    def macro_values(self) -> ExecutorMacros | None:
        return super().macro_values()

    @classmethod
    def parse_app(cls, app_id: str) -> tuple[str, str, int]:
        """Return cluster, task and job number; the cluster is asked where the id has a tag.

        Raises:
            ConfigError: this is no id of ours.
            JobNotFoundError: the cluster has no such job, or not yet.
        """
        cluster, task, last = split_app_id(app_id)
        if last.isdecimal():
            return cluster, task, int(last)
        return cluster, task, find_job(cluster, job_name(task, last)).id

    @classmethod
    def status(cls, app_id: str) -> tuple[sky.utils.status_lib.ClusterStatus | None, dict | None]:  # type: ignore[type-arg]  # as published
        """Return the cluster's status and the job's entry in its queue, each None if unknown."""
        cluster, task, last = split_app_id(app_id)
        try:
            state = client.cluster_status(cluster)
        except BackendError as err:
            logger.debug("%s: %s", cluster, err)
            return None, None
        if state is None:
            return None, None
        try:
            job = find_job(cluster, job_name(task, last))
        except BackendError as err:
            logger.debug("%s: %s", app_id, err)
            return sdk().ClusterStatus(state), None
        details = {
            "job_id": job.id,
            "job_name": job.name,
            "status": sdk().JobStatus(job.status),
            "log_path": job.log_path,
            "start_at": job.started_at,
            "end_at": job.ended_at,
        }
        return sdk().ClusterStatus(state), details

    @classmethod
    def cancel(cls, app_id: str) -> None:
        """End a job; one that is not there is left alone."""
        cluster, task, last = split_app_id(app_id)
        try:
            job = find_job(cluster, job_name(task, last))
        except JobNotFoundError:
            return
        client.cancel(cluster, job.id)

    @classmethod
    def logs(cls, app_id: str, fallback_path: str | None) -> None:
        """Print the log of a job and follow it; from ``fallback_path`` where that has it."""
        kept = Path(fallback_path).expanduser() / "run.log" if fallback_path else None
        _, details = cls.status(app_id)
        ended = details is None or details["status"].is_terminal()
        if ended and kept is not None and kept.exists():
            show(kept.read_text(errors="replace"))
            return
        cluster, _, job_id = cls.parse_app(app_id)
        for line in client.tail(cluster, job_id, follow=True):
            show(line.text)

    def launch(
        self,
        task: sky.task.Task,
        cluster_name: str | None = None,
        num_nodes: int | None = None,
        dryrun: bool = False,
    ) -> tuple[int | None, sky.backends.ResourceHandle | None]:
        """Launch a task and wait for the cluster; return the job's number and the handle."""
        if num_nodes is not None:
            task.num_nodes = num_nodes
        request = self.submit(task, cluster_name, dryrun=dryrun)
        given: tuple[int | None, Any] = launches.answer(request, operation="launch")
        return given

    def submit(
        self, task: sky.task.Task, cluster_name: str | None = None, dryrun: bool = False
    ) -> str:
        """Ask for a task and return the request's id, without waiting for a cluster.

        The task is also written to ``skypilot_task.yml`` in the job directory, without secrets.
        """
        if self.job_dir:
            import yaml

            text = yaml.safe_dump(shown(task), sort_keys=False)
            write_whole(Path(self.job_dir) / "skypilot_task.yml", text.encode())
        return launches.launch(
            task,
            cluster_name or self.cluster(),
            retry_until_up=self.retry_until_up,
            idle_minutes_to_autostop=self.idle_minutes_to_autostop,
            down=self.autodown,
            dryrun=dryrun,
        )

    def cluster(self) -> str:
        """Return the name of the cluster that jobs of this executor run on.

        Raises:
            ConfigError: neither ``cluster_name`` nor an experiment gives it one, or SkyPilot does
                not take it.
        """
        if self.cluster_name:
            if not _CLUSTER_NAME.fullmatch(self.cluster_name):
                raise ConfigError(
                    f"cluster_name={self.cluster_name!r} is no name that SkyPilot takes. Use "
                    "letters, digits, '-', '_' and '.', with a letter first and no sign last."
                )
            return self.cluster_name
        if not self.experiment_id:
            raise ConfigError(
                "The cluster has no name. Give cluster_name, or add the task to an experiment."
            )
        return cluster_of(task_name(self.experiment_id))

    def cleanup(self, handle: str) -> None:
        """Copy the logs of an ended job into the job directory; one that is gone has none."""
        _, _, app_id = handle.partition("://")[2].partition("/")
        try:
            cluster, _, job_id = self.parse_app(app_id)
            downloads.download(cluster, job_id, log_directory(self.job_dir, app_id))
        except (JobNotFoundError, ConfigError) as err:
            logger.debug("%s: no logs to copy: %s", app_id, err)

    def leftovers(self, handle: str) -> Iterator[Leftover]:
        """Yield the cluster, if it was made for the experiment."""
        from nemo_run.core.execution.leftovers import Leftover, app_id_of

        app_id = app_id_of(handle)
        if is_made_for_experiment(app_id):
            cluster = split_app_id(app_id)[0]
            yield Leftover(f"cluster {cluster} of SkyPilot's", lambda: take_down(cluster))


def cluster_of(experiment: str) -> str:
    """Return the name of the cluster that is made for an experiment."""
    return experiment if experiment[:1].isalpha() else f"nemo-run-{experiment}"


def take_down(cluster: str) -> None:
    """Take down a cluster on which nothing runs; one that is gone is fine.

    Raises:
        BackendError: something runs on it.
    """
    if not client.is_idle(cluster):
        raise BackendError(
            f"Cluster {cluster} is left up: jobs run on it, or are about to. Cancel them, or wait "
            f"for their end, and try again; sky queue {cluster} lists them.",
            backend=BACKEND,
            operation="take down the cluster",
        )
    client.down(cluster)


def app_id_for(executor: SkypilotExecutor, task: str, tag: str) -> str:
    """Return the id of a job that is about to be launched."""
    return "___".join((task_name(executor.experiment_id or "-"), executor.cluster(), task, tag))


def is_made_for_experiment(app_id: str) -> bool:
    """Tell whether the cluster of a job was made for its experiment, and is not the user's."""
    experiment, cluster, _, _ = app_id.rsplit("___", 3)
    return cluster == cluster_of(experiment)


def split_app_id(app_id: str) -> tuple[str, str, str]:
    """Return cluster, task, and the job's number or, for one of ours, its tag.

    Raises:
        ConfigError: this is no such id.
    """
    parts = app_id.rsplit("___", 3)
    if len(parts) != 4 or not all(parts):
        raise ConfigError(
            f"{app_id!r} is not the id of a SkyPilot job, which is written "
            "<experiment>___<cluster>___<task>___<number or tag>."
        )
    return parts[1], parts[2], parts[3]


def job_name(task: str, last: str) -> str:
    """Return what SkyPilot calls a job: with a tag, so that it is found again by that alone."""
    return last if last.isdecimal() else f"{task}-{last}"


def find_job(cluster: str, name: str) -> client.SkyJob:
    """Return a job of a cluster by its name, or by its number for one of an earlier release.

    Raises:
        JobNotFoundError: the cluster does not know it, or is not known.
    """
    for job in client.jobs(cluster):
        if name in (job.name, str(job.id)):
            return job
    raise JobNotFoundError(
        f"Cluster {cluster} has no job {name}.", backend=BACKEND, operation="queue"
    )
