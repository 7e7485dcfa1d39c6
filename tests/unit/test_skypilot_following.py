"""How the logs of a SkyPilot job are followed when its cluster is in trouble."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torchx.schedulers.api import Scheduler

from nemo_run._backends.skypilot.client import SkyJob
from nemo_run._backends.skypilot.jobs import (
    NotListedNowError,
    SkypilotSchedulerMixin,
    ref_of,
)
from nemo_run._backends.skypilot.launches import SkyRequest
from nemo_run._backends.skypilot.streams import LogLine
from nemo_run._jobs.records import JobRef
from nemo_run.core.execution.skypilot import SkypilotExecutor
from nemo_run.exceptions import JobNotFoundError
from nemo_run.run.torchx_backend.schedulers.api import LogQuery
from nemo_run.run.torchx_backend.schedulers.skypilot import STATES, SkypilotRequest


class ClusterInTrouble(
    SkypilotSchedulerMixin[SkypilotExecutor, SkypilotRequest], Scheduler[dict[str, str]]
):
    """Knows a job, then for a moment does not, and then has it at its end."""

    EXECUTOR = SkypilotExecutor
    STATES = STATES

    def __init__(self) -> None:
        super().__init__("skypilot", "nemo_run")
        self._answers: list[str | None] = ["RUNNING", None, "SUCCEEDED", "SUCCEEDED"]
        self._streams = [["one\n"], ["one\n", "two\n"]]

    def _job(self, app_id: str) -> SkyJob | None:
        word = self._answers.pop(0)
        return None if word is None else SkyJob(id=1, name="job", status=word)

    def _launch_request(self, ref: JobRef) -> SkyRequest | None:
        return None

    def _missing(self, app_id: str) -> JobNotFoundError:
        return NotListedNowError("its cluster is in trouble")

    def _stream(self, app_id: str, job: SkyJob, *, follow: bool) -> Iterator[LogLine]:
        return (LogLine(rank=0, text=text) for text in self._streams.pop(0))

    def _download(self, app_id: str, job: SkyJob, directory: Path) -> None:
        (directory / "tasks").mkdir(parents=True)
        (directory / "tasks" / "run.log").write_text("one\ntwo\n")


def test_followed_logs_go_on_after_trouble_of_the_cluster(tmp_path: Path) -> None:
    ref = ref_of("request", "e___c___job___nr-1", str(tmp_path))
    followed = ClusterInTrouble()._lines(ref, LogQuery(role="job", follow=True))
    assert list(followed) == ["one\n", "two\n"]
