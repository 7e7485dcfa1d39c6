"""What `Tunnel.session` is: a connection in the words of Fabric's, over OpenSSH or on this machine.

Sessions are cheap. What they stand for belongs to the process: `connection` of a destination.
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from nemo_run import _shell
from nemo_run._transport.ssh import commands, following, local_shell, transfer
from nemo_run._transport.ssh.commands import Command, as_text
from nemo_run._transport.ssh.connection import Connection, connection
from nemo_run._transport.ssh.exchange import WatcherGaveUp, collect
from nemo_run._transport.ssh.far_files import Files, FilesHere
from nemo_run._transport.ssh.openssh import Destination
from nemo_run._transport.ssh.options import RunOptions
from nemo_run._transport.ssh.result import Result

FOLLOW_BYTES = 1 << 20


class Way(ABC):
    """How commands and files get to a place. Tunnels are made of it."""

    @abstractmethod
    def perform(self, text: str, hide: bool | str | None, words: Mapping[str, Any]) -> Any:
        """Run a command to its end and return how it ended, whatever that is.

        Args:
            text: for a shell.
            hide: which streams are not shown.
            words: what the caller of `Tunnel.run` said beside these.
        """

    @abstractmethod
    def put(self, local: str | Path, remote: str = "") -> None:
        """Copy a file, or what is in a directory, there."""

    @abstractmethod
    def get(self, remote: str, local: str | Path = "") -> None:
        """Copy a file, or what is in a directory, here."""

    @abstractmethod
    def write(self, remote: str, data: bytes, *, mode: int) -> None:
        """Write a file there, whole or not at all."""

    @abstractmethod
    def read(self, remote: str, offset: int, limit: int) -> bytes:
        """Return a part of a file; nothing if it is not there."""

    @abstractmethod
    def send(self, text: str, stream: BinaryIO) -> None:
        """Run a command with what a file holds as its input."""

    @abstractmethod
    def follow(self, remote: str, *, offset: int, ended: Callable[[], bool]) -> Iterator[bytes]:
        """Yield what is in a file as it grows."""


class Session(Way):
    """A connection that tunnels and programs use; see Fabric's ``Connection`` for the words."""

    host: str
    user: str
    port: int | None = None

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether there is a connection right now."""

    @abstractmethod
    def open(self) -> None:
        """Connect, unless that is done."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back; the next command connects again."""

    @abstractmethod
    def sftp(self) -> Files:
        """Have files there by ssh's own service for them, until it is closed."""

    @property
    def client(self) -> Client:
        """What Paramiko's words are said to: ``client.open_sftp()``."""
        return Client(self)

    def run(
        self,
        command: Command,
        hide: bool | str | None = None,
        warn: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Run a command to its end, shown unless ``hide``; see `Tunnel.run` for the rest."""
        done = self.perform(as_text(command), hide, kwargs)
        return commands.checked(done, host=self.host, warn=warn)

    def perform(self, text: str, hide: bool | str | None, words: Mapping[str, Any]) -> Any:
        options = RunOptions.of(hide, words)
        try:
            return commands.announce(text, options) or self.execute(text, options)
        except WatcherGaveUp as gave_up:
            raise commands.unanswered(gave_up, text, options) from None

    @abstractmethod
    def execute(self, text: str, options: RunOptions) -> Result:
        """Run a command as ``options`` say."""

    def local(self, command: Command, hide: bool | str | None = None, **kwargs: Any) -> Any:
        """Run a command on this machine."""
        return LocalSession().run(command, hide, **kwargs)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """As much of Paramiko's client as a session has."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def open_sftp(self) -> Files:
        """Have files there by ssh's own service for them, until it is closed."""
        return self._session.sftp()

    def close(self) -> None:
        """Close the session."""
        self._session.close()


class LocalSession(Session):
    """This machine."""

    host = local_shell.HOST
    user = ""
    is_connected = True

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def sftp(self) -> Files:
        return FilesHere()

    def execute(self, text: str, options: RunOptions) -> Result:
        return local_shell.run(text, options)

    def put(self, local: str | Path, remote: str = "") -> None:
        local_shell.copy(Path(local), Path(remote or Path.home() / Path(local).name))

    def get(self, remote: str, local: str | Path = "") -> None:
        local_shell.copy(Path(remote), Path(local or Path(remote).name))

    def write(self, remote: str, data: bytes, *, mode: int) -> None:
        local_shell.write(Path(remote), data, mode=mode)

    def read(self, remote: str, offset: int, limit: int) -> bytes:
        return local_shell.read(Path(remote), offset, limit)

    def send(self, text: str, stream: BinaryIO) -> None:
        self.run(text, hide=True, input=stream.read())

    def follow(self, remote: str, *, offset: int, ended: Callable[[], bool]) -> Iterator[bytes]:
        path = Path(remote)
        return local_shell.follow(path, offset=offset, block_bytes=FOLLOW_BYTES, ended=ended)


class SSHSession(Session):
    """A place reached by the connection that all of this user's processes share."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self.host = destination.host
        self.user = destination.user
        self.port = destination.port

    @property
    def connect_kwargs(self) -> dict[str, Any]:
        """Which key is used, as Fabric has it."""
        identity = self._destination.identity
        return {"key_filename": [identity]} if identity else {}

    @property
    def connection(self) -> Connection:
        """What the processes share."""
        return connection(self._destination)

    @property
    def is_connected(self) -> bool:
        return self.connection.master_pid() is not None

    def open(self) -> None:
        self.connection.connect()

    def close(self) -> None:
        self.connection.close()

    def sftp(self) -> Files:
        from nemo_run._transport.ssh.sftp import SFTP
        from nemo_run._transport.ssh.sftp_line import open_line

        return SFTP(open_line(self.connection))

    def remote_shell(self) -> str:
        """Connect, and return what rsync and its like start in place of ``ssh``, as text."""
        way = self.connection
        way.connect()
        return way.route.remote_shell(way.socket)

    def stdio_forward(self, host: str, port: int) -> list[str]:
        """Connect, and return the command whose streams lead to ``host:port`` from there."""
        way = self.connection
        way.connect()
        return way.route.stdio(host, port, way.socket)

    def forward_local(
        self, local_port: int, remote_port: int | None = None, remote_host: str = "localhost"
    ) -> AbstractContextManager[None]:
        """Have a port of this machine lead to one as seen from there, while entered."""
        return self.connection.forwarded(local_port, remote_host, remote_port or local_port)

    def execute(self, text: str, options: RunOptions) -> Result:
        way = self.connection
        _shell.check_names(options.env)
        sets = [_shell.export(name, value) for name, value in options.env.items()]
        sent = " && ".join([*sets, text])

        def once() -> Result:
            try:
                code, out, err = _run(way, sent, options)
            except subprocess.TimeoutExpired:
                raise commands.too_long(text, self.host, options) from None
            return commands.result(text, out, err, code, options)

        return way.perform(once)

    def put(self, local: str | Path, remote: str = "") -> None:
        transfer.put(self.connection, Path(local), remote or Path(local).name)

    def get(self, remote: str, local: str | Path = "") -> None:
        transfer.get(self.connection, remote, Path(local or PurePosixPath(remote).name))

    def write(self, remote: str, data: bytes, *, mode: int) -> None:
        transfer.write(self.connection, remote, data, mode=mode)

    def read(self, remote: str, offset: int, limit: int) -> bytes:
        return transfer.read(self.connection, remote, offset, limit)

    def send(self, text: str, stream: BinaryIO) -> None:
        transfer.feed(self.connection, text, stream)

    def follow(self, remote: str, *, offset: int, ended: Callable[[], bool]) -> Iterator[bytes]:
        return following.follow(self.connection, remote, offset=offset, ended=ended)


def _run(way: Connection, sent: str, options: RunOptions) -> tuple[int, str, str]:
    if options.pty:
        code, out = way.talk(sent, options)
        return code, out, ""
    with way.open(sent, stdin=options.stdin) as process:
        out, err = collect(process, options)
    return process.returncode, out, err
