"""One ssh connection for each place, shared by all threads and processes of this user.

The connection is a process of OpenSSH's own (its "control master") that other invocations of `ssh`
hand their commands to through a socket. It is found by the socket's name, outlives us for some
minutes of silence, and is started again when it is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from nemo_run._transport.ssh import machine as ssh_machine
from nemo_run._transport.ssh import openssh
from nemo_run._transport.ssh import terminal as own_terminal
from nemo_run._transport.ssh.openssh import Destination, Outcome, Route
from nemo_run._transport.ssh.options import RunOptions
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    ConnectionLostError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

# Servers allow ten sessions on a connection unless told otherwise. Following a log keeps one.
COMMANDS_AT_A_TIME = 6
STREAMS_AT_A_TIME = 3
SESSION_WAIT_S = 120.0
CONTROL_TIMEOUT_S = 15.0
LOGIN_TIMEOUT_S = 60.0
PROMPT_TIMEOUT_S = 300.0
BRIEF_FAILURES = 3
TRANSFER_TRIES = 3
RESTARTS = 3
PAUSE_S = (0.05, 2.0)


class NotStarted(Exception):
    """Internal: a command was not run, for want of a connection or of a free session on it."""

    def __init__(self, *, refused: bool) -> None:
        super().__init__("not started")
        self.refused = refused


class Connection:
    """The way to one place. Cheap to make: it connects when the first command needs it."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.socket = route.users_socket or str(ssh_machine.directory() / route.fingerprint)
        self.streams = threading.BoundedSemaphore(STREAMS_AT_A_TIME)
        self._commands = threading.BoundedSemaphore(COMMANDS_AT_A_TIME)
        self._connecting = threading.Lock()
        self._failure: tuple[float, BackendError] | None = None
        # A few files for all places: when one is not needed any more cannot be told.
        self._in_making = f"making-{route.fingerprint[:2]}"
        self._in_use = f"use-{route.fingerprint[:2]}"

    def perform(self, operation: Callable[[], T], *, repeatable: bool = False) -> T:
        """Return what ``operation``, which calls `open`, returns; connect first where needed.

        It is called again if it did not start, and after a lost connection if ``repeatable``.

        Raises:
            BackendUnavailableError: there is no connection to be had; nothing was run.
            ConnectionLostError: the connection broke; what was asked for may have been done.
            AuthenticationError: the server does not let us in, or is not the one we know.
        """
        tries, lost = 0, 0
        waiting = Waiting(*PAUSE_S, timeout_s=SESSION_WAIT_S, growth=2)
        while True:
            try:
                with self._commands:
                    return operation()
            except NotStarted as err:
                if err.refused:
                    if waiting.is_over:
                        raise self._no_session() from None
                    waiting.pause()
                    continue
                tries += 1
                if tries > RESTARTS:
                    raise self._unstable() from None
            except ConnectionLostError:
                lost += 1
                if not repeatable or lost >= TRANSFER_TRIES:
                    raise
            self.connect()

    @contextmanager
    def open(
        self,
        text: str,
        *,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.PIPE,
        subsystem: bool = False,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Have a shell there run ``text`` while entered; wait for it on leaving.

        With ``subsystem`` the text names a service of the server.

        Only within `perform`. Leaving by an exception ends the local end at once, except for a
        `BrokenPipeError`: that is the command ending early, and its exit code says why.

        Raises:
            NotStarted: it was not run.
            ConnectionLostError: it was handed over, and the connection broke.
        """
        with (
            ssh_machine.locked(self._in_use, fcntl.LOCK_SH),
            ssh_machine.log_file() as said,
            self._started(
                self.route.command(text, self.socket, said, subsystem=subsystem),
                stdin,
                stderr,
            ) as process,
        ):
            try:
                yield process
            except BrokenPipeError:
                pass
            except BaseException:
                process.kill()
                raise
            self._judge(process.wait(), Path(said).read_text(errors="replace"))

    def talk(self, text: str, options: RunOptions) -> tuple[int, str]:
        """Have a shell there run ``text`` on a terminal; return its exit code and output.

        The keys are the user's, if the command is theirs to use. Only within `perform`.
        """
        with (
            ssh_machine.locked(self._in_use, fcntl.LOCK_SH),
            ssh_machine.log_file() as said,
        ):
            escapes = own_terminal.keyboard(options) is not None
            argv = self.route.command(text, self.socket, said, terminal=True, escapes=escapes)
            code, output = own_terminal.run(argv, options, passes_on=True)
            self._judge(code, Path(said).read_text(errors="replace"))
        return code, output

    def _started(
        self, argv: list[str], stdin: int | IO[bytes], stderr: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # what Ctrl-C means is ours to decide
            )
        except OSError as err:
            raise ConfigError(
                f"A command for {self.route.destination} could not be started: {err}. "
                "Put what is long into a file."
            ) from err

    def connect(self) -> None:
        """Connect unless there is a connection.

        Of many threads and processes that want it, one connects and the others wait. If it fails,
        those that waited get the same answer and do not try again one after the other.
        """
        arrived = time.monotonic()
        with self._connecting:
            if self._failure is not None and self._failure[0] >= arrived:
                raise _again(self._failure[1])
            with ssh_machine.locked(self._in_making, fcntl.LOCK_EX):
                if self.master_pid() is not None:
                    return
                try:
                    self._start_master()
                except BackendError as err:
                    self._failure = (time.monotonic(), err)
                    raise
                self._failure = None

    def close(self) -> None:
        """Close the connection, unless it is the user's own or something is under way on it."""
        if self.route.users_socket is None:
            with ssh_machine.locked(self._in_use, fcntl.LOCK_EX, wait_s=0) as alone:
                if alone:
                    self._control("exit")

    def master_pid(self) -> int | None:
        """Return the process that holds the connection, None if there is none."""
        return ssh_machine.master_pid(self.socket)

    @contextmanager
    def forwarded(self, local_port: int, host: str, port: int) -> Iterator[None]:
        """Have a port of this machine lead to one that the other end can reach, while entered.

        Raises:
            BackendError: the port is taken, or the server does not allow it.
        """
        what = ("-L", f"127.0.0.1:{local_port}:{host}:{port}")
        self.connect()
        if said := self._control("forward", *what).strip():
            raise BackendError(
                f"Port {local_port} of this machine cannot lead to {host}:{port} by way of "
                f"{self.route.destination}: {said.splitlines()[-1]}. Is the port free?",
                backend="ssh",
                operation="forward",
                detail=said,
            )
        try:
            yield
        finally:
            self._control("cancel", *what)

    def _control(self, request: str, *more: str) -> str:
        try:
            done = subprocess.run(
                self.route.control(request, self.socket, *more),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=CONTROL_TIMEOUT_S,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout.decode("utf-8", "replace")

    def _start_master(self) -> None:
        interactive = can_ask()
        waiting = Waiting(0.5, 60, growth=2)
        for left in reversed(range(BRIEF_FAILURES)):
            code, said = self._run_master(interactive=interactive)
            if code == 0:
                log.debug("%s: connected", self.route.destination)
                return
            if not left or not openssh.is_brief(said):
                raise openssh.connection_error(self.route, said)
            waiting.pause()

    def _run_master(self, *, interactive: bool) -> tuple[int, str]:
        with ssh_machine.log_file() as said:
            try:
                done = subprocess.run(
                    self.route.master(self.socket, said, interactive=interactive),
                    stdin=None if interactive else subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    # Open as long as the connection, so it must not be a pipe with a reader.
                    stderr=None if interactive else subprocess.DEVNULL,
                    timeout=PROMPT_TIMEOUT_S if interactive else LOGIN_TIMEOUT_S,
                    start_new_session=not interactive,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return openssh.SSH_FAILED, "Connection timed out while logging in"
            return done.returncode, Path(said).read_text(errors="replace")

    def _judge(self, code: int, said: str) -> None:
        """Raise unless a command that ended with ``code`` did so by itself, with all it wrote."""
        outcome = openssh.outcome(said)
        if code == openssh.SSH_FAILED and outcome in {Outcome.NOT_STARTED, Outcome.REFUSED}:
            raise NotStarted(refused=outcome is Outcome.REFUSED)
        # The exit code may overtake the output, which is then lost with the connection; and what
        # was killed has no exit code. Either is all there was if the connection still stands.
        used = openssh.used_master(said)
        if used is not None and used != self.master_pid():
            raise ConnectionLostError(
                f"The connection to {self.route.destination} broke while a command was under "
                "way. It may have run. Look before you repeat it.",
                backend="ssh",
                operation="run",
            )

    def _no_session(self) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"{self.route.destination} allows no more sessions on one connection, and none became "
            f"free within {SESSION_WAIT_S:g} s. Ask for a larger MaxSessions in its sshd_config, "
            "or run fewer things at once.",
            backend="ssh",
            operation="run",
        )

    def _unstable(self) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"The connection to {self.route.destination} broke {RESTARTS} times before a command "
            "could be run on it. Nothing was run.",
            backend="ssh",
            operation="run",
        )


_connections: dict[tuple[Destination, str], Connection] = {}
_pool_lock = threading.Lock()


def connection(destination: Destination) -> Connection:
    """Return the connection to a place, the same object for all callers in this process."""
    # The program is part of the key: a PATH that changed may lead to another config.
    key = (destination, openssh.find_program())
    with _pool_lock:
        known = _connections.get(key)
    if known is None:
        made = Connection(openssh.resolve(*key))
        with _pool_lock:
            known = _connections.setdefault(key, made)
    return known


def _forget_after_fork() -> None:
    # Locks may be held by threads that do not exist in the child. Sockets serve it as well as us.
    global _pool_lock
    _connections.clear()
    _pool_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


def can_ask() -> bool:
    """Tell whether a person can answer questions: at a terminal, or through an askpass program."""
    if os.environ.get("SSH_ASKPASS") and os.environ.get("SSH_ASKPASS_REQUIRE"):
        return True
    with contextlib.suppress(AttributeError, ValueError):  # no stdin, or a closed one
        return sys.stdin.isatty()
    return False


def _again(error: BackendError) -> BackendError:
    """Return an error like ``error``, since one object cannot be raised by two threads."""
    return type(error)(
        str(error), backend=error.backend, operation=error.operation, detail=error.detail
    )
