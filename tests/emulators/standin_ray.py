"""A small stand-in for the program ``ray``, where no Ray is to be started: see `install`.

``ray start --head`` answers the Jobs API of the dashboard as its reference describes it, and runs
what is submitted as a process of its own container. Nodes that join are connections to it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

TERMINAL = ("SUCCEEDED", "FAILED", "STOPPED")
VERSION = "2.60.0"


def install(directory: Path) -> str:
    """Make a directory with a program ``ray`` that is this one; return it for a ``PATH``."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "ray"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} "$@"\n')
    program.chmod(0o755)
    return str(directory)


class Job:
    """A command that was submitted, and the process that runs it."""

    def __init__(self, asked: dict[str, Any], packages: dict[str, bytes], address: str) -> None:
        self.id = asked.get("submission_id") or f"raysubmit_{os.urandom(8).hex()}"
        self.asked = asked
        self.status, self.message = "RUNNING", ""
        self.exit_code: int | None = None
        self.began, self.ended = time.time(), 0.0
        self.stopping = False
        env = asked.get("runtime_env") or {}
        directory = self._directory(str(env.get("working_dir") or ""), packages)
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the head runs
        self.process = subprocess.Popen(
            asked["entrypoint"],
            shell=True,
            executable="/bin/bash",
            cwd=directory,
            env={**os.environ, "RAY_ADDRESS": address, **(env.get("env_vars") or {})},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self._wait, daemon=True).start()

    def _directory(self, uri: str, packages: dict[str, bytes]) -> str | None:
        if not uri:
            return None
        place = tempfile.mkdtemp(prefix="working_dir")
        with zipfile.ZipFile(io.BytesIO(packages[uri.rpartition("/")[2]])) as archive:
            archive.extractall(place)
        return place

    def _wait(self) -> None:
        code = self.process.wait()
        self.exit_code, self.ended = code, time.time()
        if self.stopping:
            self.status = "STOPPED"
        else:
            self.status = "FAILED" if code else "SUCCEEDED"
            self.message = f"Job entrypoint command failed with exit code {code}" if code else ""

    def stop(self) -> bool:
        if self.status in TERMINAL:
            return False
        self.stopping = True
        os.killpg(self.process.pid, signal.SIGTERM)
        return True

    def text(self) -> str:
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), size, 0).decode("utf-8", "replace")

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": self.id,
            "status": self.status,
            "entrypoint": self.asked["entrypoint"],
            "message": self.message,
            "metadata": self.asked.get("metadata"),
            "runtime_env": self.asked.get("runtime_env"),
            "start_time": int(self.began * 1000),
            "end_time": int(self.ended * 1000) or None,
            "driver_exit_code": self.exit_code,
        }


class Head(ThreadingHTTPServer):
    """The dashboard of a head."""

    daemon_threads = True

    def __init__(self, options: argparse.Namespace) -> None:
        self.jobs: dict[str, Job] = {}
        self.packages: dict[str, bytes] = {}
        self.address = f"{options.node_ip_address}:{options.port}"
        self.token = os.environ.get("RAY_AUTH_TOKEN", "")
        if os.environ.get("RAY_AUTH_MODE") != "token":
            self.token = ""
        super().__init__((options.dashboard_host, options.dashboard_port), Calls)


class Calls(BaseHTTPRequestHandler):
    """Calls of the dashboard."""

    protocol_version = "HTTP/1.1"
    server: Head

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path).rstrip("/")
        shown = self.headers.get("Authorization") or self.headers.get("X-Ray-Authorization")
        if self.server.token and path != "/api/gcs_healthz":
            if not shown:
                return self._say(401, "Unauthorized: Missing authentication token")
            if shown != f"Bearer {self.server.token}":
                return self._say(403, "Forbidden: Invalid authentication token")
        return self._say(*self._answer(self.command, path.split("/")[2:], body))

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def _answer(self, method: str, parts: list[str], body: bytes) -> tuple[int, Any]:
        head = self.server
        if parts == ["gcs_healthz"]:
            return 200, "success"
        if parts == ["version"]:
            return 200, {
                "version": "4",
                "ray_version": VERSION,
                "ray_commit": "",
                "session_name": "",
            }
        if parts == ["nodes"]:
            return 200, len(NODES) + 1
        if parts[:2] == ["packages", "gcs"]:
            if method == "PUT":
                head.packages[parts[2]] = body
            return (200, "") if parts[2] in head.packages else (404, "no such package")
        if parts == ["jobs"] and method == "POST":
            asked = json.loads(body)
            if asked.get("submission_id") in head.jobs:
                return 400, f"Job with submission_id {asked['submission_id']} already exists."
            job = Job(asked, head.packages, head.address)
            head.jobs[job.id] = job
            return 200, {"job_id": job.id, "submission_id": job.id}
        if parts == ["jobs"]:
            return 200, [job.to_json() for job in head.jobs.values()]
        if parts[:1] == ["jobs"] and len(parts) > 1:
            return self._of_job(method, parts)
        return 404, "404: Not Found"

    def _of_job(self, method: str, parts: list[str]) -> tuple[int, Any]:
        job = self.server.jobs.get(parts[1])
        if job is None:
            return 404, f"Job {parts[1]} does not exist"
        if parts[2:] == ["logs"]:
            return 200, {"logs": job.text()}
        if parts[2:] == ["stop"]:
            return 200, {"stopped": job.stop()}
        if method == "DELETE":
            del self.server.jobs[parts[1]]
            return 200, {"deleted": True}
        return 200, job.to_json()

    def _say(self, status: int, body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


NODES: set[socket.socket] = set()


def _count_nodes(server: socket.socket) -> None:
    def watch(node: socket.socket) -> None:
        if node.recv(1):
            NODES.add(node)
            node.recv(1)
        NODES.discard(node)
        node.close()

    while True:
        node, _ = server.accept()
        threading.Thread(target=watch, args=(node,), daemon=True).start()


def start(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--head", action="store_true")
    parser.add_argument("--block", action="store_true")
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("--dashboard-host", default="127.0.0.1")
    parser.add_argument("--dashboard-port", type=int, default=8265)
    parser.add_argument("--node-ip-address", default="127.0.0.1")
    parser.add_argument("--address", default="")
    options, others = parser.parse_known_args(words)
    print("started with", " ".join(others), flush=True)
    if not options.block:
        # In the background, as Ray's own processes are.
        if os.fork():
            return 0
        os.setsid()
    if options.head:
        gcs = socket.create_server((options.node_ip_address, options.port))
        threading.Thread(target=_count_nodes, args=(gcs,), daemon=True).start()
        Head(options).serve_forever(poll_interval=0.05)
        return 0
    host, _, port = options.address.rpartition(":")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            joined = socket.create_connection((host, int(port)), timeout=10)
        except OSError:
            time.sleep(0.1)
            continue
        joined.settimeout(None)
        joined.sendall(b"j")
        joined.recv(1)
        return 1  # the head has ended
    return 1


def call(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def job(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["submit", "status", "logs", "stop"])
    parser.add_argument("--address", default="http://127.0.0.1:8265")
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--submission-id", default="")
    parser.add_argument("--runtime-env-json", default="{}")
    own, entrypoint = words, []
    if "--" in words:
        at = words.index("--")
        own, entrypoint = words[:at], words[at + 1 :]
    options, ids = parser.parse_known_args(own)
    start = f"{options.address}/api/jobs/"
    if options.what == "submit":
        asked = {
            "entrypoint": shlex.join(entrypoint),
            "submission_id": options.submission_id,
            "runtime_env": json.loads(options.runtime_env_json),
        }
        found = call("POST", start, asked)["submission_id"]
        print(f"Job '{found}' submitted successfully", flush=True)
        return 0
    if options.what == "logs" and options.follow:
        return follow(start + ids[0])
    print(call("GET", start + ids[0]))
    return 0


def follow(url: str) -> int:
    shown = 0
    while True:
        # Asked first: what is there after the end is all there will be.
        try:
            status = call("GET", url)["status"]
            text = call("GET", f"{url}/logs")["logs"]
        except (OSError, urllib.error.URLError):
            return 0  # Ray's own ends well when its connection is closed
        sys.stdout.write(text[shown:])
        sys.stdout.flush()
        shown = len(text)
        if status in TERMINAL:
            return 0
        time.sleep(0.05)


def status(words: list[str]) -> int:
    """Show the resource that every node brings, as the autoscaler's report does."""
    port = os.environ.get("RAY_DASHBOARD_PORT", "8265")
    count = call("GET", f"http://127.0.0.1:{port}/api/nodes")
    print(f"Total Usage:\n 0.0/{count}.0 nemo_run_node")
    return 0


def main() -> int:
    command, words = sys.argv[1], sys.argv[2:]
    if command == "stop":
        return 0
    if command == "--version":
        print(f"ray, version {VERSION}")
        return 0
    try:
        return {"start": start, "job": job, "status": status}[command](words)
    except urllib.error.URLError as err:
        print(err, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
