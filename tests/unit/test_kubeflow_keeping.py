"""How long a job that is cancelled is kept waiting for copies of its logs."""

from __future__ import annotations

import time
from threading import Thread

import pytest

from nemo_run._backends.kubeflow.kept import Keeping
from nemo_run._backends.kubeflow.site import Site
from nemo_run._jobs.records import JobRef


class Endless(Thread):
    """A thread that is waited for in vain, which takes no time but that of the clock."""

    now = 0.0

    def join(self, timeout: float | None = None) -> None:
        assert timeout is not None
        Endless.now += timeout


def test_all_nodes_together_are_waited_for_as_long_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: Endless.now)
    ref = JobRef(native_id="job", where={"claim": "work"})
    keeping = Keeping(ref, Site(namespace="default").cluster())
    keeping._threads += [Endless() for _ in range(100)]
    with keeping:
        pass
    assert Endless.now == 30.0
