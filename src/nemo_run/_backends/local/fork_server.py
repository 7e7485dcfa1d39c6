"""Start supervisors of replicas: one by one, or many from one process that is kept for a while."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType

from nemo_run._backends.local import supervisor as local_supervisor

# What an interpreter may need to start; nothing else of our environment reaches a supervisor.
_ENV = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# Tells supervisors that a task started for a replica of its own from what else it started.
_ATTENDANT = {local_supervisor.ATTENDANT.decode(): "1"}
# Imported rather than run as a script: only then is the compiled form used, which halves the start.
_BOOT = "import sys; sys.path.append(sys.argv[1]); import supervisor; supervisor.main()"
FOLDER = str(Path(local_supervisor.__file__).parent.parent)

# A broken pipe must not end launchers that do not ignore SIGPIPE.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)

_open: ContextVar[ForkServer | None] = ContextVar("fork_server", default=None)


@contextmanager
def fork_server() -> Iterator[None]:
    """Make starting replicas cheap inside of it, also in threads that have a copy of the context.

    Each start costs a fork instead of an interpreter. The process that is forked is started with
    the first replica and leaves at the end.
    """
    if _open.get() is not None:
        yield
        return
    with ForkServer() as shared:
        token = _open.set(shared)
        try:
            yield
        finally:
            _open.reset(token)


def supervise(directory: Path, payload: bytes) -> str:
    """Start a supervisor for a replica and return its answer, or what it said instead.

    Raises:
        OSError: this machine does not let it start, now.
    """
    shared = _open.get()
    if shared is not None:
        answer = shared.ask(directory, payload)
        if answer and "\n" not in answer:
            return answer
    # Asking again, after the shared process or the supervisor was killed, can do no harm.
    with ForkServer() as own:
        answer = own.ask(directory, payload)
    if answer and "\n" not in answer:
        return answer
    *_, last_words = [own.last_words, *answer.splitlines()]  # of a traceback, if there is one
    return f"its supervisor ended before it took over: {last_words}"


class ForkServer:
    """A process that forks supervisors, started when it is first needed."""

    def __init__(self, command: Sequence[str] = ("-c", _BOOT, FOLDER)) -> None:
        self.last_words = ""
        self._command = command
        self._starting = threading.Lock()
        self._left = False
        self._process: subprocess.Popen[bytes] | None = None
        self._gate: socket.socket | None = None

    def ask(self, directory: Path, payload: bytes) -> str:
        """Start a supervisor and return its answer; nothing if it, or the fork server, has gone."""
        about = os.fsencode(directory.absolute()) + b"\0" + payload
        try:
            answer = self._converse(about).decode("utf-8", "replace").strip()
        except ConnectionError:
            return ""
        except OSError as error:
            text = f"{sys.executable!r} cannot be run: {error.strerror}"
            raise OSError(error.errno, text) from error
        local_supervisor.raise_trouble(answer)
        return answer

    def _converse(self, about: bytes) -> bytes:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                # Not socket.send_fds, which forgets the flags. One byte, because a descriptor
                # cannot travel alone.
                attached = theirs.fileno().to_bytes(4, sys.byteorder)
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, attached)
                self._send(rights)
            ours.sendall(about, _NO_SIGNAL)
            ours.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: ours.recv(65536), b""))

    def _send(self, rights: tuple[int, int, bytes]) -> None:
        try:
            self._entry().sendmsg([b"."], [rights], _NO_SIGNAL)
        except OSError as error:
            if self._left:
                raise ConnectionAbortedError from error
            raise

    def _entry(self) -> socket.socket:
        with self._starting:
            if self._left:
                raise ConnectionAbortedError  # by a thread that was interrupted
            if self._gate is None:
                self._gate, theirs = socket.socketpair()
                with theirs:
                    self._process = self._start(theirs.fileno())
            return self._gate

    def _start(self, gate: int) -> subprocess.Popen[bytes]:
        # A new session at once: Ctrl-C in the terminal is for us, not for it.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", *self._command, local_supervisor.PLACEHOLDER],
            stdin=gate,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_ATTENDANT | {name: os.environ[name] for name in _ENV if name in os.environ},
            cwd="/",
            start_new_session=True,
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._starting:
            self._left = True
        if self._gate is not None:
            with self._gate, suppress(OSError):  # some systems mind that it has gone already
                # Closing would not do: a fork of this process has it open, too.
                self._gate.shutdown(socket.SHUT_RDWR)
        if self._process is not None:
            _, errors = self._process.communicate()
            said = errors.decode("utf-8", "replace").split("\n")
            self.last_words = next(filter(None, reversed(said)), "it was killed")
