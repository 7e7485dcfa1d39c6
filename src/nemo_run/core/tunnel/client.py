"""Tunnels: run commands and move files on the machine that a cluster is used from."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_run._home import get_nemorun_home
from nemo_run._shell import render
from nemo_run.config import ConfigurableMixin
from nemo_run.core.tunnel import _execution, _transfer
from nemo_run.core.tunnel._config_file import SSHConfigFile
from nemo_run.core.tunnel._connection import Connection, connection
from nemo_run.core.tunnel._result import Result
from nemo_run.core.tunnel._ssh import Destination
from nemo_run.exceptions import (
    BackendError,
    CommandFailedError,
    ConfigError,
    ConnectionLostError,
)

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
Command = str | Sequence[str]
"""Text for a shell, or a program with its arguments, which arrive as they are."""


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

    @abstractmethod
    def cleanup(self) -> None:
        """Let go of the connection; commands under way go on, and the next one connects again."""

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

    def _checked(self, result: Result, *, warn: bool) -> Result:
        if result.ok or warn:
            return result
        said = result.stderr.strip() or result.stdout.strip()
        last = f": {said.splitlines()[-1]}" if said else ""
        raise CommandFailedError(
            f"{_short(result.command)} ended with exit code {result.exited} on {self.host}{last}",
            result=result,
            backend="ssh" if isinstance(self, SSHTunnel) else "local",
        )


@dataclass(kw_only=True)
class LocalTunnel(Tunnel):
    """This machine, where it is one that jobs can be submitted from."""

    host: str = field(init=False, default="localhost")
    user: str = field(init=False, default="")

    def connect(self) -> None:
        """Do nothing: we are there."""

    def run(
        self, command: Command, hide: bool | str | None = True, warn: bool = False, **kwargs: Any
    ) -> Result:
        """Run a command in a shell on this machine: see `Tunnel.run`."""
        options = _RunOptions.of(kwargs)
        text = _text(command)
        argv = [shutil.which("bash") or "/bin/sh", "-c", text]
        if options.pty:
            code = subprocess.run(argv, check=False).returncode
            return self._checked(Result(text, "", "", code), warn=warn)
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if options.input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                out, err = _execution.collect(
                    process,
                    input=options.input,
                    timeout_s=options.timeout,
                    show=_execution.shown(hide),
                )
            except subprocess.TimeoutExpired:
                process.kill()
                raise _too_long(text, self.host, options.timeout) from None
            except BaseException:
                process.kill()
                raise
        return self._checked(Result(text, out, err, process.returncode), warn=warn)

    def put(self, local_path: str, remote_path: str) -> None:
        """Copy a file or what is in a directory; nothing if both paths are the same."""
        _copy(Path(local_path), Path(remote_path))

    def get(self, remote_path: str, local_path: str) -> None:
        """Copy a file or what is in a directory; nothing if both paths are the same."""
        _copy(Path(remote_path), Path(local_path))

    def write(self, remote_path: str, data: str | bytes, *, mode: int = 0o600) -> None:
        """Write a file whole or not at all."""
        from nemo_run._files import write_whole

        path = Path(remote_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _bytes(data), mode=mode, sync=False)

    def read(self, remote_path: str, offset: int = 0, limit: int = BLOCK_BYTES) -> bytes:
        """Return up to ``limit`` bytes of a file from ``offset`` on; none if it is not there."""
        try:
            with Path(remote_path).open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    def cleanup(self) -> None:
        """Do nothing."""

    def _base_dir(self) -> str:
        return super()._base_dir() or str(Path(get_nemorun_home()) / "experiments")


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

    def setup(self) -> None:
        """Make the job directory there."""
        self.run(["mkdir", "-p", self.job_dir])

    def run(
        self, command: Command, hide: bool | str | None = True, warn: bool = False, **kwargs: Any
    ) -> Result:
        """Run a command in the login shell there: see `Tunnel.run`."""
        options = _RunOptions.of(kwargs)
        show = _execution.shown(hide)
        text = _text(command)
        sent = f"{self.pre_command} && {text}" if self.pre_command else text
        connection = self._connection
        if options.pty:
            code = connection.perform(lambda: connection.talk(sent))
            return self._checked(Result(text, "", "", code), warn=warn)

        def once() -> Result:
            stdin = subprocess.DEVNULL if options.input is None else subprocess.PIPE
            with connection.open(sent, stdin=stdin) as process:
                try:
                    out, err = _execution.collect(
                        process, input=options.input, timeout_s=options.timeout, show=show
                    )
                except subprocess.TimeoutExpired:
                    raise _too_long(text, self.host, options.timeout) from None
            return Result(text, out, err, process.returncode)

        return self._checked(connection.perform(once), warn=warn)

    def put(self, local_path: str, remote_path: str) -> None:
        """Copy a file, or what is in a directory, there, as one stream: see `Tunnel.put`."""
        _transfer.put(self._connection, Path(local_path), remote_path)

    def get(self, remote_path: str, local_path: str) -> None:
        """Copy a file, or what is in a directory, here, as one stream: see `Tunnel.get`."""
        _transfer.get(self._connection, remote_path, Path(local_path))

    def write(self, remote_path: str, data: str | bytes, *, mode: int = 0o600) -> None:
        """Write a file there, whole or not at all."""
        _transfer.write(self._connection, remote_path, _bytes(data), mode=mode)

    def read(self, remote_path: str, offset: int = 0, limit: int = BLOCK_BYTES) -> bytes:
        """Return up to ``limit`` bytes of a file from ``offset`` on; none if it is not there."""
        return _transfer.read(self._connection, remote_path, offset, limit)

    def cleanup(self) -> None:
        """Let go of the shared connection, unless it is one of the user's own."""
        self._connection.close()

    def remote_shell(self) -> str:
        """Connect, and return what rsync and its like start in place of ``ssh``, as text."""
        self._connection.connect()
        return self._connection.route.remote_shell(self._connection.socket)

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
    import getpass

    if title or instructions:
        log.info("%s", " ".join(filter(None, [title, instructions])))
    return [input(prompt) if echo else getpass.getpass(prompt) for prompt, echo in prompt_list]


@dataclass(frozen=True)
class _RunOptions:
    timeout: float | None = None
    input: bytes | None = None
    pty: bool = False

    @classmethod
    def of(cls, given: dict[str, Any]) -> _RunOptions:
        known = set(cls.__dataclass_fields__)
        if unknown := sorted(given.keys() - known):
            raise ConfigError(
                f"run() does not know {', '.join(map(repr, unknown))}. "
                f"It takes: {', '.join(sorted(known))}."
            )
        if given.get("input") is not None:
            given["input"] = _bytes(given["input"])
        return cls(**given)


def _text(command: Command) -> str:
    return command if isinstance(command, str) else render(command)


def _bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


def _short(command: str) -> str:
    return repr(command if len(command) <= 120 else f"{command[:117]}...")


def _too_long(command: str, host: str, timeout_s: float | None) -> ConnectionLostError:
    return ConnectionLostError(
        f"{_short(command)} did not end within {timeout_s:g} s on {host}. It may have run, or "
        "still be running.",
        backend="ssh",
        operation="run",
    )


def _copy(source: Path, target: Path) -> None:
    if source.absolute() == target.absolute():
        return
    if not source.exists():
        raise ConfigError(f"{str(source)!r} cannot be copied: there is no such file or directory.")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
    except OSError as err:
        raise BackendError(
            f"Could not copy {str(source)!r} to {str(target)!r}: {err}.",
            backend="local",
            operation="transfer",
        ) from err
