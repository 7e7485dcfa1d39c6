"""A registry of images on an engine's loopback, with what an engine asks: half of OCI's API."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.integration.docker import images

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """Has one image, which can be replaced."""

    def __init__(self, listener: socket.socket) -> None:
        self._blobs: dict[str, bytes] = {}
        self._manifest = b""
        self.locked = False
        """Whether it wants to know who asks."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry._answer(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        address = listener.getsockname()
        self._server = ThreadingHTTPServer(address, Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.image = f"127.0.0.1:{address[1]}/team/image:1"

    def publish(self, **variables: str) -> None:
        """Have an image like `images.PLAIN` with these variables."""
        layer = images.plain()
        packed = gzip.compress(layer, 1, mtime=0)
        env = ["PATH=/bin:/usr/bin", *(f"{name}={value}" for name, value in variables.items())]
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Env": env},
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            }
        ).encode()
        self._blobs = {_digest(blob): blob for blob in (packed, config)}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _described(CONFIG, config),
            "layers": [_described(LAYER, packed)],
        }
        self._manifest = json.dumps(manifest).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        *_, kind, name = ["", *request.path.split("/")]
        if self.locked:
            headers = {"WWW-Authenticate": 'Basic realm="team"'}
            self._send(request, 401, b'{"errors": [{"code": "UNAUTHORIZED"}]}', headers)
        elif request.path == "/v2/":
            self._send(request, 200, b"{}", {"Docker-Distribution-Api-Version": "registry/2.0"})
        elif kind == "manifests":
            found = {"Content-Type": MANIFEST, "Docker-Content-Digest": _digest(self._manifest)}
            self._send(request, 200, self._manifest, found)
        elif kind == "blobs" and name in self._blobs:
            self._send(request, 200, self._blobs[name], {"Docker-Content-Digest": name})
        else:
            self._send(request, 404, b'{"errors": [{"code": "NOT_FOUND"}]}', {})

    def _send(
        self, request: BaseHTTPRequestHandler, code: int, body: bytes, headers: dict[str, str]
    ) -> None:
        request.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _described(kind: str, data: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(data), "digest": _digest(data)}
