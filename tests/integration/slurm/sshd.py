"""A real sshd on loopback with keys of its own, that counts, and that can be killed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.integration.slurm.daemons import (
    Daemons,
    children,
    end,
    free_ports,
    is_listening,
    owned_directory,
    search_path,
    wait_until,
)

ALIAS = "loop"
"""What the server is called in the ssh config: ``ssh -F <config> loop`` gets there."""

_CONNECTION = re.compile(r"^Accepted \S+ for ", re.MULTILINE)
_SECOND_FACTOR = """\
AuthenticationMethods publickey,keyboard-interactive
KbdInteractiveAuthentication yes
PermitRootLogin yes
UsePAM yes
"""
_COMMAND = re.compile(r"^Starting session: (command|shell|subsystem)", re.MULTILINE)


class Sshd:
    """An ssh server for whoever runs the tests, reached by ``identity`` and nothing else.

    OpenSSH finds ``~/.ssh`` by the account and not by ``$HOME``, so that programs under test reach
    this server by a ``PATH`` with ``bin`` in front: the ``ssh`` there reads ``ssh_config`` instead.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        variables: Mapping[str, str] | None = None,
        settings: str = "",
    ) -> None:
        """Prepare a server.

        Args:
            directory: where all its files go.
            port: that it listens on, any free one by default.
            variables: that commands find in their environment.
            settings: more lines for its configuration.
        """
        self.directory = directory
        self.port = port or free_ports(1)[0]
        self.etc = directory / "etc"
        self.bin = directory / "bin"
        self.identity = self.etc / "id_ed25519"
        self.known_hosts = self.etc / "known_hosts"
        self.ssh_config = self.etc / "ssh_config"
        self._log = directory / "log" / "sshd.log"
        # Dot files of whoever runs the tests would make every command slow, or another one.
        # Jobs find the interpreter that runs the tests, and with it the package.
        self.home = directory / "home"
        path = os.pathsep.join([str(Path(sys.executable).parent), search_path({})])
        self._variables = {"HOME": str(self.home), "PATH": path, **(variables or {})}
        self._settings = settings
        self._program: Path | None = None
        self._daemons = Daemons(directory, os.environ)

    @property
    def user(self) -> str:
        return subprocess.check_output(["id", "-un"], text=True).strip()

    @property
    def environment(self) -> dict[str, str]:
        """What leads programs under test here."""
        return {"PATH": os.pathsep.join([str(self.bin), os.environ["PATH"]])}

    def start(self) -> None:
        for name in ("etc", "bin", "run", "log", "home"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self._make_keys()
        self._configure()
        # Where sshd locks up those who have not logged in yet; fixed when it was compiled.
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.restart()

    def restart(self) -> None:
        """Start the server if it does not run."""
        if self._daemons.pid("sshd") is not None:
            return
        config = self.etc / "sshd_config"
        program = self._program or _installed()
        self._daemons.start("sshd", [program, "-D", "-f", config, "-E", self._log])
        try:
            wait_until(lambda: is_listening(self.port), "sshd", timeout_s=20)
        except TimeoutError as err:
            raise TimeoutError(f"sshd did not start: {self._daemons.said('sshd')}") from err

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the server and every connection, as when the machine goes down."""
        sessions = self._sessions()
        self._daemons.stop("sshd", kill=True)
        for pid in sessions:
            end(pid, kill=True)

    def drop_connections(self) -> None:
        """Kill every connection; the server stays."""
        for pid in self._sessions():
            end(pid, kill=True)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Have no server while entered."""
        self.kill()
        try:
            yield
        finally:
            self.restart()

    @contextmanager
    def asking_for(self, code: str) -> Iterator[None]:
        """Want a code besides the key while entered, as where people have a second factor."""
        # It asks PAM by the rules for a program of its own name.
        program = self.etc / self.directory.name
        rules = Path("/etc/pam.d") / program.name
        check = self.etc / "check"
        check.write_text(f"#!/bin/sh\n[ \"$(tr -d '\\0')\" = '{code}' ]\n")
        check.chmod(0o755)
        config = (self.etc / "sshd_config").read_text()
        self.kill()
        try:
            rules.write_text(
                f"auth required pam_exec.so expose_authtok quiet {check}\n"
                "auth required pam_permit.so\n"
                "account required pam_permit.so\n"
                "session required pam_permit.so\n"
            )
            program.symlink_to(_installed())
            self._program = program
            self._configure(_SECOND_FACTOR)
            self.restart()
            yield
        finally:
            self.kill()
            self._program = None
            program.unlink(missing_ok=True)
            rules.unlink(missing_ok=True)
            (self.etc / "sshd_config").write_text(config)
            self.restart()

    def connections(self) -> int:
        """Return how many connections were let in so far."""
        return len(_CONNECTION.findall(self._said()))

    def commands(self) -> int:
        """Return how many commands were run so far."""
        return len(_COMMAND.findall(self._said()))

    def change_host_key(self) -> None:
        """Be another machine from now on, for all that clients can tell."""
        self.kill()
        for name in ("host_ed25519", "host_ed25519.pub"):
            (self.etc / name).unlink()
        _make_key(self.etc / "host_ed25519")
        self.restart()

    def know(self, port: int) -> None:
        """Have clients know this server by another port, such as that of a proxy."""
        key = " ".join((self.etc / "host_ed25519.pub").read_text().split()[:2])
        with self.known_hosts.open("a") as file:
            file.write(f"[{self.host}]:{port} {key}\n")

    def _said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _sessions(self) -> list[int]:
        server = self._daemons.pid("sshd")
        below = children(server) if server is not None else []
        own = self._program.name[:15] if self._program else "sshd"  # Linux cuts names
        return [pid for pid in below if _name(pid) == own]

    def _make_keys(self) -> None:
        for path in (self.identity, self.etc / "host_ed25519"):
            if not path.exists():
                _make_key(path)
        shutil.copy(self.identity.with_suffix(".pub"), self.etc / "authorized_keys")
        self.known_hosts.write_text("")
        self.know(self.port)

    def _configure(self, first: str = "") -> None:
        # Of a setting that is there twice the first counts.
        (self.etc / "sshd_config").write_text(
            f"{first}ListenAddress {self.host}\n"
            f"Port {self.port}\n"
            f"HostKey {self.etc}/host_ed25519\n"
            f"AuthorizedKeysFile {self.etc}/authorized_keys\n"
            "PidFile none\n"
            "PermitRootLogin prohibit-password\n"
            "PasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\n"
            "UsePAM no\n"
            "StrictModes no\n"
            "MaxStartups 200\n"
            "LogLevel VERBOSE\n"
            "PrintMotd no\n"
            "Subsystem sftp internal-sftp\n" + _set_env(self._variables) + self._settings
        )
        self.ssh_config.write_text(
            f"Host {ALIAS}\n"
            f"  HostName {self.host}\n"
            f"  Port {self.port}\n"
            f"  User {self.user}\n"
            f"  IdentityFile {self.identity}\n"
            "  IdentitiesOnly yes\n"
            "Host *\n"
            f"  UserKnownHostsFile {self.known_hosts}\n"
            "  GlobalKnownHostsFile none\n"
        )
        for program in ("ssh", "scp", "sftp"):
            shim = self.bin / program
            shim.write_text(f'#!/bin/sh\nexec /usr/bin/{program} -F "{self.ssh_config}" "$@"\n')
            shim.chmod(0o755)


@contextmanager
def temporary_sshd(settings: str = "") -> Iterator[Sshd]:
    """Have a server while entered, and nothing of it afterwards."""
    with owned_directory("nemo-run-sshd-", lambda directory: Sshd(directory).stop()) as directory:
        server = Sshd(directory, settings=settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _installed() -> Path:
    program = shutil.which("sshd", path=search_path(os.environ))
    if program is None:
        raise FileNotFoundError("sshd is not installed: scripts/system-packages.sh does it")
    return Path(program)


def _set_env(variables: Mapping[str, str]) -> str:
    # One line for all: sshd reads the first and no other.
    words = [f'"{name}={value}"' for name, value in variables.items()]
    return f"SetEnv {' '.join(words)}\n" if words else ""


def _make_key(path: Path) -> None:
    quietly = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test"]
    subprocess.run([*quietly, "-f", str(path)], check=True, stdin=subprocess.DEVNULL)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
