"""Tunnels: run commands and move files on the machine that a cluster is used from."""

from __future__ import annotations

import logging
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from nemo_run import _later
from nemo_run._home import get_nemorun_home
from nemo_run._names import is_path_of_id, path_of_id
from nemo_run._shell import render
from nemo_run._transport.ssh import local_shell
from nemo_run._transport.ssh.commands import Command
from nemo_run._transport.ssh.config_file import SSHConfigFile
from nemo_run._transport.ssh.connection import can_ask
from nemo_run._transport.ssh.openssh import Destination
from nemo_run._transport.ssh.result import Result
from nemo_run._transport.ssh.sessions import LocalSession, Session, SSHSession
from nemo_run.config import ConfigurableMixin
from nemo_run.core.tunnel._by_session import BLOCK_BYTES, BySession
from nemo_run.exceptions import ConfigError

__all__ = [
    "TUNNEL_DIR",
    "TUNNEL_FILE_SUBPATH",  # noqa: F822 - by __getattr__, since the home may change
    "Callback",
    "KeepAliveOver",
    "LocalTunnel",
    "PackagingJob",
    "Result",
    "RunResult",
    "SSHConfigFile",
    "SSHTunnel",
    "Tunnel",
    "authentication_handler",
    "delete_tunnel_dir",
]

log = logging.getLogger(__name__)

RunResult = Result

TUNNEL_DIR = ".tunnels"


def __getattr__(name: str) -> Any:
    if name == "TUNNEL_FILE_SUBPATH":
        return str(Path(get_nemorun_home()) / TUNNEL_DIR)
    return _later.find(__name__, name, {"Context": "invoke.context"})


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
        session: the connection, None before the first use: what has ``run``, ``put``, ``get``,
            ``is_connected``, ``close`` and ``client.open_sftp()``, as Fabric's has. If ``connect``
            of a subclass sets another one, that is used instead, for all that this tunnel does.
    """

    job_dir: str
    host: str
    user: str
    packaging_jobs: dict[str, PackagingJob] = field(default_factory=dict)

    session = None  # type: Any  # not a field, so without an annotation

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
            **kwargs: Invoke's words, among them ``timeout`` in seconds, ``env``, ``watchers`` that
                answer what it asks, ``in_stream``, ``echo``, ``encoding``; ``pty`` gives it a
                terminal, which is the user's if it is shown and neither watched nor fed. Ours is
                ``input``: bytes or text that it reads.

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

        Raises:
            MissingFileError: there is nothing to copy. It is a `FileNotFoundError`, too.
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

        A callback ends that by `KeepAliveOver`. Any other error is given to ``on_error`` of all,
        and raised.
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
        except KeepAliveOver as over:
            log.info("%s: %s", self.key, over)
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
        base = self._base_dir()
        if not is_path_of_id(base, experiment_id):  # a stored one has it already
            self.job_dir = str(Path(base) / path_of_id(experiment_id))
        self._assigned = (self.job_dir, base)

    def _base_dir(self) -> str:
        assigned, base = self._assigned
        return base if base and assigned == self.job_dir else self.job_dir


@dataclass(kw_only=True)
class LocalTunnel(BySession, Tunnel):
    """This machine, where it is one that jobs can be submitted from."""

    host: str = field(init=False, default=local_shell.HOST)
    user: str = field(init=False, default="")

    def _own_session(self) -> Session:
        return LocalSession()

    def _base_dir(self) -> str:
        base = super()._base_dir()
        if not base:
            return str(Path(get_nemorun_home()) / "experiments")
        return str(Path(base).expanduser().absolute())


@dataclass(kw_only=True)
class SSHTunnel(BySession, Tunnel):
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

    def connect_unasked(self) -> None:
        """Connect now, unless a person may be asked something: that waits until there is need."""
        if not can_ask():
            self.connect()

    def setup(self) -> None:
        """Make the job directory there."""
        self.run(["mkdir", "-p", "--", self.job_dir])

    @contextmanager
    def forward(self, host: str, port: int, *, local_port: int) -> Iterator[None]:
        """Have a port of this machine lead to ``host:port``, as seen from there, while entered.

        Raises:
            BackendError: the port is taken, or the server does not allow it.
        """
        with self._own_session().forward_local(local_port, port, host):
            yield

    def stdio_forward(self, host: str, port: int) -> list[str]:
        """Connect, and return a program whose streams lead to ``host:port`` as seen from there."""
        return self._own_session().stdio_forward(host, port)

    def remote_shell(self) -> str:
        """Connect, and return what rsync and its like start in place of ``ssh``, as text."""
        return self._own_session().remote_shell()

    def _own_session(self) -> SSHSession:
        identity = str(Path(self.identity).expanduser()) if self.identity else None
        return SSHSession(Destination(self.host, self.user or "", self.port, identity))


class KeepAliveOver(Exception):
    """Raised by a callback of `Tunnel.keep_alive` to end it: there is nothing left to keep."""


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
