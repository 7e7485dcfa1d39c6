"""The other end of a tunnel into a job: an ssh server beside it, and a note of where it is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run._files import write_whole
from nemo_run._shell import render
from nemo_run.exceptions import ConfigError, RecordError

if TYPE_CHECKING:
    from nemo_run.core.tunnel.client import Tunnel

METADATA = "metadata.json"


@dataclass
class TunnelMetadata:
    """Where a server is, and what for."""

    user: str
    hostname: str
    port: int
    workspace_name: str

    def save(self, path: Path) -> None:
        """Write this into the directory ``path``, whole."""
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / METADATA, json.dumps(asdict(self)).encode())

    @staticmethod
    def restore(path: Path, tunnel: Tunnel | None = None) -> TunnelMetadata:
        """Read what `save` wrote into ``path``, here or where ``tunnel`` leads.

        Raises:
            RecordError: there is nothing of the kind.
        """
        file = path / METADATA
        try:
            text = file.read_bytes() if tunnel is None else tunnel.read(str(file))
            return TunnelMetadata(**json.loads(text))
        except (FileNotFoundError, TypeError, ValueError) as err:
            raise RecordError(
                f"No server has said where it is in {str(file)!r}: {err}.", path=file
            ) from err


def server_dir(job_dir: str | Path, name: str) -> Path:
    """Return where the server of that name leaves its note."""
    return Path(job_dir) / ".nemo_run" / ".tunnels" / name


def launch(
    path: Path, workspace_name: str, verbose: bool = False, hostname: str | None = None
) -> None:
    """Run an ssh server on a free port until it is killed, and say in ``path`` where it is.

    It lets in whoever may log in as this user by public key, and nobody by password. Keys of the
    host are made for the occasion. Call it in the main thread: the end of this process is its end.

    Raises:
        ConfigError: there is no sshd on this machine.
    """
    program = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), *_SBIN]))
    if program is None:
        raise ConfigError(
            "A workspace cannot be connected to: there is no sshd on this machine. Install it, "
            "for example: apt-get install openssh-server"
        )
    if os.getuid() == 0:  # where sshd locks up those who have not logged in yet
        Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nemo-run-sshd-") as directory:
        port = _free_port()
        key, config = Path(directory) / "host_key", Path(directory) / "sshd_config"
        make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(make_key, check=True, stdin=subprocess.DEVNULL)
        config.write_text(_sshd_config(key, port))
        note = TunnelMetadata(getuser(), hostname or socket.gethostname(), port, workspace_name)
        argv = [program, "-D", "-e", "-f", str(config), *(["-d"] if verbose else [])]
        with _terminated_as_interrupted(), subprocess.Popen(argv) as server:
            try:
                note.save(path)
                server.wait()
            finally:
                server.terminate()
                (path / METADATA).unlink(missing_ok=True)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Have a polite signal unwind the stack, so that nothing is left behind."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def _sshd_config(key: Path, port: int) -> str:
    return "\n".join(
        [
            f"Port {port}",
            f"HostKey {render([str(key)])}",
            "PidFile none",
            "PubkeyAuthentication yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "UsePAM no",
            "StrictModes no",
            "Subsystem sftp internal-sftp",
            "",
        ]
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
