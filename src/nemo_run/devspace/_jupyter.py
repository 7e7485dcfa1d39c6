"""Jupyter on a devspace: started there, reached by a port of this machine, kept open."""

from __future__ import annotations

import inspect
import json
import logging
import re
import socket
import subprocess
import time

from nemo_run._files import write_whole
from nemo_run.devspace import _node_jupyter, _reaching
from nemo_run.devspace._records import Record
from nemo_run.exceptions import BackendError

log = logging.getLogger(__name__)

START_S = 180.0
FORWARD_S = 30.0
_SOCKET = re.compile(r"/[^\s:]+")
_PATHS = {"lab": "/lab", "notebook": "/tree", "server": "/"}


class Jupyter:
    """A port of this machine that leads to Jupyter on a devspace."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._forward: subprocess.Popen[bytes] | None = None
        self._socket = ""
        self._port = 0

    def open(self) -> str:
        """Start Jupyter unless it runs, lead a port there, and return the address with its token.

        Raises:
            BackendError: there is no Jupyter on the node, or it cannot be reached.
        """
        told = self._started()
        self._socket = told["socket"]
        self._port = self._free_port()
        self._lead()
        path = _PATHS.get(told["kind"], "/")
        return f"http://127.0.0.1:{self._port}{path}?token={told['token']}"

    def keep_open(self) -> None:
        """Lead the port there again if the connection was lost; trouble is only logged."""
        if self._forward is None or self._forward.poll() is None:
            return
        log.info("%s: connecting Jupyter again", self._record.name)
        try:
            self._lead()
        except BackendError as err:
            log.info("%s: %s", self._record.name, err)

    def close(self) -> None:
        """Free the port; Jupyter goes on."""
        if self._forward is not None:
            self._forward.terminate()
            self._forward.wait()

    def _started(self) -> dict[str, str]:
        # The text comes by stdin: arguments of processes can be read by others.
        argv = _reaching.argv(self._record, ["python3", "-"], "-T", "-o", "BatchMode=yes")
        try:
            done = subprocess.run(
                argv,
                input=inspect.getsource(_node_jupyter),
                capture_output=True,
                text=True,
                timeout=START_S,
                check=False,
            )
            told = _checked(json.loads(done.stdout.strip().splitlines()[-1]))
        except subprocess.TimeoutExpired:
            raise self._error(f"it did not start within {START_S:g} s") from None
        except (LookupError, TypeError, ValueError):
            raise self._error(done.stderr.strip() or "the node said nothing") from None
        return told

    def _lead(self) -> None:
        way = f"127.0.0.1:{self._port}:{self._socket}"
        options = ["-N", "-T", "-n", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"]
        argv = _reaching.argv(self._record, [], *options, "-L", way)
        self._forward = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + FORWARD_S
        while not _is_open(self._port):
            if self._forward.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise self._error(f"port {self._port} of this machine does not lead there")
            time.sleep(0.05)

    def _free_port(self) -> int:
        """Return a port that is free, the same as the last time if that one is."""
        kept = self._record.home / "jupyter_port"
        for wanted in (int(kept.read_text()) if kept.exists() else 0, 0):
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", wanted))
                except OSError:
                    continue
                port = int(probe.getsockname()[1])
            write_whole(kept, str(port).encode())
            return port
        raise self._error("this machine has no free port")

    def _error(self, why: str) -> BackendError:
        return BackendError(
            f"Jupyter of devspace {self._record.name!r} cannot be used: {why}",
            backend="devspace",
            operation="jupyter",
        )


def _checked(told: dict[str, str]) -> dict[str, str]:
    """Return what a node says of its Jupyter, which becomes options of ssh and an address.

    Raises:
        ValueError, TypeError, LookupError: it has another form than ours say it in.
    """
    if not (_SOCKET.fullmatch(told["socket"]) and told["token"].isalnum()):
        raise ValueError("no socket and token")
    return told


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
