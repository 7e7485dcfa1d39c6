"""Which engine is used, where several could be."""

from __future__ import annotations

import hashlib
import json
import shutil
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.contract.backends import DockerCluster
from tests.integration.dgxcloud.test_connections import certificate  # noqa: F401  # a fixture
from tests.integration.docker.engine import DockerEngine

from nemo_run._backends.docker.connection import _connected, connect
from nemo_run.exceptions import ConfigError

pytestmark = pytest.mark.slow


@pytest.fixture
def contexts(
    cluster: DockerCluster, engine: DockerEngine, tmp_path: Path
) -> Iterator[pytest.MonkeyPatch]:
    """An environment whose ``docker`` knows the context ``ours``, and which names no engine."""
    meta = tmp_path / "contexts" / "meta" / hashlib.sha256(b"ours").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    host = {"Host": f"unix://{engine.socket}"}
    meta.write_text(json.dumps({"Name": "ours", "Metadata": {}, "Endpoints": {"docker": host}}))
    (tmp_path / "config.json").write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(tmp_path))
        patch.delenv("DOCKER_HOST")
        patch.delenv("DOCKER_CONTEXT", raising=False)
        yield patch


def test_the_current_context_is_used(
    contexts: pytest.MonkeyPatch, engine: DockerEngine, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"currentContext": "ours"}')
    assert connect().host == f"unix://{engine.socket}"


def test_the_variable_chooses_another(contexts: pytest.MonkeyPatch, engine: DockerEngine) -> None:
    contexts.setenv("DOCKER_CONTEXT", "ours")
    assert connect().host == f"unix://{engine.socket}"


class Guarded(BaseHTTPRequestHandler):
    """Answers as an engine does to whoever asks which one it is."""

    def do_GET(self) -> None:
        answer = {"ApiVersion": "1.44", "ID": "guarded", "DockerRootDir": "/var/lib/docker"}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def guarded(certificate: Path) -> Iterator[str]:  # noqa: F811
    """Where an engine is that only talks to who has the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_certificates_of_a_context_are_used(
    contexts: pytest.MonkeyPatch,
    tmp_path: Path,
    guarded: str,
    certificate: Path,  # noqa: F811
) -> None:
    number = hashlib.sha256(b"ours").hexdigest()
    meta = tmp_path / "contexts" / "meta" / number / "meta.json"
    host = {"Host": guarded, "SkipTLSVerify": False}
    meta.write_text(json.dumps({"Name": "ours", "Metadata": {}, "Endpoints": {"docker": host}}))
    files = tmp_path / "contexts" / "tls" / number / "docker"
    files.mkdir(parents=True)
    for name in ("ca.pem", "cert.pem"):
        shutil.copy(certificate, files / name)
    shutil.copy(certificate.with_name("key.pem"), files / "key.pem")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # go over what a client is told
        contexts.delenv(name, raising=False)
    contexts.setenv("DOCKER_CONTEXT", "ours")
    engine = connect()
    assert engine.host == guarded
    contexts.delenv("DOCKER_CONTEXT")
    _connected.cache_clear()
    assert connect(engine.host).id == "guarded /var/lib/docker", "a job is found there later"


def test_a_context_that_is_not_there_is_said(contexts: pytest.MonkeyPatch) -> None:
    contexts.setenv("DOCKER_CONTEXT", "theirs")
    with pytest.raises(ConfigError, match=r"'theirs', which DOCKER_CONTEXT names.*DOCKER_HOST"):
        connect()
