"""Tunnels: run commands and move files on the machine that a cluster is used from."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from nemo_run._home import get_nemorun_home
from nemo_run._shell import render
from nemo_run.config import ConfigurableMixin
from nemo_run.core.tunnel import _following, _local, _transfer
from nemo_run.core.tunnel._commands import (
    Command,
    RunOptions,
    as_bytes,
    as_text,
    checked,
    collect,
    too_long,
)
from nemo_run.core.tunnel._config_file import SSHConfigFile
from nemo_run.core.tunnel._connection import Connection, can_ask, connection
from nemo_run.core.tunnel._result import Result
from nemo_run.core.tunnel._ssh import Destination
from nemo_run.exceptions import ConfigError

__all__ = [
    "TUNNEL_DIR",
    "TUNNEL_FILE_SUBPATH",  # noqa: F822 - by __getattr__, since the home may change
    "Callback",
    "LocalTunnel",
    "PackagingJob",
    "Result",
    "SSHConfigFile",
    "SSHTunnel",
    "Tunnel",
    "authentication_handler",
    "delete_tunnel_dir",
]

log = logging.getLogger(__name__)

TUNNEL_DIR = ".tunnels"
BLOCK_BYTES = 1 << 20


def __getattr__(name: str) -> Any:
    if name == "TUNNEL_FILE_SUBPATH":
        return str(Path(get_nemorun_home()) / TUNNEL_DIR)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(kw_only=True)
class PackagingJob(ConfigurableMixin):
    """Code that is there already under another name, and gets a link."""

    symlink: bool = False
    src_path: str | None = None
    dst_path: str | None = None

    def symlink_cmd(self) -> str:
        """Return the command that makes the link.

        Raises:
            ConfigError: it is not said from where to where.
        """
        if not self.src_path or not self.dst_path:
            raise ConfigError(
                f"A link needs src_path and dst_path, not {self.src_path!r} and {self.dst_path!r}."
            )
        return render(["ln", "-s", self.src_path, self.dst_path])


@dataclass(kw_only=True)
class Tunnel(ABC, ConfigurableMixin):
    """How to run commands and move files where a cluster is used from.

    A tunnel is a value: it can be printed, compared, copied and stored. Connections are made when
    they are needed and belong to the process, so that all tunnels to one place share one.

    Attributes:
        job_dir: the directory there that jobs go below.
        host, user: where, and as whom.
        packaging_jobs: code that was sent, by experiment and job.
    """

    job_dir: str
    host: str
    user: str
    packaging_jobs: dict[str, PackagingJob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The job directory as `_set_job_dir` left it, and what it was before.
        self._assigned = ("", "")

    @property
    def key(self) -> str:
        """What tells this place from others in an experiment."""
        return f"{self.user}@{self.host}"

    @abstractmethod
    def connect(self) -> None:
        """Connect now, to find out now whether that works."""

    @abstractmethod
    def run(
        self, command: Command, hide: bool | str | None = True, warn: bool = False, **kwargs: Any
    ) -> Result:
        """Run a command to its end.

        Args:
            command: text for a shell, or a program with its arguments.
            hide: keep output from the terminal; ``"out"`` and ``"err"`` hide one of the two.
            warn: return a result instead of raising if the command fails.
            **kwargs: ``timeout`` in seconds, ``input`` (bytes or text for its stdin), ``pty`` for
                a command that talks to the user on this terminal; nothing of that is kept.

        Raises:
            CommandFailedError: it was run and failed.
            BackendUnavailableError: it was not run.
            ConnectionLostError: it may have run: the connection broke, or the time was up.
            AuthenticationError: the host does not let us in, or is not the one we know.
        """

    @abstractmethod
    def put(self, local_path: str, remote_path: str) -> None:
        """Copy a file, or what is in a directory, there. Directories above are made.

        A file replaces the old one whole; one put where a directory is goes into it.
        """

    @abstractmethod
    def get(self, remote_path: str, local_path: str) -> None:
        """Copy a file, or what is in a directory, here; the reverse of `put`."""

    @abstractmethod
    def write(self, remote_path: str, data: str | bytes, *, mode: int = 0o600) -> None:
        """Write a file there, whole or not at all. What is secret goes this way."""

    @abstractmethod
    def read(self, remote_path: str, offset: int = 0, limit: int = BLOCK_BYTES) -> bytes:
        """Return up to ``limit`` bytes of a file from ``offset`` on; none if it is not there."""

    def send(self, command: Command, stream: BinaryIO) -> None:
        """Run a command with what a file holds, from where it is, as its input.

        It may take as long as it takes; raises as `run` does.
        """
        self.run(command, input=stream.read())

    @abstractmethod
    def follow(
        self, remote_path: str, *, offset: int = 0, ended: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Yield what is in a file, and what is appended to it until ``ended`` returns true.

        Every byte from ``offset`` on comes once, in order, also when the connection breaks on the
        way; a file that is not there yet is waited for.
        """

    @abstractmethod
    def cleanup(self) -> None:
        """Close the connection, unless others use it; the next command connects again."""

    def setup(self) -> None:
        """Prepare for jobs."""

    def keep_alive(self, *callbacks: Callback, interval: int = 1) -> None:
        """Call ``on_interval`` of the callbacks every ``interval`` seconds until Ctrl-C.

        An error is given to ``on_error`` of all, and raised.
        """
        try:
            for callback in callbacks:
                callback.setup(self)
            for callback in callbacks:
                callback.on_start()
            while True:
                for callback in callbacks:
                    callback.on_interval()
                time.sleep(interval)
        except KeyboardInterrupt:
            log.info("%s: interrupted", self.key)
        except Exception as err:
            for callback in callbacks:
                callback.on_error(err)
            raise
        finally:
            for callback in callbacks:
                callback.on_stop()
            self.cleanup()

    def _set_job_dir(self, experiment_id: str) -> None:
        """Have jobs go below the experiment's directory; called twice, the last one counts."""
        title = experiment_id.rpartition("_")[0] or experiment_id
        base = self._base_dir()
        if Path(base).parts[-2:] != (title, experiment_id):  # a stored one has it already
            self.job_dir = str(Path(base) / title / experiment_id)
        self._assigned = (self.job_dir, base)

    def _base_dir(self) -> str:
        assigned, base = self._assigned
        return base if base and assigned == self.job_dir else self.job_dir


@dataclass(kw_only=True)
class LocalTunnel(Tunnel):
    """This machine, where it is one that jobs can be submitted from."""

    host: str = field(init=False, default=_local.HOST)
    user: str = field(init=False, default="")

    def connect(self) -> None:
        """Do nothing: we are there."""

    def run(
        self, command: Command, hide: bool | str | None = True, warn: bool = False, **kwargs: Any
    ) -> Result:
        """Run a command in a shell on this machine: see `Tunnel.run`."""
        result = _local.run(as_text(command), RunOptions.of(hide, kwargs))
        return checked(result, host=self.host, warn=warn)

    def put(self, local_path: str, remote_path: str) -> None:
        """Copy a file or what is in a directory; nothing if both paths are the same."""
        _local.copy(Path(local_path), Path(remote_path))

    def get(self, remote_path: str, local_path: str) -> None:
        """Copy a file or what is in a directory; nothing if both paths are the same."""
        _local.copy(Path(remote_path), Path(local_path))

    def write(self, remote_path: str, data: str | bytes, *, mode: int = 0o600) -> None:
        """Write a file whole or not at all."""
        _local.write(Path(remote_path), as_bytes(data), mode=mode)

    def read(self, remote_path: str, offset: int = 0, limit: int = BLOCK_BYTES) -> bytes:
        """Return up to ``limit`` bytes of a file from ``offset`` on; none if it is not there."""
        return _local.read(Path(remote_path), offset, limit)

    def follow(
        self, remote_path: str, *, offset: int = 0, ended: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Yield what is in a file as it grows: see `Tunnel.follow`."""
        path = Path(remote_path)
        return _local.follow(path, offset=offset, block_bytes=BLOCK_BYTES, ended=ended)

    def cleanup(self) -> None:
        """Do nothing."""

    def _base_dir(self) -> str:
        base = super()._base_dir()
        if not base:
            return str(Path(get_nemorun_home()) / "experiments")
        return str(Path(base).expanduser().absolute())


@dataclass(kw_only=True)
class SSHTunnel(Tunnel):
    """A machine reached by OpenSSH's own client, as set up in ``~/.ssh/config``.

    Attributes:
        host: a name of the config will do.
        user: as whom; empty for the one in the config.
        port, identity: over those of the config.
        shell: kept for compatibility; the login shell there runs commands.
        pre_command: run before every command, in the same shell.
    """

    port: int | None = None
    identity: str | None = None
    shell: str | None = None
    pre_command: str | None = None

    def connect(self) -> None:
        """Connect now unless somebody is connected: see `Tunnel.run` for what may be raised."""
        self._connection.connect()

    def connect_unasked(self) -> None:
        """Connect now, unless a person may be asked something: that waits until there is need."""
        if not can_ask():
            self.connect()

    def setup(self) -> None:
        """Make the job directory there."""
        self.run(["mkdir", "-p", "--", self.job_dir])

    def run(
        self, command: Command, hide: bool | str | None = True, warn: bool = False, **kwargs: Any
    ) -> Result:
        """Run a command in the login shell there: see `Tunnel.run`."""
        options = RunOptions.of(hide, kwargs)
        text = as_text(command)
        sent = f"{self.pre_command} && {text}" if self.pre_command else text
        way = self._connection

        def once() -> Result:
            if options.pty:
                return Result(text, "", "", way.talk(sent))
            with way.open(sent, stdin=options.stdin) as process:
                try:
                    out, err = collect(process, options)
                except subprocess.TimeoutExpired:
                    raise too_long(text, self.host, options.timeout) from None
            return Result(text, out, err, process.returncode)

        return checked(way.perform(once), host=self.host, warn=warn)

    def put(self, local_path: str, remote_path: str) -> None:
        """Copy a file, or what is in a directory, there, as one stream: see `Tunnel.put`."""
        _transfer.put(self._connection, Path(local_path), remote_path)

    def get(self, remote_path: str, local_path: str) -> None:
        """Copy a file, or what is in a directory, here, as one stream: see `Tunnel.get`."""
        _transfer.get(self._connection, remote_path, Path(local_path))

    def write(self, remote_path: str, data: str | bytes, *, mode: int = 0o600) -> None:
        """Write a file there, whole or not at all."""
        _transfer.write(self._connection, remote_path, as_bytes(data), mode=mode)

    def read(self, remote_path: str, offset: int = 0, limit: int = BLOCK_BYTES) -> bytes:
        """Return up to ``limit`` bytes of a file from ``offset`` on; none if it is not there."""
        return _transfer.read(self._connection, remote_path, offset, limit)

    def send(self, command: Command, stream: BinaryIO) -> None:
        """Run a command with what a file holds as its input, as one stream: see `Tunnel.send`."""
        _transfer.feed(self._connection, as_text(command), stream)

    def follow(
        self, remote_path: str, *, offset: int = 0, ended: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Yield what is in a file as it grows: see `Tunnel.follow`."""
        return _following.follow(self._connection, remote_path, offset=offset, ended=ended)

    @contextmanager
    def forward(self, host: str, port: int, *, local_port: int) -> Iterator[None]:
        """Have a port of this machine lead to ``host:port``, as seen from there, while entered.

        Raises:
            BackendError: the port is taken, or the server does not allow it.
        """
        with self._connection.forwarded(local_port, host, port):
            yield

    def remote_shell(self) -> str:
        """Connect, and return what rsync and its like start in place of ``ssh``, as text."""
        self._connection.connect()
        return self._connection.route.remote_shell(self._connection.socket)

    def cleanup(self) -> None:
        """Close the shared connection, unless somebody uses it or it is one of the user's own."""
        self._connection.close()

    @property
    def _connection(self) -> Connection:
        identity = str(Path(self.identity).expanduser()) if self.identity else None
        return connection(Destination(self.host, self.user or "", self.port, identity))


class Callback:
    """What `Tunnel.keep_alive` calls. Each method does nothing unless overridden."""

    def setup(self, tunnel: Tunnel) -> None:
        """Get to know the tunnel."""
        self.tunnel = tunnel

    def on_start(self) -> None:
        """Begin."""

    def on_interval(self) -> None:
        """Go on; called every interval."""

    def on_stop(self) -> None:
        """End, whatever the reason."""

    def on_error(self, error: Exception) -> None:
        """Hear of an error."""


def delete_tunnel_dir(file_path: str | Path) -> None:
    """Remove a directory and all that is in it; fine if it is gone."""
    shutil.rmtree(file_path, ignore_errors=True)


def authentication_handler(
    title: str, instructions: str, prompt_list: Sequence[tuple[str, bool]]
) -> list[str]:
    """Ask the user each of ``(prompt, echo)`` and return the answers.

    Nothing here calls it: OpenSSH asks by itself. It is for scripts that log in on their own.
    """
    from getpass import getpass

    if title or instructions:
        log.info("%s", " ".join(filter(None, [title, instructions])))
    return [input(prompt) if echo else getpass(prompt) for prompt, echo in prompt_list]
