"""The other end of a tunnel into a job: an ssh server beside it, and a note of where it is."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._files import write_whole
from nemo_run.core.tunnel import _node_files, _node_server
from nemo_run.core.tunnel._node_server import METADATA
from nemo_run.exceptions import ConfigError, RecordError

if TYPE_CHECKING:
    from nemo_run.core.tunnel.client import Tunnel


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
        except (FileNotFoundError, TypeError, ValueError, RecursionError) as err:
            raise RecordError(
                f"{str(file)!r}, where a server writes its address, cannot be read: {err}.",
                path=file,
            ) from err


def server_dir(job_dir: str | Path, name: str) -> Path:
    """Return where the server of that name leaves its note."""
    return Path(job_dir) / ".nemo_run" / ".tunnels" / name


def launch(
    path: Path, workspace_name: str, verbose: bool = False, hostname: str | None = None
) -> None:
    """Run an ssh server on a free port until it is killed, and say in ``path`` where it is.

    It lets in users who may log in as this user by public key, none by password. All its files are
    its own, and gone at its end, as is ``path``. Call it in the main thread: the end of this
    process is its end.

    Raises:
        ConfigError: this machine cannot run it, for example for want of an sshd.
        SystemExit: a signal other than SIGINT asked for the end.
    """
    settings = {
        "directory": str(path),
        "name": workspace_name,
        "verbose": verbose,
        "hostname": hostname,
        "users_keys": True,
        "listen": "cluster",
    }
    serve(settings)


def serve(settings: dict[str, Any]) -> None:
    """Run a server with ``settings`` of `_node_server.Server`, in this process; see `launch`."""
    try:
        code = _node_server.main(settings)
    except _node_server.Unusable as err:
        raise ConfigError(f"No ssh server can be started here. {err}") from err
    if code:
        raise SystemExit(code)


_OURS = re.compile(r"^from (?:__future__|nemo_run)\b.*\n", re.MULTILINE)


def program(settings: dict[str, Any]) -> str:
    """Return the text of a program that needs Python alone, and runs a server with settings."""
    parts = [_OURS.sub("", inspect.getsource(part)) for part in (_node_files, _node_server)]
    call = f"""
try:
    sys.exit(main(json.loads({json.dumps(settings)!r})))
except Unusable as err:
    sys.exit(f"The devspace cannot start: {{err}}")
"""
    return "\n\n".join(["from __future__ import annotations", *parts, call])
