"""Questions to ssh's service for files, and its answers, over one session of a connection."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import weakref
from collections.abc import Iterable
from typing import IO, cast

from nemo_run._transport.ssh import sftp_wire as wire
from nemo_run._transport.ssh.connection import Connection, NotStarted
from nemo_run._transport.ssh.sftp_wire import Attributes, Kind
from nemo_run.exceptions import BackendError, ConnectionLostError

Part = int | str | bytes | Attributes


class Line:
    """A session with the service. Hold `lock` while several requests are under way."""

    def __init__(self, process: subprocess.Popen[bytes], closing: contextlib.ExitStack) -> None:
        self._to = cast("IO[bytes]", process.stdin)
        self._from = cast("IO[bytes]", process.stdout)
        self._number = 0
        self.lock = threading.RLock()
        # Many programs open one and leave it to the collector.
        self._close = weakref.finalize(self, _closed, self._to, closing)

    @property
    def is_open(self) -> bool:
        return self._close.alive

    def close(self) -> None:
        """End the session; fine if it has ended."""
        self._close()

    def send(self, kind: Kind, *parts: Part) -> int:
        """Ask for something; return the number of the request, for `answer`."""
        if not self.is_open:
            raise OSError("This sftp session is closed. Open another one.")
        self._number = (self._number + 1) % (1 << 32)
        try:
            self._to.write(wire.packed(kind, self._number, *parts))
            self._to.flush()
        except BrokenPipeError as err:
            raise _lost() from err
        return self._number

    def answer(self, number: int) -> wire.Packet:
        """Return the answer to a request; they come in the order of the requests."""
        try:
            packet = wire.receive(self._from)
        except EOFError as err:
            raise _lost() from err
        if packet.number() != number:
            raise _lost()
        return packet

    def ignore(self, numbers: Iterable[int]) -> None:
        """Take answers that are of no interest any more out of the way of the next ones."""
        with contextlib.suppress(ConnectionLostError):
            for number in numbers:
                self.answer(number)

    def ask(self, kind: Kind, *parts: Part) -> wire.Packet:
        """Ask for something and return the answer."""
        with self.lock:
            return self.answer(self.send(kind, *parts))

    def do(self, path: str, kind: Kind, *parts: Part) -> None:
        """Have something done.

        Raises:
            OSError: it was refused; it names ``path``.
        """
        accepted(self.ask(kind, *parts), path)

    def handle(self, path: str, kind: Kind, *parts: Part) -> bytes:
        """Open something and return the server's name for it."""
        packet = self.ask(kind, *parts)
        if packet.kind != Kind.HANDLE:
            raise refusal(packet, path)
        return packet.data()

    def block(self, number: int, path: str) -> bytes:
        """Return what came for a request of a part of a file; nothing after its end."""
        packet = self.answer(number)
        if packet.kind == Kind.DATA:
            return packet.data()
        _at_end(packet, path)
        return b""

    def attributes(self, kind: Kind, path: str) -> Attributes:
        """Return what is known of a file."""
        packet = self.ask(kind, path)
        if packet.kind != Kind.ATTRS:
            raise refusal(packet, path)
        return packet.attributes()

    def names(self, path: str, kind: Kind, *parts: Part) -> list[Attributes]:
        """Return what is listed; nothing at the end of a directory."""
        packet = self.ask(kind, *parts)
        if packet.kind != Kind.NAME:
            _at_end(packet, path)
            return []
        found = []
        for _ in range(packet.number()):
            name, long = packet.text(), packet.text()
            entry = packet.attributes()
            entry.filename, entry.longname = name, long
            found.append(entry)
        return found


def open_line(connection: Connection) -> Line:
    """Have the server's service for files, until it is closed.

    Raises:
        BackendError: the server has none.
        BackendUnavailableError: it cannot be reached.
    """

    def once() -> Line:
        with contextlib.ExitStack() as stack:
            process = stack.enter_context(
                connection.open(
                    "sftp", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, subsystem=True
                )
            )
            try:
                _greet(process)
            except (EOFError, BrokenPipeError) as err:
                stack.close()  # raises if it did not start for want of a connection
                raise BackendError(
                    f"{connection.route.destination} offers no sftp: {err}. Use put() and get() of "
                    "the tunnel, which need none, or ask for `Subsystem sftp` in its sshd_config.",
                    backend="ssh",
                    operation="transfer",
                ) from err
            return Line(process, stack.pop_all())

    return connection.perform(once)


def accepted(packet: wire.Packet, path: str) -> None:
    """Raise what an answer says, unless that is yes."""
    found = wire.error(packet, path)
    if found is not None:
        raise found


def refusal(packet: wire.Packet, path: str) -> OSError | ConnectionLostError:
    """Return the error for an answer that should have been something else."""
    return (wire.error(packet, path) if packet.kind == Kind.STATUS else None) or _lost()


def _at_end(packet: wire.Packet, path: str) -> None:
    """Raise what an answer says, unless that is the end of a file or of a directory."""
    found = refusal(packet, path)
    if not isinstance(found, wire.EndOfFile):
        raise found


def _greet(process: subprocess.Popen[bytes]) -> None:
    to, source = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    to.write(wire.packed(Kind.INIT, wire.VERSION))
    to.flush()
    if wire.receive(source).kind != Kind.VERSION:
        raise EOFError("it does not speak the protocol")


def _closed(to: IO[bytes], closing: contextlib.ExitStack) -> None:
    with contextlib.suppress(OSError):
        to.close()
    # The files are as they are; how the session ended does not matter any more.
    with contextlib.suppress(NotStarted, ConnectionLostError):
        closing.close()


def _lost() -> ConnectionLostError:
    return ConnectionLostError(
        "The sftp session broke. Open another one and look how far it came.",
        backend="ssh",
        operation="transfer",
    )
