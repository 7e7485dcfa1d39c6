"""What is between us and a real cluster: encryption, and servers that do not answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import KubeflowCluster
from tests.emulators.faults import Fault
from tests.emulators.kubernetes import KubernetesEmulator
from tests.integration.dgxcloud.test_connections import (
    certificate,  # noqa: F401  # a fixture
    relay,
)
from torchx.specs import AppState

from nemo_run._backends.kubeflow.site import Site
from nemo_run.exceptions import BackendUnavailableError

pytestmark = pytest.mark.slow


def lead_to(emulator: KubernetesEmulator, server: str, **settings: Any) -> None:
    """Have the kubeconfig name a server, and how to get to it."""
    emulator.write_kubeconfig(server=server)
    config = json.loads(emulator.kubeconfig.read_text())
    config["clusters"][0]["cluster"] |= settings
    emulator.kubeconfig.write_text(json.dumps(config))


@pytest.fixture
def port(emulator: KubernetesEmulator, certificate: Path) -> Iterator[int]:  # noqa: F811
    """Where the cluster is reached with TLS, as 127.0.0.1 and as cluster.invalid."""
    files = str(certificate), str(certificate.with_name("key.pem"))
    with relay(str(emulator.server.port), *files) as port:
        yield port


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"certificate-authority": ""}, id="authority"),
        pytest.param(
            {"certificate-authority": "", "tls-server-name": "cluster.invalid"}, id="name"
        ),
        pytest.param(
            {"insecure-skip-tls-verify": True},
            marks=pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),
            id="anybody",
        ),
    ],
)
def test_files_and_logs_travel_with_whom_the_kubeconfig_trusts(
    cluster: KubeflowCluster,
    emulator: KubernetesEmulator,
    port: int,
    certificate: Path,  # noqa: F811
    settings: dict[str, Any],
) -> None:
    if "certificate-authority" in settings:
        settings = {**settings, "certificate-authority": str(certificate)}
    lead_to(emulator, f"https://127.0.0.1:{port}", **settings)
    app_id = cluster.schedule("seq 10000")
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    emulator.expire(emulator.created[0].name)
    assert cluster.lines(app_id) == [f"{number}\n" for number in range(1, 10_001)]


def test_a_command_is_not_sent_to_a_server_that_cannot_prove_who_it_is(
    cluster: KubeflowCluster,
    emulator: KubernetesEmulator,
    port: int,
) -> None:
    lead_to(emulator, f"https://127.0.0.1:{port}")
    pods = Site.current("default").cluster()
    with pytest.raises(BackendUnavailableError, match=r"(?i)certificate"):
        list(pods.run("pod", "mover", ["true"]))
    assert emulator.server.seen == []


def test_a_server_that_does_not_answer_a_command_is_asked_again(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    emulator.faults.add(Fault(path="/exec$", times=1, delay_s=150))
    app_id = cluster.schedule("echo hi")
    assert len(emulator.server.requests("GET", ".*/exec")) == 2
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
