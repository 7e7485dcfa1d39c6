"""What this machine knows of devspaces: one private directory for each, below the home."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_run._files import locked, make_private_directory, read_whole, write_whole
from nemo_run._home import get_nemorun_home
from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel
from nemo_run.exceptions import ConfigError, RecordError

LOCK_S = 60.0
_FILE = "space.json"
# It is part of a host's alias, where ssh and editors take few other characters.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def root() -> Path:
    """Return the directory of all devspaces."""
    return Path(get_nemorun_home()) / "devspaces"


def checked_name(name: str) -> str:
    """Return ``name`` if it can be part of an alias.

    Raises:
        ConfigError: it cannot.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"The name of a devspace is part of the host that ssh is given; {name!r} cannot be. "
            "Use letters, digits, dots, dashes and underscores."
        )
    return name


@dataclass(frozen=True, kw_only=True)
class Record:
    """A devspace, as this machine knows it.

    Attributes:
        experiment, job: what runs it; empty where another machine launched it.
        label: what its server calls itself, which tells it from earlier ones of the same name.
        directory: where its server leaves notes, as the end of the tunnel sees it.
        workspace: where sessions begin, as the job sees it.
        login: the fields of the `SSHTunnel` to its cluster; empty for this machine.
        executor: the name of the executor's class.
    """

    name: str
    label: str
    directory: str
    workspace: str
    executor: str
    experiment: str = ""
    job: str = ""
    login: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return root() / self.name

    @property
    def alias(self) -> str:
        """What ssh and editors call it: a name that stays the same, as in 0.12."""
        return f"tunnel.{self.name}.{self.name}"

    @property
    def tunnel(self) -> SSHTunnel | LocalTunnel:
        """The way to the directory."""
        if not self.login:
            return LocalTunnel(job_dir="")
        return SSHTunnel(job_dir="", **self.login)

    @property
    def identity(self) -> Path:
        """The private key that its server lets in."""
        return self.home / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.home / "known_hosts"

    def save(self) -> None:
        make_private_directory(self.home)
        write_whole(self.home / _FILE, json.dumps(dataclasses.asdict(self), indent=1).encode())

    def forget(self) -> None:
        """Remove the record, unless a later devspace has its name by now; the key stays."""
        if find(self.name) == self:
            (self.home / _FILE).unlink(missing_ok=True)


def login_of(tunnel: Any) -> dict[str, Any]:
    """Return what a record keeps of a tunnel."""
    if not isinstance(tunnel, SSHTunnel):
        return {}
    names = ("host", "user", "port", "identity", "pre_command")
    return {name: value for name in names if (value := getattr(tunnel, name)) is not None}


def find(name: str) -> Record | None:
    """Return the devspace of that name, None if there is none.

    Raises:
        RecordError: what is recorded is damaged.
    """
    path = root() / checked_name(name) / _FILE
    data = read_whole(path)
    if data is None:
        return None
    try:
        return Record(**json.loads(data))
    except (TypeError, ValueError) as err:
        raise RecordError(
            f"What is recorded of devspace {name!r} cannot be read: {err}. "
            f"Remove {str(path)!r}, and connect to the devspace by its host and path.",
            path=path,
        ) from err


def get(name: str) -> Record:
    """Return the devspace of that name.

    Raises:
        ConfigError: there is none.
    """
    record = find(name)
    if record is None:
        names = ", ".join(each.name for each in known()) or "none"
        raise ConfigError(f"There is no devspace {name!r} on this machine. Known are: {names}.")
    return record


def known() -> list[Record]:
    """Return all devspaces, by name."""
    names = sorted(path.parent.name for path in root().glob(f"*/{_FILE}"))
    found = (find(name) for name in names if _NAME.fullmatch(name))
    return [record for record in found if record is not None]


def lock(name: str) -> Any:
    """Hold, while entered, the right to launch and end devspaces of that name."""
    home = make_private_directory(root()) and make_private_directory(root() / checked_name(name))
    return locked(home / "lock", LOCK_S)


def public_key(name: str) -> str:
    """Return the public half of this machine's key for a devspace, after making it if needed."""
    identity = make_private_directory(root() / checked_name(name)) / "id_ed25519"
    if not identity.exists():
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"devspace {name}"]
        try:
            subprocess.run([*argv, "-f", str(identity)], check=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise ConfigError(
                "A devspace is reached by key, and there is no ssh-keygen on this machine. Install "
                "OpenSSH's client, for example: apt-get install openssh-client"
            ) from None
    return identity.with_suffix(".pub").read_text().strip()
