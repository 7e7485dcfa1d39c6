"""Run as jobs that SkyPilot manages: it makes a cluster for each and takes it down again."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run._backends.skypilot import client, downloads, launches
from nemo_run._backends.skypilot.sdk import BACKEND
from nemo_run._backends.skypilot.task import SkypilotTask, log_directory
from nemo_run._jobs.shown_text import show
from nemo_run.core.execution.base import Capabilities
from nemo_run.exceptions import ConfigError, JobNotFoundError

if TYPE_CHECKING:
    import sky

logger = logging.getLogger(__name__)


def __getattr__(name: str) -> Any:
    if name == "_SKYPILOT_AVAILABLE":
        return find_spec("sky") is not None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(kw_only=True)
class SkypilotJobsExecutor(SkypilotTask):
    """Runs each task as a managed job, which SkyPilot moves to another machine if one is lost.

    ``cluster_name`` only names the job; ``autodown``, ``idle_minutes_to_autostop`` and
    ``retry_until_up`` are accepted for compatibility: SkyPilot always does all three for managed
    jobs.
    """

    SCHEDULER: ClassVar[str] = "skypilot_jobs"
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(detach=True, retries=True, log_times=False)

    @classmethod
    def parse_app(cls, app_id: str) -> tuple[str, str, int]:
        """Return cluster, task and job number; SkyPilot is asked where the id has a tag.

        Raises:
            ConfigError: this is no id of ours.
            JobNotFoundError: SkyPilot has no such job, or not yet.
        """
        cluster, task, last = split_app_id(app_id)
        return cluster, task, int(last) if last.isdecimal() else find_job(app_id).id

    @classmethod
    def status(cls, app_id: str) -> dict[str, Any] | None:
        """Return what SkyPilot's queue says of a job; None for one that is not there."""
        try:
            job = find_job(app_id)
        except JobNotFoundError:
            return None
        word = client.managed_job_status()(job.status)
        return {"job_id": job.id, "job_name": job.name, "status": word}

    @classmethod
    def cancel(cls, app_id: str) -> None:
        """End a job; one that is not there is left alone."""
        try:
            client.cancel_managed(find_job(app_id).id)
        except JobNotFoundError:
            return

    @classmethod
    def logs(cls, app_id: str, fallback_path: str | None) -> None:
        """Print the log of a job and follow it; from ``fallback_path`` where that has it."""
        kept = Path(fallback_path).expanduser() / "run.log" if fallback_path else None
        details = cls.status(app_id)
        ended = details is None or details["status"].is_terminal()
        if ended and kept is not None and kept.exists():
            show(kept.read_text(errors="replace"))
            return
        _, _, job_id = cls.parse_app(app_id)
        for line in client.tail_managed(job_id, follow=True):
            show(line.text)

    def launch(
        self, task: sky.task.Task, num_nodes: int | None = None
    ) -> tuple[int | None, sky.backends.ResourceHandle | None]:
        """Launch a task and wait until SkyPilot manages it; return the job's number."""
        if num_nodes is not None:
            task.num_nodes = num_nodes
        given: Any = launches.answer(self.submit(task), operation="launch")
        job_ids, handle = given
        # A list since 0.12.1; a pipeline of several tasks would have more than one.
        return (job_ids[0] if isinstance(job_ids, list) else job_ids), handle

    def submit(self, task: sky.task.Task) -> str:
        """Ask for a task and return the request's id, without waiting."""
        return launches.launch_managed(task, task.name)

    def resources_config(self) -> dict[str, Any]:
        config = super().resources_config()
        if self.retries:
            config["job_recovery"] = {"max_restarts_on_errors": self.retries}
        return config

    def cleanup(self, handle: str) -> None:
        """Copy the logs of an ended job into the job directory; one that is gone has none."""
        _, _, app_id = handle.partition("://")[2].partition("/")
        try:
            _, _, job_id = self.parse_app(app_id)
            downloads.download_managed(job_id, log_directory(self.job_dir, app_id))
        except (JobNotFoundError, ConfigError) as err:
            logger.debug("%s: no logs to copy: %s", app_id, err)

    def _tries(self) -> int:
        return 0  # SkyPilot starts a managed job again by itself


def split_app_id(app_id: str) -> tuple[str, str, str]:
    """Return cluster, task, and the job's number or, for one of ours, its tag.

    Raises:
        ConfigError: this is no such id.
    """
    parts = app_id.rsplit("___", 2)
    if len(parts) != 3 or not all(parts):
        raise ConfigError(
            f"{app_id!r} is not the id of a managed SkyPilot job, which is written "
            "<cluster or experiment>___<task>___<number or tag>."
        )
    return parts[0], parts[1], parts[2]


def find_job(app_id: str) -> client.SkyJob:
    """Return a managed job by its name, or by its number for one of an earlier release.

    Raises:
        JobNotFoundError: SkyPilot does not know it.
    """
    _, task, last = split_app_id(app_id)
    if last.isdecimal():
        found = client.managed_jobs([int(last)])
    else:
        found = [job for job in client.managed_jobs() if job.name == f"{task}-{last}"]
    if found:
        return found[0]
    raise JobNotFoundError(
        f"SkyPilot manages no job {task}-{last}.", backend=BACKEND, operation="queue"
    )
