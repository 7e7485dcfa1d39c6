"""A terminal in which a launching script runs, as people have one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

from tests.integration.launching import wait_for

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _own_terminal() -> None:
    """Have Ctrl-C and hanging up reach the process, also where the tests run under nohup."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Terminal:
    """Runs a script; what it prints is read whenever somebody looks."""

    def __init__(self, path: Path, *args: str, rows: int = 30, columns: int = 100) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.set_blocking(self._fd, False)
        self.process = subprocess.Popen(
            [sys.executable, str(path), *args],
            cwd=path.parent,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""},
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)
        self._read = b""

    def text(self) -> str:
        """Return all that was printed so far, without colours and movements of the cursor."""
        try:
            while data := os.read(self._fd, 65536):
                self._read += data
        except (BlockingIOError, OSError):
            pass  # nothing more for now, or all processes have gone
        return _CONTROL.sub("", self._read.decode("utf-8", "replace"))

    def wait_for(self, condition: Callable[[str], object], what: str) -> None:
        """Wait for something to be printed."""
        try:
            wait_for(lambda: condition(self.text()), what)
        except TimeoutError as err:
            raise TimeoutError(f"{err}; there is only:\n{self.text()}") from None

    def wait(self) -> int:
        """Wait for the end of the script and return its exit code."""

        def ended() -> bool:
            self.text()  # nobody can print to a terminal that is full
            return self.process.poll() is not None

        wait_for(ended, "the end of the script", timeout_s=60)
        return self.process.returncode

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def press_ctrl_c(self) -> None:
        os.write(self._fd, b"\x03")

    def close(self) -> None:
        """Close the window."""
        os.close(self._fd)
