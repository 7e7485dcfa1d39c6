"""A supervisor that was stopped, and does nothing, keeps no replica from being cancelled."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from tests import patience
from tests.unit.test_replica import Replica, lives, make, replica

from nemo_run._backends.local import replica as local_replica
from nemo_run._backends.local.supervisor import Process

__all__ = ["make", "replica"]


def supervisor_of(replica: Replica) -> Process:
    status = replica.files.status()
    assert status is not None
    return status.supervisor


def test_a_stopped_supervisor_goes_on_to_cancel(replica: Replica) -> None:
    pid = replica.sh("exec sleep 60").running().pid
    supervisor_of(replica).send(signal.SIGSTOP)
    began = time.monotonic()
    local_replica.stop(replica.directory, grace_s=4)
    assert time.monotonic() - began < patience.seconds(4)
    assert (replica.status.state, replica.status.exit_code) == ("cancelled", -15)
    assert not lives(pid or 0)


@pytest.mark.timeout(300)
def test_the_supervisor_that_replaces_a_stopped_one_is_left_to_its_work(replica: Replica) -> None:
    pid = replica.sh("exec sleep 60").running().pid
    first = supervisor_of(replica)
    seen = {first.pid}
    over = threading.Event()

    def keep_stopped() -> None:
        while not over.is_set():
            first.send(signal.SIGSTOP)
            seen.add(supervisor_of(replica).pid)
            time.sleep(0.001)

    stopper = threading.Thread(target=keep_stopped)
    stopper.start()
    try:
        first.send(signal.SIGSTOP)
        local_replica.stop(replica.directory, grace_s=0.1)
    finally:
        over.set()
        stopper.join()
    assert replica.status.state == "cancelled"
    assert not lives(pid or 0)
    assert len(seen) == 2
