"""Open an editor on a devspace."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from nemo_run.exceptions import ConfigError

EDITORS = ("code", "cursor", "jupyter", "none")
VARIABLE = "NEMO_DEVSPACE_EDITOR"
_NAMES = {"code": "vscode", "cursor": "cursor"}


def chosen_editor(given: str | None, environ: Mapping[str, str] | None = None) -> str:
    """Return which editor to open: as given, as the environment says, or as the user answers.

    Without a terminal there is no question, and no editor.

    Raises:
        ConfigError: there is no such editor.
    """
    said = given or (os.environ if environ is None else environ).get(VARIABLE) or _asked()
    if said not in EDITORS:
        raise ConfigError(f"{said!r} is not an editor that can be opened: {', '.join(EDITORS)}.")
    return said


def _asked() -> str:
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return "none"
    choices = [name for name in EDITORS if name != "jupyter"]
    answer = input(f"Open an editor ({', '.join(choices)})? [none] ").strip()
    return answer or "none"


def launch_editor(tunnel: str, path: str, editor: str | None = None) -> None:
    """Open an editor on ``path`` of host ``tunnel.<tunnel>``.

    Args:
        editor: ``code``, ``cursor`` or ``none``; by default what ``NEMO_DEVSPACE_EDITOR`` says,
            or what the user answers at a terminal.

    Raises:
        OSError: the editor is not installed.
    """
    name = chosen_editor(editor)
    if name in ("none", "jupyter"):
        return
    argv = editor_argv(name, tunnel, path)
    subprocess.run(argv, env={**os.environ, "NEMO_EDITOR": _NAMES[name]}, check=True)


def editor_argv(name: str, tunnel: str, path: str) -> list[str]:
    """Return the command that opens an editor.

    Raises:
        OSError: it is not installed.
    """
    program = shutil.which(name)
    if program is None:
        raise OSError(
            f"There is no program {name!r} on the PATH. Install its shell command, or use "
            "--editor none and connect with ssh."
        )
    if name == "code" and "microsoft" in platform.release().lower():
        # The shell script of the subsystem for Linux opens files of Linux, not remote ones.
        windows = Path(program).resolve().parent.parent / "Code.exe"
        program = str(windows) if windows.exists() else program
    new = ["--new-window"] if name == "code" else []
    return [program, *new, "--remote", f"ssh-remote+tunnel.{tunnel}", path]
