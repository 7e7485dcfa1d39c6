"""Entries of our own in the user's ssh config."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from nemo_run._files import write_whole

# What begins a part that holds for every host.
_FOR_ALL = re.compile(
    r"^[ \t]*(?:Host[ \t=]+(?:\S+[ \t]+)*\*(?=\s|$)|Match[ \t]+all\b)", re.MULTILINE | re.IGNORECASE
)


def _block(name: str) -> re.Pattern[str]:
    """Find an entry: from its Host line to the next Host or Match, or to an empty line."""
    return re.compile(
        rf"^Host tunnel\.{re.escape(name)}[ \t]*\n(?:(?!Host\b|Match\b)[^\n]+(?:\n|\Z))*\n?",
        re.MULTILINE | re.IGNORECASE,
    )


class SSHConfigFile:
    """The user's ssh config, in which ``Host tunnel.<name>`` can be put and removed.

    By default ``~/.ssh/config``; on Windows' subsystem for Linux that of the Windows user, since
    editors there read it.
    """

    def __init__(self, config_path: str | None = None) -> None:
        self.config_path = config_path or _default_path()

    def add_entry(self, user: str, hostname: str, port: int, name: str) -> None:
        """Have ``ssh tunnel.<name>`` lead somewhere, instead of where it led before.

        An entry stays where it is. A new one comes last, but before what is for all hosts: of two
        settings ssh takes the first.
        """
        entry = f"Host tunnel.{name}\n    User {user}\n    HostName {hostname}\n    Port {port}\n"
        old = self._read()
        there = _block(name).search(old)
        if there is not None:
            gap = "\n" if there[0].endswith("\n\n") else ""
            self._write(f"{old[: there.start()]}{entry}{gap}{old[there.end() :]}")
            return
        for_all = _FOR_ALL.search(old)
        before = old[: for_all.start()].rstrip() if for_all else old.rstrip()
        after = old[for_all.start() :] if for_all else ""
        self._write("\n".join(filter(None, [f"{before}\n" if before else "", entry, after])))

    def remove_entry(self, name: str) -> None:
        """Take an entry out; fine if there is none."""
        old = self._read()
        new = _block(name).sub("", old)
        if new != old:
            self._write(new)

    def _read(self) -> str:
        path = Path(self.config_path)
        return path.read_text() if path.exists() else ""

    def _write(self, text: str) -> None:
        path = Path(self.config_path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Through a link to the file itself: many keep their dot files elsewhere.
        write_whole(path.resolve(), text.encode())


def _default_path() -> str:
    if "microsoft" in platform.release().lower() and shutil.which("cmd.exe"):
        profile = _windows_profile()
        if profile:
            return str(Path(profile) / ".ssh" / "config")
    return os.path.expanduser("~/.ssh/config")  # noqa: PTH111 - as text, like the argument


def _windows_profile() -> str:
    asked = ["cmd.exe", "/c", "echo %USERPROFILE%"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    path = ["wslpath", done.stdout.strip()]
    return subprocess.run(
        path, capture_output=True, text=True, timeout=30, check=False
    ).stdout.strip()
