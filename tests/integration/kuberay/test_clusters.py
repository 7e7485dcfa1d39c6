"""Ray clusters on an emulated Kubernetes with KubeRay, whose image has a stand-in for Ray."""

from __future__ import annotations

import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import yaml
from tests import patience
from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.service import free_port
from tests.integration.kuberay.conftest import MakeExecutor
from tests.integration.kuberay.waiting import wait_until

from nemo_run._jobs.store import JobStore
from nemo_run.core.execution.kuberay import KubeRayWorkerGroup
from nemo_run.exceptions import BackendError, SubmitError
from nemo_run.run.ray.cluster import RayCluster
from nemo_run.run.ray.kuberay import KubeRayCluster

NAME = "ann-lee-dev-raycluster"


@pytest.fixture
def cluster(executor: MakeExecutor) -> Iterator[RayCluster]:
    group = KubeRayWorkerGroup("small", 1)
    yield RayCluster(name="dev", executor=executor(worker_groups=[group]))


def dashboard_says(port: int, token: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/jobs/")
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=patience.seconds(20)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as err:
        return err.code


def test_a_cluster_starts_is_found_by_its_name_and_stops(
    emulator: KubernetesEmulator, cluster: RayCluster
) -> None:
    cluster.start(timeout=int(patience.seconds(60)))
    backend = KubeRayCluster(name="dev", executor=cluster.executor)  # type: ignore[arg-type]  # it is one
    status = backend.status(display=True)
    assert status is not None
    assert status["head"]["serviceIP"]
    assert set(emulator.ray.clusters) == {("default", NAME)}
    assert [record.state for record in JobStore().list("kuberay")] == ["SUBMITTED"]
    assert backend.create() is None
    assert backend.patch({"spec": {"suspend": True}})
    wait_until(lambda: (backend.status() or {}).get("state") == "suspended", "suspended cluster")
    assert not backend.wait_until_running(timeout=0)
    assert backend.patch({"spec": {"suspend": False}})
    assert backend.wait_until_running(timeout=int(patience.seconds(60)), delay_between_attempts=1)
    cluster.stop()
    assert not emulator.pods
    assert not emulator.ray.clusters
    assert backend.status() is None
    assert backend.delete() is None
    assert not backend.patch({"spec": {"suspend": True}})
    assert [record.state for record in JobStore().list("kuberay")] == ["CANCELLED"]


def test_waiting_takes_as_long_as_it_was_told(
    emulator: KubernetesEmulator, cluster: RayCluster
) -> None:
    emulator.may_start.clear()
    cluster.start(wait_until_ready=False)
    began = time.monotonic()
    assert not cluster.backend.wait_until_running(timeout=1, delay_between_attempts=10)
    assert time.monotonic() - began > 0.9
    with pytest.raises(BackendError, match="not ready"):
        cluster.start(timeout=0)
    # A head that comes later than the first look is waited for.
    threading.Timer(0.5, emulator.may_start.set).start()
    cluster.start(timeout=int(patience.seconds(60)))


def test_a_deleted_cluster_is_not_waited_for(cluster: RayCluster) -> None:
    cluster.start(wait_until_ready=False)
    assert cluster.backend.delete(wait=True, poll_interval=1) is True
    assert not cluster.backend.wait_until_running(timeout=600)


def test_deleting_says_whether_the_pods_are_gone(
    emulator: KubernetesEmulator, cluster: RayCluster
) -> None:
    cluster.start(wait_until_ready=False)
    wait_until(lambda: bool(emulator.pods), "pods")
    emulator.ray.clusters["default", NAME]._end = lambda: time.sleep(1)  # type: ignore[method-assign]  # an operator that takes its time
    assert cluster.backend.delete() is True
    assert cluster.backend.delete(wait=True, timeout=0) is False


def test_a_port_leads_to_the_dashboard_which_wants_its_token(
    emulator: KubernetesEmulator, cluster: RayCluster
) -> None:
    with pytest.raises(RuntimeError, match="Start it first"):
        cluster.port_forward(port=free_port())
    cluster.start(timeout=int(patience.seconds(60)))
    port = free_port()
    cluster.port_forward(port=port)
    token = cluster.backend.token()
    assert dashboard_says(port, token) == 200
    assert dashboard_says(port, "wrong") == 403
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(BackendError, match="Is the port free"):
        cluster.port_forward(port=taken.getsockname()[1])
    # A head that was started again is reached by the same port.
    head = emulator.ray.clusters["default", NAME].head
    assert head is not None
    head.delete()
    wait_until(lambda: head.gone, "end of the head")
    assert cluster.backend.wait_until_running(timeout=int(patience.seconds(60)))
    assert dashboard_says(port, token) == 200
    cluster.port_forward(port=port)
    assert dashboard_says(port, token) == 200
    cluster.stop()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port)).close()


def test_an_operator_that_knows_no_tokens_is_said(
    emulator: KubernetesEmulator, executor: MakeExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.ray.drops_auth = True
    caplog.set_level(logging.WARNING)
    KubeRayCluster(name="dev", executor=executor()).create()
    assert "does not know tokens" in caplog.text
    old = executor(ray_version="2.43.0", service_type="LoadBalancer")
    KubeRayCluster(name="open", executor=old).create()
    assert "opens the dashboard" in caplog.text


def test_older_operators_are_spoken_to_in_their_version(
    emulator: KubernetesEmulator, executor: MakeExecutor
) -> None:
    emulator.ray.version = "v1alpha1"
    cluster = KubeRayCluster(name="dev", executor=executor())
    assert cluster.create() is not None
    (made,) = emulator.ray.clusters.values()
    assert made.body["apiVersion"] == "ray.io/v1alpha1"
    assert cluster.delete(wait=True) is True


def test_a_dry_run_shows_the_cluster_and_asks_for_nothing(
    emulator: KubernetesEmulator, cluster: RayCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.start(dryrun=True, pre_ray_start_commands=["echo first"])
    body = yaml.safe_load(capfd.readouterr().out)
    assert body["metadata"]["name"] == NAME
    head = body["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert "echo first" in head["command"][0]
    assert not emulator.server.seen


def test_what_the_cluster_refuses_is_said(
    emulator: KubernetesEmulator, executor: MakeExecutor
) -> None:
    emulator.denied.add("create rayclusters")
    with pytest.raises(SubmitError, match="cannot create rayclusters"):
        RayCluster(name="dev", executor=executor()).start()
