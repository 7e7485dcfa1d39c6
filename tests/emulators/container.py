"""Become a container: a root directory of its own, then the program.

Run as ``python -I -S container.py READY_FD`` with a description as one line on stdin (see
`processes.py`), so that no environment shows in the list of processes. Writes its mount namespace,
or what went wrong, to READY_FD; starts the program when stdin is closed, and READY_FD with that.
"""

# Of the modules that it could do without, this loads none: it runs before every job.
# ruff: noqa: PTH101, PTH102, PTH103, PTH110, PTH115, PTH120, PTH123, PTH211

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

ROOT = "/mnt"  # exists everywhere, and nothing in it is needed
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000

ADVICE = (
    "This kernel lets only root mount in namespaces of users; on Ubuntu"
    " `sysctl kernel.apparmor_restrict_unprivileged_userns=0` changes that"
)

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, *, kind: str = "none", flags: int = 0) -> None:
    done = libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None)
    check(done, f"mount {source} on {target}")


def own_namespace() -> None:
    """Leave the machine's mounts; someone else than root first becomes root of a namespace."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        check(libc.unshare(CLONE_NEWNS), "unshare")
    else:
        check(libc.unshare(CLONE_NEWNS | CLONE_NEWUSER), "unshare")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {uid} 1"),
            ("gid_map", f"0 {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    try:
        mount("none", "/", flags=MS_REC | MS_PRIVATE)
    except PermissionError as err:
        raise PermissionError(err.errno, f"{err.strerror}. {ADVICE}") from None


def private_root() -> None:
    """Make a root directory of which only the entries are shared with the machine."""
    mount("tmpfs", ROOT, kind="tmpfs")
    os.chmod(ROOT, 0o755)
    for entry in os.scandir("/"):
        target = ROOT + entry.path
        # No image has what jobs outside of a container may have put there, as of SkyPilot's suites.
        if entry.path in (ROOT, "/nemo_run"):
            continue
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            os.mkdir(target)
            mount(entry.path, target, flags=MS_BIND | MS_REC)


def furnish(spec: dict[str, Any]) -> None:
    for path in spec["hidden"]:
        mount("tmpfs", ROOT + path, kind="tmpfs")
    for path, source in spec["mounts"].items():
        os.makedirs(ROOT + path, exist_ok=True)
        mount(source, ROOT + path, flags=MS_BIND | MS_REC)
    for path, source in spec["files"].items():
        if not os.path.exists(ROOT + path):
            own_directory(os.path.dirname(path))
            open(ROOT + path, "w").close()
        mount(source, ROOT + path, flags=MS_BIND)


def own_directory(path: str) -> None:
    """Make a directory of the machine, such as ``/dev``, one that files can be put into."""
    mount("tmpfs", ROOT + path, kind="tmpfs")
    # Where everyone may make files, only its owner may open a device as one that might be made.
    os.chmod(ROOT + path, 0o755)
    for entry in os.scandir(path):
        target = ROOT + entry.path
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            os.mkdir(target)
            mount(entry.path, target, flags=MS_BIND | MS_REC)
        else:
            open(target, "w").close()
            mount(entry.path, target, flags=MS_BIND)


def main() -> None:
    ready = int(sys.argv[1])
    spec = json.loads(sys.stdin.readline())
    os.set_inheritable(ready, False)
    try:
        own_namespace()
        private_root()
        furnish(spec)
        os.makedirs(ROOT + spec["cwd"], exist_ok=True)
        os.chroot(ROOT)
        os.chdir(spec["cwd"])
        os.write(ready, os.readlink("/proc/self/ns/mnt").encode() + b"\n")
        sys.stdin.read()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except OSError as err:
        os.write(ready, f"error {spec['argv'][0]}: {err}\n".encode())
        os._exit(128)


main()
