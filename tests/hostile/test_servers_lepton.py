"""A workspace of Lepton's that answers what no workspace should."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.backends import LeptonCluster
from tests.emulators.faults import Fault
from tests.emulators.lepton import LeptonEmulator
from tests.emulators.oddities import ODD, bomb

from nemo_run._backends.lepton.client import Lepton
from nemo_run.exceptions import BackendUnavailableError, NemoRunError

pytestmark = pytest.mark.slow

CALLS: dict[str, Callable[[Lepton], Any]] = {
    "job": lambda lepton: lepton.job("x"),
    "events": lambda lepton: lepton.events("x"),
    "replicas": lambda lepton: lepton.replicas("x"),
    "log": lambda lepton: lepton.log_page("x", start_ns=1, end_ns=2),
    "group": lambda lepton: lepton.node_group("x"),
    "nodes": lambda lepton: lepton.nodes("x"),
    "secrets": lambda lepton: lepton.secrets(),
    "stop": lambda lepton: lepton.stop_job("x"),
    "delete": lambda lepton: lepton.delete_job("x"),
}


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[LeptonEmulator]:
    cluster = LeptonCluster(tmp_path)
    assert cluster.emulator is not None
    yield cluster.emulator
    cluster.close()


def test_every_call_says_what_is_wrong_in_our_words(emulator: LeptonEmulator) -> None:
    lepton = Lepton()
    for name, call in CALLS.items():
        for odd in sorted(ODD):
            with emulator.faults.on(Fault(**ODD[odd])):
                try:
                    call(lepton)
                except NemoRunError:
                    continue
                except Exception as err:
                    raise AssertionError(f"{name}, {odd}: {err!r}") from err


def test_what_was_created_is_what_was_asked_for(
    emulator: LeptonEmulator,
) -> None:
    lepton = Lepton()
    other = b'{"metadata": {"id": "another", "name": "another"}, "spec": {}, "status": null}'
    with (
        emulator.faults.on(Fault(method="POST", answer=other)),
        patience.quick_retries(),
        pytest.raises(BackendUnavailableError, match="expected job 'mine'"),
    ):
        lepton.create_job("mine", {"metadata": {"id": "mine", "name": "mine"}, "spec": {}})


def test_a_bomb_takes_no_memory_and_no_call_goes_elsewhere(emulator: LeptonEmulator) -> None:
    lepton = Lepton()
    for fault in (
        Fault(answer=bomb(64), headers={"Content-Encoding": "gzip"}),
        Fault(status=307, headers={"Location": "http://127.0.0.1:9/x"}),
    ):
        with emulator.faults.on(fault), pytest.raises(BackendUnavailableError):
            lepton.job("x")
