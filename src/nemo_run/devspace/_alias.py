"""Hosts by which ssh and editors know devspaces: a private file, included by the user's config.

The file is made anew from the records each time, so that nothing in it is ever searched or edited.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from nemo_run._files import locked, make_private_directory, write_whole
from nemo_run._home import get_nemorun_home
from nemo_run._shell import render
from nemo_run.core.tunnel.client import SSHConfigFile
from nemo_run.devspace import _records
from nemo_run.devspace._records import Record


def config_path() -> Path:
    """Return the private file."""
    return _records.root() / "ssh_config"


def refresh() -> None:
    """Have the aliases of all devspaces that are known now, and no others."""
    directory = make_private_directory(_records.root())
    with locked(directory / "lock", _records.LOCK_S):
        write_whole(config_path(), render_config(_records.known()).encode())
    include(Path(SSHConfigFile().config_path), config_path())


def include(config: Path, private: Path) -> None:
    """Have the user's config include the private file, as its first line, once."""
    line = f"Include {_quoted(private)}"
    old = config.read_text() if config.exists() else ""
    if re.search(rf"^{re.escape(line)}$", old, re.MULTILINE):
        return
    make_private_directory(config.parent)
    # First, because what follows a Host line is for that host alone. Through a link to the file
    # itself: many keep their dot files elsewhere.
    target = config.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    write_whole(target, f"{line}\n{old}".encode(), mode=mode)


def render_config(records: Sequence[Record]) -> str:
    """Return the text of the private file."""
    header = "# Written by nemorun devspace for each change; edits are lost.\n"
    return header + "".join(map(_block, records))


def _block(record: Record) -> str:
    environment = {"NEMORUN_HOME": get_nemorun_home()}
    words = ["env", *(f"{name}={value}" for name, value in environment.items())]
    proxy = render([*words, sys.executable, "-m", "nemo_run", "devspace", "proxy", record.name])
    lines = [
        f"HostName {record.name}",
        f"HostKeyAlias {record.alias}",
        f"IdentityFile {_quoted(record.identity)}",
        "IdentitiesOnly yes",
        "PreferredAuthentications publickey",
        f"UserKnownHostsFile {_quoted(record.known_hosts)}",
        "GlobalKnownHostsFile none",
        # The server's key comes over the login to the cluster, so an unknown one is a wrong one.
        "StrictHostKeyChecking yes",
        "ServerAliveInterval 15",
        "ServerAliveCountMax 4",
        "ControlPath none",
        # ssh itself replaces what begins with a percent sign.
        f"ProxyCommand {proxy.replace('%', '%%')}",
    ]
    user = _user(record)
    if user:
        lines.insert(0, f"User {user}")
    return "".join([f"\nHost {record.alias}\n", *(f"    {line}\n" for line in lines)])


def _user(record: Record) -> str:
    note = record.home / "user"
    return note.read_text().strip() if note.exists() else ""


def _quoted(path: Path) -> str:
    return f'"{os.fspath(path)}"'
