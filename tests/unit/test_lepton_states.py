"""What Lepton's client says of a job, in words of ours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nemo_run._backends.lepton.types import Job, parse_job, seconds
from nemo_run.core.execution.lepton import shown_state
from nemo_run.run.torchx_backend.schedulers import lepton


def told(**status: Any) -> Any:
    """Return a job as the vendor's client does."""
    metadata = SimpleNamespace(id_="job-1", created_at=1_700_000_000_000, labels={"a": "b"})
    spec = SimpleNamespace(completions=4)
    return SimpleNamespace(metadata=metadata, spec=spec, status=SimpleNamespace(**status))


def test_a_job_is_read() -> None:
    whole = told(
        state=SimpleNamespace(name="Running"),
        ready=1,
        active=2,
        failed=3,
        succeeded=4,
        job_history=["x", "y"],
        completion_time=1_700_000_100,
    )
    assert parse_job(whole) == Job(
        id="job-1",
        state="Running",
        ready=1,
        active=2,
        failed=3,
        succeeded=4,
        size=4,
        restarts=2,
        created_at=1_700_000_000.0,
        ended_at=1_700_000_100.0,
        labels={"a": "b"},
    )


@pytest.mark.parametrize("status", [{}, {"state": None, "ready": None, "job_history": None}])
def test_what_the_workspace_does_not_say_is_nothing(status: dict[str, Any]) -> None:
    job = told(**status)
    job.spec.completions, job.metadata.labels, job.metadata.created_at = None, None, None
    assert parse_job(job) == Job(id="job-1", state="Unknown", labels={})


@pytest.mark.parametrize(
    ("moment", "read"),
    [(None, None), (0, None), (5, 5.0), (10**11, 1e11), (10**11 + 1, 100000000.001)],
)
def test_times_come_in_seconds_and_in_milliseconds(moment: int | None, read: float | None) -> None:
    assert seconds(moment) == read


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({"ready": 1, "active": 2}, "PENDING"),
        ({"ready": 2, "active": 2}, "RUNNING"),
        ({"ready": 0, "active": 0}, "RUNNING"),
    ],
)
def test_a_job_that_is_not_ready_yet_is_still_starting(counts: dict[str, int], state: str) -> None:
    job = Job(id="a", state="Running", labels={}, **counts)
    assert lepton._outcome(job)[0].name == state
    assert shown_state(Job(id="a", state="Failed", ready=0, active=1, labels={})) == "Failed"


@pytest.mark.parametrize(
    ("counts", "state", "message"),
    [
        ({"succeeded": 2}, "SUCCEEDED", ""),
        ({"succeeded": 1, "failed": 1}, "FAILED", "archived"),
        ({"succeeded": 1}, "CANCELLED", "archived before it had ended"),
    ],
)
def test_how_an_archived_job_ended_is_told_by_its_replicas(
    counts: dict[str, int], state: str, message: str
) -> None:
    found, said = lepton._outcome(Job(id="a", state="Archived", size=2, labels={}, **counts))
    assert (found.name, said) == (state, message)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("Queueing", "PENDING"),
        ("Awaiting", "PENDING"),
        ("Starting", "PENDING"),
        ("Restarting", "PENDING"),
        ("PendingRetry", "PENDING"),
        ("Running", "RUNNING"),
        ("Completed", "SUCCEEDED"),
        ("Failed", "FAILED"),
        ("Stopping", "CANCELLED"),
        ("Stopped", "CANCELLED"),
        ("Deleting", "RUNNING"),
        ("Terminating", "RUNNING"),
        ("Deleted", "CANCELLED"),
        ("Unknown", "UNKNOWN"),
        ("a word of tomorrow", "UNKNOWN"),
    ],
)
def test_what_lepton_says_means_something(word: str, state: str) -> None:
    assert lepton._outcome(Job(id="a", state=word, labels={}))[0].name == state


def test_an_unclear_state_is_logged_once_for_each_job(caplog: pytest.LogCaptureFixture) -> None:
    for job_id in ("unclear-1", "unclear-1", "unclear-2"):
        lepton._outcome(Job(id=job_id, state="Unknown", labels={}))
    assert [record.args for record in caplog.records] == [("unclear-1",), ("unclear-2",)]
    lepton._outcome(Job(id="unclear-3", state="Running", labels={}))
    assert len(caplog.records) == 2
