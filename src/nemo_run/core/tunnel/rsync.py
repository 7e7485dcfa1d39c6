"""Directories kept alike by rsync, over the shared connection."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nemo_run._shell import render
from nemo_run.exceptions import BackendError, ConfigError

if TYPE_CHECKING:
    from nemo_run.core.tunnel.client import SSHTunnel


class RsyncError(BackendError, RuntimeError):
    """rsync failed; what it said is in ``detail``."""


def rsync(
    c: SSHTunnel,
    source: str,
    target: str,
    exclude: str | Iterable[str] = (),
    delete: bool = False,
    strict_host_keys: bool = True,
    rsync_opts: str = "",
    ssh_opts: str = "",
    hide_output: bool = True,
) -> None:
    """Copy ``source`` below ``target`` at the other end of a tunnel, which is made.

    Only what changed travels. As ever with rsync, a ``source`` that ends in a slash stands for what
    is in it.

    Args:
        c: the tunnel; its connection, and with it its port and keys, is used.
        source: a path on this machine.
        target: a directory there.
        exclude: patterns to leave out.
        delete: remove what is there and not here.
        strict_host_keys: accepted for compatibility: the connection has checked the host key.
        rsync_opts: more options for rsync, as a shell would split them.
        ssh_opts: the same for ssh.
        hide_output: keep what rsync says from the terminal.

    Raises:
        RsyncError: rsync failed. It is a `RuntimeError`, too.
        BackendUnavailableError: the host cannot be reached.
    """
    program = shutil.which("rsync")
    if program is None:
        raise ConfigError(
            "There is no rsync on this machine's PATH. Install it, for example: "
            "apt-get install rsync"
        )
    c.run(["mkdir", "-p", "--", target])
    patterns = [exclude] if isinstance(exclude, str) else list(exclude)
    shell = " ".join(filter(None, [c.remote_shell(), ssh_opts]))
    argv = [program, *(["--delete"] if delete else [])]
    argv += [f"--exclude={pattern}" for pattern in patterns]
    # "s": the shell there is not to take names apart.
    argv += ["-pthrvzs", *shlex.split(rsync_opts), "-e", shell, "--"]
    argv += [source, f"{_bracketed(c.host)}:{target}"]
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if hide_output else None,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip()
        raise RsyncError(
            f"rsync could not copy {source!r} to {c.key}:{target} (exit code {done.returncode}): "
            f"{said.splitlines()[0] if said else render(argv)}",
            backend="ssh",
            operation="transfer",
            detail=said,
        )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
