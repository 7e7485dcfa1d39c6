"""An ssh server of one user's own: no root, no file outside of its directories, keys only.

Runs on nodes and in images that have Python 3.8 and OpenSSH, perhaps no nemo_run: its text travels
as `server.program` makes it, so that it imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from nemo_run.core.tunnel._node_files import exports, reverse_options, session_script, sshd_config

# Read by clients of 0.12, and by ours.
METADATA = "metadata.json"
SERVER = "server.json"
KEYS = "authorized_keys"
SPACE = "devspace.zlib"
MARKER = "NEMO_RUN_DEVSPACE_READY"

MOST_CONNECTIONS = 64
TICK_S = 0.5
FIRST_S = 60.0
REVERSE_PAUSE_S = 30.0
REVERSE_TRIES = 3

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_ALLOCATED = re.compile(r"Allocated port (\d+)")


class Unusable(Exception):
    """This machine cannot run the server; says why, and what to do."""


class Ended(BaseException):
    """A signal asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Server:
    """Accepts connections, and has an sshd of its own serve each.

    Listening here, not in sshd, lets the system choose the port without a race, and tells how many
    users are connected.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        """Prepare a server.

        Args:
            settings: ``directory`` for notes about it, ``name`` of the workspace; and where they
                differ from nothing: ``workspace`` where sessions begin, ``keys`` that are let in,
                ``users_keys`` to let in those of ``~/.ssh/authorized_keys``, ``listen`` on
                ``loopback``, ``own`` or ``cluster`` addresses, ``idle_s`` until the end without
                connections, ``label`` that tells it from others, ``hostname`` to tell, ``reverse``
                to be reached through a login to that host (True: to the one that submitted),
                ``space`` text for `SPACE`, ``hello`` lines to print, ``pythonpath`` for sessions,
                ``verbose``.
        """
        self.settings = settings
        self.directory = Path(settings["directory"])
        self.private = Path(tempfile.mkdtemp(prefix="nemo-run-sshd-"))
        self.connected, self.used = 0, False
        self.quiet_since = time.monotonic()
        self.children: list[subprocess.Popen[bytes]] = []
        self.note: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._ending, self._reversed = threading.Event(), threading.Event()
        self._back: subprocess.Popen[bytes] | None = None
        self._back_failed = ""

    def run(self) -> str:
        """Serve until no connection was there for ``idle_s``, and return so in words.

        Raises:
            Ended: a signal asked for the end.
            Unusable: this machine cannot run the server.
        """
        try:
            self._prepare()
            address = listen_address(str(self.settings.get("listen") or "loopback"), os.environ)
            with socket.create_server((address, 0), family=_family(address), backlog=64) as way:
                self._announce(address, way.getsockname()[1])
                return self._accept(way)
        finally:
            self._end()

    def _prepare(self) -> None:
        self.user = _user()
        sshd = _program("sshd")
        key = self.private / "host_key"
        argv = [_program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
        self.host_key = key.with_suffix(".pub").read_text().strip()
        if os.getuid() == 0:  # where sshd locks up connections that are not let in yet
            Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        self._write(self.private / KEYS, "\n".join([*self.settings.get("keys", ()), ""]))
        path = self.settings.get("pythonpath")
        self._write(self.private / "environment", exports(os.environ, self.private, path))
        workspace = str(self.settings.get("workspace") or "")
        self._write(self.private / "session", session_script(self.private, workspace))
        files = [str(self.private / KEYS), str(self.directory / KEYS)]
        if self.settings.get("users_keys"):
            files.append(".ssh/authorized_keys")
        verbose = bool(self.settings.get("verbose"))
        text = sshd_config(key, self.user, files, self.private / "session", verbose=verbose)
        self._write(self.private / "sshd_config", text)
        self.argv = [sshd, "-i", "-e", "-f", str(self.private / "sshd_config")]
        check = subprocess.run([*self.argv, "-t"], stderr=subprocess.PIPE, check=False)
        if check.returncode:
            raise Unusable("sshd refuses its settings: " + check.stderr.decode(errors="replace"))

    def _announce(self, address: str, port: int) -> None:
        name = self.settings["name"]
        node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        host = self.settings.get("hostname") or node
        if self.settings.get("space"):
            self._write(self.directory / SPACE, self.settings["space"])
        metadata = {"user": self.user, "hostname": host, "port": port, "workspace_name": name}
        self.note = {
            "label": self.settings.get("label") or "",
            "user": self.user,
            "node": node,
            "address": address,
            "port": port,
            "reverse": False,
            "host_key": self.host_key,
            "private": str(self.private),
            "workspace": str(self.settings.get("workspace") or ""),
        }
        if self.settings.get("reverse"):
            back = threading.Thread(target=self._keep_way_back, args=(port,), daemon=True)
            back.start()
            while not self._reversed.wait(TICK_S):
                if self._back_failed:
                    raise Unusable(self._back_failed)
        # The one that 0.12 reads comes last: both are there when a client finds it.
        self._write(self.directory / SERVER, json.dumps(self.note))
        self._write(self.directory / METADATA, json.dumps(metadata))
        for line in self.settings.get("hello", ()):
            print(line)
        print(MARKER, json.dumps({"name": name, "node": node, "port": port}))
        sys.stdout.flush()

    def _accept(self, way: socket.socket) -> str:
        idle_s = float(self.settings.get("idle_s") or 0)
        with selectors.DefaultSelector() as selector:
            selector.register(way, selectors.EVENT_READ)
            while True:
                if selector.select(TICK_S):
                    connection, _ = way.accept()
                    with connection:
                        self._serve(connection)
                self.children = [child for child in self.children if child.poll() is None]
                with self._lock:
                    quiet_s = 0.0 if self.connected else time.monotonic() - self.quiet_since
                if is_idle(idle_s, quiet_s, used=self.used):
                    return f"no connection for {quiet_s:.0f} s"

    def _serve(self, connection: socket.socket) -> None:
        if len(self.children) >= MOST_CONNECTIONS:
            return
        end = connection.fileno()
        child = subprocess.Popen(self.argv, stdin=end, stdout=end, stderr=subprocess.PIPE)
        self.children.append(child)
        threading.Thread(target=self._watch, args=(child,), daemon=True).start()

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        """Pass on what an sshd says, and count its connection once a user was let in."""
        let_in = False
        assert child.stderr is not None
        for line in child.stderr:
            sys.stderr.buffer.write(line)
            sys.stderr.flush()
            if not let_in and line.startswith(b"Accepted publickey"):
                let_in = self.used = True
                with self._lock:
                    self.connected += 1
        child.wait()
        if let_in:
            with self._lock:
                self.connected -= 1
                self.quiet_since = time.monotonic()

    def _keep_way_back(self, port: int) -> None:
        """Keep a port of another host leading here, for networks that allow no other direction."""
        given = self.settings["reverse"]
        host = given if isinstance(given, str) else os.environ.get("SLURM_SUBMIT_HOST", "")
        argv = [_program("ssh"), *reverse_options(port), *shlex.split(host)]
        failures, pause = 0, 1.0
        while not self._ending.is_set():
            said = self._hold_way_back(argv)
            failures = 0 if self._reversed.is_set() else failures + 1
            if failures == REVERSE_TRIES:
                self._back_failed = (
                    f"No way back through {host!r}: {said or 'ssh ended'}. A job must be able to "
                    "log in there by key, without a question."
                )
                return
            self._ending.wait(pause)
            pause = min(2 * pause, REVERSE_PAUSE_S)

    def _hold_way_back(self, argv: list[str]) -> str:
        """Run ssh to its end, note the port that it was given, and return its last words."""
        said = ""
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as self._back:
            assert self._back.stderr is not None
            for line in self._back.stderr:
                said = line.decode(errors="replace").strip()
                print("reverse:", said, file=sys.stderr, flush=True)
                found = _ALLOCATED.search(said)
                if found:
                    self.note.update(reverse=True, address="127.0.0.1", port=int(found.group(1)))
                    if self._reversed.is_set():
                        self._write(self.directory / SERVER, json.dumps(self.note))
                    self._reversed.set()
        return said

    def _end(self) -> None:
        self._ending.set()
        for child in [*self.children, *([self._back] if self._back else [])]:
            child.terminate()
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int((self.private / "jupyter.pid").read_text()), signal.SIGTERM)
        shutil.rmtree(str(self.private), ignore_errors=True)
        with contextlib.suppress(OSError, ValueError):
            # A later server of the same name has written a note of its own.
            if json.loads((self.directory / SERVER).read_text()) == self.note:
                shutil.rmtree(str(self.directory), ignore_errors=True)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        staged = path.with_name(f".{path.name}.{os.getpid()}")
        with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        if os.getuid() == 0:
            # Root of a container is not the user outside, to whom the directory belongs.
            owner = path.parent.stat()
            os.chown(staged, owner.st_uid, owner.st_gid)
        staged.replace(path)


def is_idle(idle_s: float, quiet_s: float, *, used: bool) -> bool:
    """Tell whether a server ends for want of connections; the first may take a minute to come."""
    return idle_s > 0 and quiet_s >= (idle_s if used else max(idle_s, FIRST_S))


def listen_address(kind: str, environ: Any) -> str:
    """Return the address to listen on, which is never that of every network.

    Args:
        kind: ``loopback``; ``own``, the address of this machine's name; or ``cluster``, that by
            which the machine is reached that submitted the job: loopback where it is this one.
        environ: what names that machine.
    """
    if kind == "loopback":
        return "127.0.0.1"
    host = environ.get("SLURM_SUBMIT_HOST") if kind == "cluster" else None
    for name in filter(None, [host, socket.gethostname()]):
        with contextlib.suppress(OSError):
            family, _, _, _, target = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(target)  # of UDP: nothing is sent
                mine = str(probe.getsockname()[0])
            if name == host and mine == target[0]:
                return "127.0.0.1"
            return mine
    raise Unusable("This machine does not know an address of its own: its name has none.")


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise Unusable(
            f"User {os.getuid()} has no entry in /etc/passwd here, without which sshd lets no user "
            "in. Run as a user that the image knows."
        ) from None


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_SBIN]))
    if found is None:
        raise Unusable(
            f"There is no {name} here. Install OpenSSH's server and client, for example: "
            "apt-get install openssh-server openssh-client"
        )
    return found


def main(settings: dict[str, Any]) -> int:
    """Run a server until its end, and return how to exit.

    Raises:
        Unusable: this machine cannot run it.
    """

    def leave(number: int, frame: object) -> None:
        raise Ended(number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        print("The devspace ends:", Server(settings).run(), flush=True)
    except Ended as err:
        print(f"The devspace ends: asked to by signal {err.number}", flush=True)
        return 0 if err.number == signal.SIGINT else 128 + err.number
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0
