"""Commands and files of a tunnel, by the session that it has or that a subclass has made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO, cast

from nemo_run._transport.ssh.borrowed import Borrowed
from nemo_run._transport.ssh.commands import Command, as_bytes, as_text, checked
from nemo_run._transport.ssh.result import Result
from nemo_run._transport.ssh.sessions import Session, Way

BLOCK_BYTES = 1 << 20


class BySession(ABC):
    """What tunnels do by their session. A part of `Tunnel`."""

    host: str
    pre_command: str | None = None
    # Not a field of tunnels, so without an annotation: copies and stored ones connect anew.
    session = None  # type: Any

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "session"}

    @abstractmethod
    def _own_session(self) -> Session:
        """Return a session of ours, which connects when it is used."""

    def connect(self) -> None:
        """Connect now unless that is done: see `Tunnel.run` for what may be raised."""
        session = self._own_session()
        session.open()
        self.session = session

    def cleanup(self) -> None:
        """Close the connection, unless others use it or it is one of the user's own."""
        session, self.session = self.session or self._own_session(), None
        if hasattr(session, "close"):
            session.close()

    def run(
        self, command: Command, hide: bool | str | None = True, warn: bool = False, **kwargs: Any
    ) -> Result:
        """Run a command in a shell there: see `Tunnel.run`."""
        text = as_text(command)
        sent = f"{self.pre_command} && {text}" if self.pre_command else text
        done = self._way().perform(sent, hide, kwargs)
        if sent != text and isinstance(done, Result):
            done = replace(done, command=text)
        checked(done, host=self.host, warn=warn)
        return cast("Result", done)

    def put(self, local_path: str, remote_path: str) -> None:
        """Copy a file, or what is in a directory, there: see `Tunnel.put`."""
        self._way().put(local_path, remote_path)

    def get(self, remote_path: str, local_path: str) -> None:
        """Copy a file, or what is in a directory, here: see `Tunnel.get`."""
        self._way().get(remote_path, local_path)

    def write(self, remote_path: str, data: str | bytes, *, mode: int = 0o600) -> None:
        """Write a file there, whole or not at all."""
        self._way().write(remote_path, as_bytes(data), mode=mode)

    def read(self, remote_path: str, offset: int = 0, limit: int = BLOCK_BYTES) -> bytes:
        """Return up to ``limit`` bytes of a file from ``offset`` on; none if it is not there."""
        return self._way().read(remote_path, offset, limit)

    def send(self, command: Command, stream: BinaryIO) -> None:
        """Run a command with what a file holds as its input, as one stream: see `Tunnel.send`."""
        self._way().send(as_text(command), stream)

    def follow(
        self, remote_path: str, *, offset: int = 0, ended: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Yield what is in a file as it grows: see `Tunnel.follow`."""
        return self._way().follow(remote_path, offset=offset, ended=ended)

    def _way(self) -> Way:
        """Return what carries commands and files, after asking a subclass to connect."""
        session = self.session
        if not isinstance(session, Session):
            if session is None or not getattr(session, "is_connected", True):
                session = self._connected()
            if not isinstance(session, Session):
                return Borrowed(session, self.host)
        return session

    def _connected(self) -> Any:
        # Ours connects by itself when it is used, so that asking twice would be a waste.
        if type(self).connect is not BySession.connect:
            self.connect()
        if self.session is None:
            self.session = self._own_session()
        return self.session
