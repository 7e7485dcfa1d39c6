"""How a program ends that launched a job which failed: by its own decision, or with code 1."""

from __future__ import annotations

import pytest
from tests.clients.users import ClusterUser, User, said


def test_a_program_that_looks_decides_itself(user: User) -> None:
    done = user.runs("outcome.py", "looks")
    assert "run.run returned\nthe job is FAILED\n" in done.stdout


def test_a_program_that_looks_chooses_its_code(user: User) -> None:
    done = user.tries("outcome.py", "looks_and_leaves")
    assert done.returncode == 7, said(done)


@pytest.mark.parametrize("way", ["ignores", "in_a_thread", "exits_with_0", "exits_with_none"])
def test_a_program_that_never_looks_ends_with_1_and_says_why(user: User, way: str) -> None:
    done = user.tries("outcome.py", way)
    assert done.returncode == 1, said(done)
    assert "run.run returned" in done.stdout
    assert "Traceback" not in done.stderr
    lines = [
        line for line in done.stderr.splitlines() if "train" in line and "fail" in line.lower()
    ]
    assert lines, said(done)


def test_a_code_of_its_own_is_kept(user: User) -> None:
    assert user.tries("outcome.py", "exits_with_3").returncode == 3


def test_a_mistake_of_its_own_is_shown(user: User) -> None:
    done = user.tries("outcome.py", "raises")
    assert done.returncode == 1
    assert "run.run returned" in done.stdout
    assert "ValueError: the user's own mistake" in done.stderr


def test_a_program_whose_jobs_work_ends_well(user: User) -> None:
    done = user.runs("outcome.py", "works")
    assert "fail" not in done.stderr.lower()


def test_an_exception_comes_only_when_asked_for(user: User) -> None:
    done = user.tries("outcome.py", "checks")
    assert done.returncode == 1, said(done)
    assert "run.run returned" not in done.stdout
    assert "JobFailedError" in done.stderr


def test_a_program_that_catches_the_exception_has_looked(user: User) -> None:
    done = user.runs("outcome.py", "catches")
    assert "caught:" in done.stdout


def test_a_program_may_say_that_it_does_not_care(user: User) -> None:
    done = user.runs("outcome.py", "does_not_check")
    assert "run.run returned" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "fail" in line.lower()]
    assert not lines


def test_handlers_of_the_program_run_and_buffers_are_written(user: User) -> None:
    done = user.tries("outcome.py", "has_handlers")
    assert done.returncode == 1, said(done)
    assert (user.work / "before").read_text() == "ran"
    assert (user.work / "after").read_text() == "ran"
    assert (user.work / "file").read_text() == "buffered"
    assert "without a newline" in done.stdout
    assert "a handler speaks\n" in done.stdout


def test_each_failure_wants_a_look_of_its_own(user: User) -> None:
    assert user.tries("outcome.py", "several").returncode == 1
    user.runs("outcome.py", "one_then_the_other")


@pytest.mark.slow
def test_it_is_the_same_on_a_cluster(cluster_user: ClusterUser) -> None:
    done = cluster_user.runs("outcome.py", "looks")
    assert "run.run returned\nthe job is FAILED\n" in done.stdout

    done = cluster_user.tries("outcome.py", "ignores")
    assert done.returncode == 1, said(done)
    assert "run.run returned" in done.stdout
