"""Directories kept alike by rsync, over the shared connection."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nemo_run._shell import render
from nemo_run.exceptions import BackendError, ConfigError

if TYPE_CHECKING:
    from nemo_run._transport.ssh.sessions import SSHSession
    from nemo_run.core.tunnel.client import SSHTunnel


class RsyncError(BackendError, RuntimeError):
    """rsync failed; what it said is in ``detail``."""


def rsync(
    c: SSHTunnel | SSHSession | Any,
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
        c: the tunnel, or its session; its connection, and with it its port and keys, is used. Of
            a connection that a program has made itself, such as Fabric's, ``host``, ``user``,
            ``port`` and ``connect_kwargs["key_filename"]`` are used.
        source: a path on this machine.
        target: a directory there.
        exclude: patterns to leave out.
        delete: remove what is there and not here.
        strict_host_keys: whether a connection that a program has made itself may lead to a host
            whose key is unknown; ours has checked it.
        rsync_opts: more options for rsync, as a shell would split them.
        ssh_opts: the same for ssh.
        hide_output: keep what rsync says from the terminal.

    Raises:
        RsyncError: rsync failed. It is a `RuntimeError`, too.
        BackendUnavailableError: the host cannot be reached.
    """
    program = _program()
    c.run(render(["mkdir", "-p", "--", target]), hide=True)
    shell = " ".join(filter(None, [_remote_shell(c, strict_host_keys), ssh_opts]))
    argv = [program, *_options(exclude, delete), *shlex.split(rsync_opts), "-e", shell, "--"]
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
            f"rsync could not copy {source!r} to {c.host}:{target} (exit code {done.returncode}): "
            f"{said.splitlines()[0] if said else render(argv)}",
            backend="ssh",
            operation="transfer",
            detail=said,
        )


def _program() -> str:
    program = shutil.which("rsync")
    if program is None:
        raise ConfigError(
            "There is no rsync on this machine's PATH. Install it, for example: "
            "apt-get install rsync"
        )
    return program


def _options(exclude: str | Iterable[str], delete: bool) -> list[str]:
    patterns = [exclude] if isinstance(exclude, str) else list(exclude)
    left_out = [f"--exclude={pattern}" for pattern in patterns]
    # "s": the shell there is not to take names apart.
    return [*(["--delete"] if delete else []), *left_out, "-pthrvzs"]


def _remote_shell(c: Any, strict_host_keys: bool) -> str:
    if hasattr(c, "remote_shell"):
        return str(c.remote_shell())
    argv = ["ssh"]
    if getattr(c, "user", None):
        argv += ["-l", str(c.user)]
    if getattr(c, "port", None):
        argv += ["-p", str(c.port)]
    keys = getattr(c, "connect_kwargs", {}).get("key_filename") or []
    for key in [keys] if isinstance(keys, str) else keys:
        argv += ["-i", str(key)]
    if not strict_host_keys:
        argv += ["-o", "StrictHostKeyChecking=no"]
    return render(argv)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
