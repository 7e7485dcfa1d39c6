"""Which lines come, of which pods, and how they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.backends import DGXCloudCluster
from tests.emulators.runai import RunaiEmulator
from torchx.schedulers.api import Stream
from torchx.specs import AppState

from nemo_run._backends.kubernetes.pod_lines import whole_lines
from nemo_run._backends.runai.client import Pod
from nemo_run._backends.runai.logs import of_replica
from nemo_run.exceptions import UnsupportedError
from nemo_run.run.torchx_backend.schedulers.api import LogQuery

pytestmark = pytest.mark.slow


def pod(name: str) -> Pod:
    return Pod(name=name, container="main", created_at=0, started_at=None, completed_at=None)


class TestPods:
    def test_the_pods_of_a_training_are_its_attempts(self) -> None:
        pods = [pod("train-x1-abcde"), pod("train-x1-fghij")]
        assert of_replica(pods, 0) == pods
        assert of_replica(pods, 1) == []

    def test_workers_are_replicas_by_their_number(self) -> None:
        pods = [pod(f"train-worker-{rank}") for rank in (10, 2, 0, 1)]
        assert [p.name for rank in (0, 2, 3, 4) for p in of_replica(pods, rank)] == [
            "train-worker-0",
            "train-worker-2",
            "train-worker-10",
        ]

    def test_a_master_comes_first(self) -> None:
        pods = [pod("train-worker-0"), pod("train-master-0"), pod("train-worker-1")]
        assert [of_replica(pods, k)[0].name for k in range(3)] == [
            "train-master-0",
            "train-worker-0",
            "train-worker-1",
        ]


@pytest.mark.parametrize(
    ("blocks", "lines"),
    [
        ([], []),
        ([b"a\nb\n"], [b"a\n", b"b\n"]),
        ([b"a", b"b\nc", b"", b"d\n"], [b"ab\n", b"cd\n"]),
        ([b"a\r\x0cb\n", b"end"], [b"a\r\x0cb\n", b"end"]),
    ],
)
def test_blocks_are_cut_into_whole_lines(blocks: list[bytes], lines: list[bytes]) -> None:
    assert list(whole_lines(iter(blocks))) == lines


def test_each_node_has_a_log_of_its_own_however_late(cluster: DGXCloudCluster) -> None:
    cluster.have_late_logs(1.0)
    app_id = cluster.schedule("echo node $GROUP_RANK", nodes=2)
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id, k=0) == ["node 0\n"]
    assert cluster.lines(app_id, k=1) == ["node 1\n"]


def test_each_node_has_a_log_of_its_own_after_a_cancel(cluster: DGXCloudCluster) -> None:
    app_id = cluster.schedule("echo node $GROUP_RANK; sleep 60", nodes=2)
    cluster.wait_for_line(app_id, "node 0\n")
    while cluster.lines(app_id, k=1) != ["node 1\n"]:
        pass
    cluster.cancel(app_id)
    assert cluster.lines(app_id, k=0) == ["node 0\n"]
    assert cluster.lines(app_id, k=1) == ["node 1\n"]


def test_the_end_of_a_long_log_is_read_without_the_rest(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    app_id = cluster.schedule("seq 5000")
    cluster.wait(app_id)
    assert list(cluster.scheduler.tail(app_id, LogQuery(role="job"), 2)) == ["4999\n", "5000\n"]
    (asked,) = emulator.server.requests("GET", ".*/log")
    assert asked.query["tailLines"] == "1000"


def test_one_stream_alone_cannot_be_had(cluster: DGXCloudCluster) -> None:
    app_id = cluster.schedule("true")
    with pytest.raises(UnsupportedError, match="STDERR"):
        cluster.lines(app_id, streams=Stream.STDERR)


def test_times_are_not_known_of_what_is_only_on_the_volume(cluster: DGXCloudCluster) -> None:
    from datetime import datetime

    app_id = cluster.schedule("echo up; sleep 60")
    cluster.wait_for_line(app_id, "up\n")
    cluster.cancel(app_id)
    with pytest.raises(UnsupportedError, match="since"):
        cluster.lines(app_id, since=datetime(2020, 1, 1))


def test_logs_can_be_read_on_the_volume_too(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    app_id = cluster.schedule("echo hi")
    cluster.wait(app_id)
    (log,) = emulator.volume("work").rglob("log_job-*.out")
    (all_ranks,) = emulator.volume("work").rglob("log-allranks_0.out")
    assert Path(log).read_text() == all_ranks.read_text() == "hi\n"
