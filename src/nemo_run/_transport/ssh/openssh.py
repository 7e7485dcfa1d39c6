"""What we say to OpenSSH, and what its answers mean."""

from __future__ import annotations

import enum
import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from nemo_run._shell import render
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
)

SSH_FAILED = 255
CONNECT_TIMEOUT_S = 20
ALIVE_INTERVAL_S = 15
ALIVE_COUNT = 3
PERSIST_S = 300
CONFIG_TIMEOUT_S = 30

# A command uses the shared connection or none: what this would connect to is nothing.
_NO_OTHER_WAY = "ProxyCommand=false"


@dataclass(frozen=True)
class Destination:
    """Where to, as the user wrote it. What is not said here, the user's ssh config says."""

    host: str
    user: str = ""
    port: int | None = None
    identity: str | None = None

    def __str__(self) -> str:
        name = f"{self.user}@{self.host}" if self.user else self.host
        return f"{name}:{self.port}" if self.port else name

    def argv(self) -> list[str]:
        """Return the arguments of ``ssh`` that lead there; the command may follow."""
        argv = []
        if self.user:
            argv += ["-l", self.user]
        if self.port:
            argv += ["-p", str(self.port)]
        if self.identity:
            # Without the second, keys of an agent come first, and servers count attempts.
            argv += ["-i", self.identity, "-o", "IdentitiesOnly=yes"]
        return [*argv, "--", self.host]


@dataclass(frozen=True)
class Route:
    """A destination, and what the user's ssh config makes of it."""

    destination: Destination
    program: str
    config: Mapping[str, str]

    @cached_property
    def fingerprint(self) -> str:
        """Tell connections apart: the same wherever the same config leads to the same place."""
        text = "\n".join(f"{name} {value}" for name, value in sorted(self.config.items()))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:20]

    @property
    def users_socket(self) -> str | None:
        """Where the user's config says that a connection to share is; None if it does not."""
        path = self.config.get("controlpath", "none")
        # Old releases do not say what the signs in it stand for.
        return None if path == "none" or "%" in path else path

    def master(self, socket: str, log: str, *, interactive: bool) -> list[str]:
        """Return the command that connects and stays; it returns once it is let in."""
        options = {
            # Not "yes": that would leave a dead socket where it is and connect without one.
            "ControlMaster": "auto",
            "BatchMode": "no" if interactive else "yes",
            # Forwardings of the user's config belong to the user's own sessions.
            "ClearAllForwardings": "yes",
            "ForwardAgent": "no",
            "ForwardX11": "no",
            "PermitLocalCommand": "no",
            "LogLevel": "INFO",
        }
        if self.config.get("connecttimeout", "none") in {"none", "0"}:
            options["ConnectTimeout"] = str(CONNECT_TIMEOUT_S)
        if self.config.get("serveraliveinterval", "0") == "0":
            options["ServerAliveInterval"] = str(ALIVE_INTERVAL_S)
            options["ServerAliveCountMax"] = str(ALIVE_COUNT)
        if self.config.get("controlpersist", "no") == "no":
            options["ControlPersist"] = str(PERSIST_S)
        return self._argv(["-f", "-N", "-T", "-E", log], options, socket)

    def command(
        self,
        text: str,
        socket: str,
        log: str,
        *,
        terminal: bool = False,
        escapes: bool = False,
        subsystem: bool = False,
    ) -> list[str]:
        """Return the command that has a shell there run ``text`` over the shared connection.

        Args:
            text: for the shell; the name of a service such as ``sftp`` if ``subsystem``.
            socket: of the shared connection.
            log: a file for what ``ssh`` says about it.
            terminal: whether the command gets a terminal there.
            escapes: whether keys such as ``~.`` are for ``ssh``.
            subsystem: whether ``text`` names a service of the server.
        """
        options = {
            "ControlMaster": "no",
            "RemoteCommand": "none",
            "LogLevel": "DEBUG3",  # says how far it came
        }
        flags = ["-tt" if terminal else "-T", "-E", log, "-o", _NO_OTHER_WAY]
        if not escapes:
            flags += ["-e", "none"]
        if subsystem:
            flags += ["-s"]
        return [*self._argv(flags, options, socket), text]

    def control(self, request: str, socket: str, *more: str) -> list[str]:
        """Return the command that asks the shared connection for something."""
        return self._argv(["-O", request, *more, "-o", _NO_OTHER_WAY], {}, socket)

    def stdio(self, host: str, port: int, socket: str) -> list[str]:
        """Return the command whose streams are a connection from there to ``host:port``."""
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return self._argv(["-W", place, "-o", _NO_OTHER_WAY], {"ControlMaster": "no"}, socket)

    def remote_shell(self, socket: str) -> str:
        """Return what programs such as rsync start in place of ``ssh``, as text."""
        argv = self._argv(["-T", "-o", _NO_OTHER_WAY], {"ControlMaster": "no"}, socket)
        return render(argv[: argv.index("--")])

    def _argv(self, flags: Sequence[str], options: Mapping[str, str], socket: str) -> list[str]:
        argv = [self.program, *flags, "-S", socket]
        for name, value in options.items():
            argv += ["-o", f"{name}={value}"]
        return [*argv, *self.destination.argv()]


def find_program() -> str:
    """Return the path of OpenSSH's client.

    Raises:
        ConfigError: there is none.
    """
    program = shutil.which("ssh")
    if program is None:
        raise ConfigError(
            "A cluster cannot be reached over ssh: there is no program 'ssh' on this machine's "
            "PATH. Install OpenSSH's client, for example: apt-get install openssh-client"
        )
    return program


def resolve(destination: Destination, program: str) -> Route:
    """Ask OpenSSH what the user's config says about a destination. Nothing leaves this machine.

    Raises:
        ConfigError: the config, or the destination, is not one.
    """
    if not destination.host or destination.host.startswith("-"):
        raise ConfigError(f"{destination.host!r} is not the name of a host. Set SSHTunnel.host.")
    try:
        done = subprocess.run(
            [program, "-G", *destination.argv()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=CONFIG_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as err:
        raise ConfigError(
            f"OpenSSH did not say within {CONFIG_TIMEOUT_S} s what ~/.ssh/config means for "
            f"{destination}. Does a `Match exec` in it wait for something?"
        ) from err
    if done.returncode:
        raise ConfigError(
            f"OpenSSH does not accept the settings for {destination}: {done.stderr.strip()}. "
            "See the tunnel, and ~/.ssh/config."
        )
    return Route(destination, program, parse_config(done.stdout))


def parse_config(text: str) -> dict[str, str]:
    """Return what ``ssh -G`` says. Words that come several times have one value a line."""
    config: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        name = name.lower()
        config[name] = f"{config[name]}\n{value}" if name in config else value
    return config


class Outcome(enum.Enum):
    """How far a command came that ended with 255."""

    ITS_OWN = enum.auto()
    """The command was run and says 255 itself."""
    NOT_STARTED = enum.auto()
    """There was no connection. The command cannot have been run."""
    REFUSED = enum.auto()
    """The server has as many sessions on this connection as it allows. It was not run."""
    LOST = enum.auto()
    """It was handed over, and then the connection, or the command, was killed."""


_ALIVE = re.compile(r"mux_client_request_alive: done pid = (\d+)")


def outcome(log: str) -> Outcome:
    """Return what became of a command, by what ``ssh`` at level DEBUG3 wrote about it."""
    if "Received exit status from master" in log:
        return Outcome.ITS_OWN
    if "session request failed" in log:
        return Outcome.REFUSED
    if "session request sent" not in log:
        return Outcome.NOT_STARTED
    return Outcome.LOST


def used_master(log: str) -> int | None:
    """Return the process id of the connection that a command was handed to."""
    match = _ALIVE.search(log)
    return int(match[1]) if match else None


_CHANGED = "REMOTE HOST IDENTIFICATION HAS CHANGED"
_UNKNOWN = "Host key verification failed"
_DENIED = re.compile(
    r"Permission denied|Too many authentication failures|Authentication failed|"
    r"No more authentication methods|Load key .*: (?!No such file)",
    re.IGNORECASE,
)
# Servers that are busy letting others in drop connections before they say a word.
_BRIEF = re.compile(r"kex_exchange_identification|Connection (closed|reset) by", re.IGNORECASE)


def is_brief(said: str) -> bool:
    """Tell whether a connection failed in a way that may be over in a moment."""
    return bool(_BRIEF.search(said)) and not _DENIED.search(said)


def connection_error(route: Route, said: str) -> BackendError:
    """Return the error for a connection that did not come about, by what ``ssh`` said."""
    destination = route.destination
    said = said.strip()
    if _CHANGED in said or _UNKNOWN in said:
        return AuthenticationError(
            _host_key_message(route, changed=_CHANGED in said),
            backend="ssh",
            operation="connect",
            detail=said,
        )
    last = said.splitlines()[-1] if said else "ssh said nothing"
    if _DENIED.search(said):
        key = f" with key {destination.identity}" if destination.identity else ""
        return AuthenticationError(
            f"{destination} does not let us in{key}: {last}. See that `{_by_hand(destination)}` "
            "works in a terminal. Servers that ask for a password or a code need a terminal here, "
            "too, or a connection that is shared (ControlMaster in ~/.ssh/config).",
            backend="ssh",
            operation="connect",
            detail=said,
        )
    return BackendUnavailableError(
        f"{destination} cannot be reached: {last}. See that `{_by_hand(destination)}` works in a "
        "terminal.",
        backend="ssh",
        operation="connect",
        detail=said,
    )


def _host_key_message(route: Route, *, changed: bool) -> str:
    name = route.config.get("hostname", route.destination.host)
    port = route.config.get("port", "22")
    files = route.config.get("userknownhostsfile", "~/.ssh/known_hosts").split()
    known = files[0] if files else "~/.ssh/known_hosts"
    known_name = name if port == "22" else f"[{name}]:{port}"
    if changed:
        return (
            f"{route.destination} is not the machine it was: its host key is another than the one "
            f"in {known}. Ask its administrators whether that is right. If so, forget the old key "
            f"and look at the new one: ssh-keygen -R {render([known_name])} -f {known}; "
            f"{_by_hand(route.destination)}"
        )
    return (
        f"{route.destination} is unknown: its host key is not in {known}. Connect once by hand and "
        f"compare what it shows with what its administrators say: {_by_hand(route.destination)}. "
        f"Without a terminal: ssh-keyscan -p {port} {render([name])} >> {known}"
    )


def _by_hand(destination: Destination) -> str:
    return render(["ssh", *(arg for arg in destination.argv() if arg != "--")])
