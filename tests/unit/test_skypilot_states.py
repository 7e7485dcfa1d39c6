"""What SkyPilot's words about jobs and clusters say to us."""

from __future__ import annotations

import pytest

from nemo_run._backends.skypilot.jobs import NotListedNowError
from nemo_run.exceptions import JobLostError, JobNotFoundError
from nemo_run.run.torchx_backend.schedulers import skypilot, skypilot_jobs


def test_the_states_of_a_job_of_a_cluster() -> None:
    assert {word: state.name for word, state in skypilot.STATES.items()} == {
        "INIT": "SUBMITTED",
        "PENDING": "PENDING",
        "SETTING_UP": "RUNNING",
        "RUNNING": "RUNNING",
        "SUCCEEDED": "SUCCEEDED",
        "FAILED": "FAILED",
        "FAILED_SETUP": "FAILED",
        "FAILED_DRIVER": "FAILED",
        "CANCELLED": "CANCELLED",
    }


def test_the_states_of_a_managed_job() -> None:
    assert {word: state.name for word, state in skypilot_jobs.STATES.items()} == {
        "PENDING": "PENDING",
        "SUBMITTED": "SUBMITTED",
        "DEPRECATED_SUBMITTED": "SUBMITTED",
        "STARTING": "SUBMITTED",
        "RUNNING": "RUNNING",
        "RECOVERING": "RUNNING",
        "WINDING_DOWN": "RUNNING",
        "CANCELLING": "RUNNING",
        "SUCCEEDED": "SUCCEEDED",
        "CANCELLED": "CANCELLED",
        "FAILED": "FAILED",
        "FAILED_SETUP": "FAILED",
        "FAILED_PRECHECKS": "FAILED",
        "FAILED_NO_RESOURCE": "FAILED",
        "FAILED_CONTROLLER": "FAILED",
    }


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (None, JobLostError, "is gone"),
        ("UP", JobLostError, "does not know of it"),
        ("PENDING", NotListedNowError, "waits to be made"),
        ("INIT", NotListedNowError, "sky status --refresh"),
        ("STOPPED", JobNotFoundError, "sky start"),
        ("AUTOSTOPPING", JobNotFoundError, "is being stopped"),
        ("NEW", JobNotFoundError, "is NEW"),
    ],
)
def test_a_job_that_its_cluster_does_not_list(
    status: str | None, kind: type[JobNotFoundError], said: str
) -> None:
    err = skypilot.missing("dev", status)
    assert type(err) is kind
    assert str(err).startswith("the job was launched, but its cluster dev ")
    assert said in str(err)


def test_every_word_about_a_cluster_says_something() -> None:
    assert skypilot.CLUSTERS.keys() == {None, "PENDING", "INIT", "UP", "STOPPED", "AUTOSTOPPING"}
