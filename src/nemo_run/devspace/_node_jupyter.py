"""Start Jupyter on the node of a devspace, or find the one that runs; print how to reach it.

Its text is run by a session of the devspace: it imports the standard library alone. Jupyter listens
on a socket in the private directory of the devspace, which its user alone can enter, and wants a
token, which is in a file there and in Jupyter's environment, never in arguments.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

START_S = 120.0
KINDS = {"lab": "jupyterlab", "notebook": "notebook", "server": "jupyter_server"}


def main() -> None:
    private = Path(os.environ["NEMO_DEVSPACE_PRIVATE"])
    way, note = private / "jupyter.sock", private / "jupyter.json"
    if not _answers(way) or not note.exists():
        kind, argv = _command()
        token = secrets.token_hex(24)
        with os.fdopen(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"socket": str(way), "token": token, "kind": kind}, file)
        _start(argv, way, token, private)
    print(note.read_text())


def _command() -> tuple[str, list[str]]:
    """Return which Jupyter there is, and how it is started."""
    for kind, module in KINDS.items():
        program = shutil.which(f"jupyter-{kind}")
        if program is not None:
            return kind, [program]
        if importlib.util.find_spec(module) is not None:
            return kind, [sys.executable, "-m", module]
    sys.exit("There is no Jupyter on the node. Install it there: pip install jupyterlab")


def _start(argv: list[str], way: Path, token: str, private: Path) -> None:
    options = {
        "sock": way,
        "sock_mode": "0600",
        "open_browser": "False",
        "root_dir": Path.cwd(),
        "allow_root": "True",
        # It is reached by the name of a user's machine, through a socket that only the user has.
        "allow_remote_access": "True",
    }
    words = [f"--ServerApp.{name}={value}" for name, value in options.items()]
    way.unlink(missing_ok=True)
    log = private / "jupyter.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [*argv, *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env={**os.environ, "JUPYTER_TOKEN": token},
        )
    (private / "jupyter.pid").write_text(str(server.pid))
    deadline = time.monotonic() + START_S
    while not _answers(way):
        if server.poll() is not None or time.monotonic() > deadline:
            last = log.read_text(errors="replace").strip().splitlines()[-5:]
            sys.exit("Jupyter did not start: " + " / ".join(last))
        time.sleep(0.1)


def _answers(way: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(way))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    main()
