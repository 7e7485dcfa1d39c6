"""What descends from a task belongs to it, whatever session and environment it made for itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.test_replica import Replica, eventually, lives, make, replica

from nemo_run._backends.local import replica as local_replica

__all__ = ["make", "replica"]

# As setproctitle, nginx and PostgreSQL do: the memory of the environment is used for a title.
DAEMON = """
import ctypes, os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
assert b"NEMO_RUN" not in open("/proc/self/environ", "rb").read()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(120)
"""

ESCAPES = {
    "an empty environment": "env -i setsid sh -c 'echo $$; exec sleep 120' &",
    "an overwritten environment": f"'{sys.executable}' -c \"$DAEMON\"",
    "a parent that ended": "(env -i setsid sh -c 'echo $$; exec sleep 120' &)",
}


def escaped(replica: Replica, how: str, then: str, **changes: object) -> int:
    """Start a task that leaves a process behind; return that one's id."""
    replica.sh(f"{ESCAPES[how]}\n{then}", env={"DAEMON": DAEMON}, grace_s=0.3, **changes)
    return int(eventually(lambda: replica.log().endswith("\n") and replica.log().split()[0]))


@pytest.fixture(params=ESCAPES)
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_cancelling_ends_what_left_session_and_environment(replica: Replica, how: str) -> None:
    pid = escaped(replica, how, "sleep 60; true")
    assert lives(pid)
    local_replica.stop(replica.directory)
    assert not lives(pid)
    assert replica.status.state == "cancelled"


def test_a_failed_task_leaves_nothing_of_that_kind(replica: Replica, how: str) -> None:
    pid = escaped(replica, how, "sleep 0.3; exit 3")
    assert replica.end().exit_code == 3
    assert not lives(pid)


def test_so_does_one_that_reached_its_time_limit(replica: Replica, how: str) -> None:
    pid = escaped(replica, how, "sleep 60", time_limit_s=1)
    assert replica.end().state == "failed"
    assert not lives(pid)


@pytest.mark.parametrize("dead", ["supervisor", "keeper"])
def test_it_is_found_when_one_that_looked_after_it_was_killed(
    replica: Replica, how: str, dead: str
) -> None:
    pid = escaped(replica, how, "sleep 60; true")
    replica.kill_supervisor() if dead == "supervisor" else replica.kill_keeper()
    local_replica.stop(replica.directory)
    assert not lives(pid)
    assert replica.status.state == "cancelled"


def test_after_a_supervisor_was_killed_a_failed_task_leaves_nothing(
    replica: Replica, how: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    pid = escaped(replica, how, f"while [ ! -e '{gate}' ]; do sleep 0.01; done; exit 4")
    replica.kill_supervisor()
    assert local_replica.adopt(replica.directory)
    gate.touch()
    assert replica.end().exit_code == 4
    assert not lives(pid)


def test_what_a_successful_task_leaves_goes_on(replica: Replica, how: str) -> None:
    pid = escaped(replica, how, "sleep 0.3")
    try:
        assert replica.end().state == "succeeded"
        assert lives(pid)
    finally:
        subprocess.run(["kill", "-s", str(int(signal.SIGKILL)), str(pid)], check=True)


def test_processes_that_a_task_leaves_and_that_end_are_no_zombies(replica: Replica) -> None:
    replica.sh("for i in 1 2 3 4 5; do (sleep 0.01 &); done; echo up; exec sleep 60").running()
    eventually(lambda: "up" in replica.log())
    last = replica.files.last_attempt()
    assert last is not None
    children = Path(f"/proc/{last.keeper.pid}/task/{last.keeper.pid}/children")
    eventually(lambda: children.read_text().split() == [str(last.task.pid)])
