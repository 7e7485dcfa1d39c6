"""A way to the engine on which a launcher dies at a chosen moment."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract.backends import DockerCluster

CREATE = re.compile(rb"^POST \S*/containers/create\?", re.MULTILINE)
LOGS = re.compile(rb"^GET \S*/containers/\w+/logs\?", re.MULTILINE)
PULL = re.compile(rb"^POST \S*/images/create\?", re.MULTILINE)
START = re.compile(rb"^POST \S*/containers/\w+/start ", re.MULTILINE)

STOP = re.compile(rb"^POST \S*/containers/\w+/stop\?", re.MULTILINE)


@dataclass(frozen=True)
class Death:
    """When a launcher dies: as it sends something, or ``done``, once the engine has answered.

    If it is ``torn``, the beginning of that answer comes through.
    """

    request: re.Pattern[bytes]
    times: int = 1
    done: bool = False
    torn: bool = False


class EngineProxy:
    """A socket that leads to another, and looks at what is asked."""

    def __init__(self, target: Path, path: Path) -> None:
        self.path = path
        self._target = target
        self._death: Death | None = None
        self._kill: Callable[[], None] = lambda: None
        self._seen = 0
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def wait_for(self, death: Death, kill: Callable[[], None]) -> None:
        """Have ``kill`` called at a moment; whoever lives on gets no answer."""
        self._seen, self._kill, self._death = 0, kill, death

    def close(self) -> None:
        self._closing = True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.path))
        self._accepting.join()
        for thread in self._threads:
            thread.join(10)
        self._server.close()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            if self._closing:
                client.close()
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as engine, contextlib.suppress(OSError):
            engine.connect(str(self._target))
            dies = False
            while not self._closing:
                ready, _, _ = select.select([client, engine], [], [], 0.2)
                for source in ready:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if source is client:
                        # Head and body of a request may come one after the other.
                        dies = self._is_last(data) or dies
                        if dies and self._death is not None and not self._death.done:
                            self._kill()
                            return
                        engine.sendall(data)
                    elif dies:
                        if self._death is not None and self._death.torn:
                            head, mark, body = data.partition(b"\r\n\r\n")
                            client.sendall(head + mark + body[: len(body) // 2])
                        self._kill()
                        return
                    else:
                        client.sendall(data)

    def _is_last(self, data: bytes) -> bool:
        if self._death is None or not self._death.request.search(data):
            return False
        self._seen += 1
        return self._seen == self._death.times


def die_launching(cluster: DockerCluster, planned: Any, proxy: EngineProxy, death: Death) -> None:
    """Schedule a plan in a process that is killed on the way."""
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.read(ready, 1)
            os.environ["DOCKER_HOST"] = f"unix://{proxy.path}"
            cluster.scheduler.schedule(planned)
        finally:
            os._exit(1)
    proxy.wait_for(death, lambda: os.kill(pid, signal.SIGKILL))
    os.write(go, b"x")
    _, status = os.waitpid(pid, 0)
    os.close(ready)
    os.close(go)
    assert os.WIFSIGNALED(status), "it was to die on the way"
