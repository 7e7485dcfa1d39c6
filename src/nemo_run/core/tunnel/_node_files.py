"""What the ssh server of a node reads: its settings, and the script that begins each session.

Travels with `_node_server`: imports the standard library alone.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

LOGIN_GRACE_S = 30
ALIVE_S = 15
ALIVE_COUNT = 4

_SFTP = ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec", "/usr/lib")
# Set by sshd for each session, or meaningless in another one.
_NOT_INHERITED = {"HOME", "LOGNAME", "MAIL", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM", "USER", "_"}


def sshd_config(
    key: Path, user: str, keys: list[str], session: Path, *, verbose: bool = False
) -> str:
    """Return the settings of an sshd that serves one connection."""
    sftp = [path for path in (Path(place) / "sftp-server" for place in _SFTP) if path.exists()]
    lines = [
        f"HostKey {_quoted(key)}",
        "AuthorizedKeysFile {}".format(" ".join(map(_quoted, keys))),
        "AuthenticationMethods publickey",
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        f"AllowUsers {user}",
        "UsePAM no",
        # Shared file systems have directories that a group may write to.
        "StrictModes no",
        "PidFile none",
        f"LoginGraceTime {LOGIN_GRACE_S}",
        # A client whose network is gone does not count as connected for ever.
        f"ClientAliveInterval {ALIVE_S}",
        f"ClientAliveCountMax {ALIVE_COUNT}",
        "MaxSessions 64",
        "X11Forwarding no",
        "PrintMotd no",
        "PrintLastLog no",
        "AcceptEnv LANG LC_*",
        "LogLevel {}".format("DEBUG3" if verbose else "INFO"),
        "Subsystem sftp {}".format(sftp[0] if sftp else "internal-sftp"),
        f"ForceCommand /bin/sh {shlex.quote(str(session))}",
    ]
    return "\n".join([*lines, ""])


def session_script(private: Path, workspace: str) -> str:
    """Return the script that begins each session: as the job has it, in the workspace."""
    place = shlex.quote(workspace)
    return "\n".join(
        [
            ". {}".format(shlex.quote(str(private / "environment"))),
            f"cd {place} 2>/dev/null || cd" if workspace else "cd",
            'if [ -n "$SSH_ORIGINAL_COMMAND" ]; then',
            '  exec "${SHELL:-/bin/sh}" -c "$SSH_ORIGINAL_COMMAND"',
            "fi",
            'exec "${SHELL:-/bin/sh}"',
            "",
        ]
    )


def exports(environ: Any, private: Path, path: str | None) -> str:
    """Return the variables of the job for its sessions; the file is its owner's alone."""
    given = {**environ, "NEMO_DEVSPACE_PRIVATE": str(private)}
    if path:
        given["PYTHONPATH"] = os.pathsep.join(filter(None, [path, environ.get("PYTHONPATH")]))
    names = sorted(
        name
        for name in given
        if name.isidentifier() and name not in _NOT_INHERITED and not name.startswith("SSH_")
    )
    return "".join(f"export {name}={shlex.quote(given[name])}\n" for name in names)


def _quoted(path: Any) -> str:
    return f'"{path}"'


def reverse_options(port: int) -> list[str]:
    """Return the options of an ssh that has a port of another host lead to one of this."""
    options = {
        "BatchMode": "yes",
        "ExitOnForwardFailure": "yes",
        "ServerAliveInterval": str(ALIVE_S),
        # All that this host gets to see is a port of ours, which knows its clients by key.
        "StrictHostKeyChecking": "accept-new",
        "ControlMaster": "no",
        "ControlPath": "none",
    }
    argv = ["-N", "-T", "-R", f"127.0.0.1:0:127.0.0.1:{port}"]
    for name, value in options.items():
        argv += ["-o", f"{name}={value}"]
    return argv
