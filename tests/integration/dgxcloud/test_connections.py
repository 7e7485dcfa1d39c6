"""What is between us and a real cluster: encryption, and a proxy."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import DGXCloudCluster
from tests.emulators.runai import RunaiEmulator
from torchx.specs import AppState

from nemo_run._backends.kubernetes.rest import Kube
from nemo_run._transport.http import Http, by_token
from nemo_run.core.execution.dgxcloud import DGXCloudExecutor
from nemo_run.exceptions import BackendUnavailableError

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def relay(*args: str) -> Iterator[int]:
    """Run a relay, and return its port."""
    program = Path(__file__).with_name("relay.py")
    with subprocess.Popen(
        [sys.executable, str(program), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "certificate.pem"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=loopback"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:cluster.invalid"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(path)]
    subprocess.run(["openssl", "req", *options, *names, *files], check=True, capture_output=True)
    return path


@pytest.fixture
def urls(emulator: RunaiEmulator, certificate: Path) -> Iterator[dict[str, Any]]:
    files = str(certificate), str(certificate.with_name("key.pem"))
    with relay(str(emulator.server.port), *files) as port:
        url = f"https://127.0.0.1:{port}"
        yield {"base_url": f"{url}/api/v1", "kube_apiserver_url": url}


def test_a_job_is_submitted_followed_and_read(
    cluster: DGXCloudCluster,
    urls: dict[str, Any],
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    executor = cluster.assigned("job", **urls)
    assert isinstance(executor, DGXCloudExecutor)
    code = Path(executor.job_dir) / "code"
    code.mkdir()
    (code / "big").write_bytes(os.urandom(20_000_000))
    app = cluster.app("wc -c < big; seq 100000; exec sleep 60", executor=executor)
    app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
    wanted = ["20000000\n", *(f"{number}\n" for number in range(1, 100_001))]
    lines = iter(cluster.scheduler.log_iter(app_id, "job", should_tail=True))
    assert [next(lines) for _ in wanted] == wanted
    cluster.cancel(app_id)
    assert cluster.wait(app_id).state is AppState.CANCELLED
    assert cluster.lines(app_id) == wanted  # from the volume, by a command


def test_a_server_that_cannot_prove_who_it_is_is_told_nothing(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, urls: dict[str, Any]
) -> None:
    executor = cluster.executor(**urls)
    assert isinstance(executor, DGXCloudExecutor)
    with pytest.raises(BackendUnavailableError, match=r"(?i)certificate"):
        executor._client().token()
    assert emulator.server.seen == []


def test_commands_are_not_sent_to_a_server_that_cannot_prove_who_it_is(
    emulator: RunaiEmulator, urls: dict[str, Any]
) -> None:
    ways = by_token(urls["kube_apiserver_url"], lambda refused: "secret")
    kube = Kube(Http(ways, backend="dgx_cloud"), "ns")
    with pytest.raises(BackendUnavailableError, match=r"(?i)certificate"):
        list(kube.run("pod", "main", ["true"]))
    assert emulator.server.seen == []


def test_a_server_of_another_name_is_told_nothing(
    emulator: RunaiEmulator,
    urls: dict[str, Any],
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    url = urls["kube_apiserver_url"].replace("127.0.0.1", "localhost")
    kube = Kube(Http(by_token(url, lambda refused: "secret"), backend="x", patience_s=0), "ns")
    with pytest.raises(BackendUnavailableError, match=r"(?i)hostname.*match"):
        kube.pod("pod")
    with pytest.raises(BackendUnavailableError, match=r"(?i)hostname mismatch"):
        list(kube.run("pod", "main", ["true"]))
    assert emulator.server.seen == []


def test_all_goes_by_the_proxy_that_the_environment_names(
    cluster: DGXCloudCluster,
    urls: dict[str, Any],
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    told = tmp_path / "heads"
    # A name that only the proxy knows.
    urls = {key: url.replace("127.0.0.1", "cluster.invalid") for key, url in urls.items()}
    with relay(str(told)) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:pass%20word@127.0.0.1:{port}")
        app_id = cluster.schedule("echo hi; exec sleep 60", **urls)
        cluster.wait_for_line(app_id, "hi\n")
        cluster.cancel(app_id)
        assert cluster.lines(app_id) == ["hi\n"]
    lines = told.read_text().splitlines()
    host = urls["kube_apiserver_url"].removeprefix("https://")
    assert {line.split()[1] for line in lines if line.startswith("CONNECT")} == {host}
    words = {line for line in lines if line.startswith("Proxy-Authorization")}
    assert words == {f"Proxy-Authorization: Basic {b64encode(b'me:pass word').decode()}"}


def test_a_proxy_that_does_not_connect_is_named_without_its_password(
    emulator: RunaiEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = emulator.kube_url.replace("http://", "http://me:hunter2@")
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    kube = Kube(Http(by_token("https://host", lambda refused: "secret"), backend="x"), "ns")
    with pytest.raises(BackendUnavailableError, match=r"proxy 127\.0\.0\.1 .*501") as caught:
        list(kube.run("pod", "main", ["true"]))
    assert "hunter2" not in str(caught.value)
