"""A Python for the nodes of the test bed that has imported already what SkyPilot imports.

SkyPilot asks a node by starting Python there, a dozen times for each job, and each of these takes
two seconds of a processor to import the same modules. ``warm_python.py serve SOCKET`` has them
imported and answers each who asks with a fork of itself. ``warm_python.py run SOCKET PYTHON NAME
...`` stands for ``PYTHON ...`` that calls itself ``NAME``: it hands over its arguments, directory,
environment and open files, passes signals on, and ends as that process ends. What is not a short
question is run by PYTHON itself. What runs is SkyPilot's own code either way.

SkyPilot's modules look at the environment while they are imported. So the server imports what
they need of others only, and has a process more for each home directory, which imports SkyPilot.
"""

# pathlib would take longer to import than all the rest.
# ruff: noqa: PTH100, PTH104, PTH109, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

# They run the user's processes, which must descend from Slurm's step, or have locks that do not
# outlive a fork.
COLD = ("sky", "sky.jobs.controller", "sky.server.server", "sky.skylet.executor.slurm")
# Processes of a pool inherit further files by their numbers.
SPAWNED = "from multiprocessing."
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
HOMES = ("HOME", "SKY_RUNTIME_DIR")
KEY_BYTES = 1024
NUMBER_BYTES = 8
IDLE_S = 60


def run(address: str, python: str, name: str, arguments: list[str]) -> NoReturn:
    """Be ``python arguments...``, whose ``sys.executable`` is ``name``."""
    server = socket.socket(socket.AF_UNIX)
    try:
        if not _is_warm(arguments):
            raise ConnectionRefusedError
        server.connect(address)
    except OSError:
        os.execv(python, [name, *arguments])
    came: list[int] = []
    process = 0

    def forward(number: int, _: FrameType | None) -> None:
        # Who ends a process of SkyPilot's ends those that it has started, too.
        os.killpg(process, number) if process else came.append(number)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    os.umask(umask := os.umask(0o22))
    key = "\0".join(os.environ.get(name, "") for name in HOMES).encode()
    request = marshal.dumps((name, arguments, os.getcwd(), umask, dict(os.environ)))
    socket.send_fds(server, [key.ljust(KEY_BYTES, b"\0")], [0, 1, 2])
    try:
        server.sendall(len(request).to_bytes(NUMBER_BYTES, "big") + request)
        process = _number(server)
    except (OSError, EOFError):  # it was about to end
        os.execv(python, [name, *arguments])
    for early in came:
        os.killpg(process, early)
    code = os.waitstatus_to_exitcode(_number(server))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_warm(arguments: list[str]) -> bool:
    words = [word for word in arguments[:3] if word != "-u"]
    if words[:1] == ["-m"]:
        return words[1].startswith("sky.") and words[1] not in COLD
    if words[:1] == ["-c"]:
        return not words[1].startswith(SPAWNED)
    return bool(words) and words[0][:1] != "-" and os.path.basename(words[0]) not in COLD


def _number(connection: socket.socket) -> int:
    return int.from_bytes(_exactly(connection, NUMBER_BYTES), "big")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError("The other side is gone.")
        data += part
    return data


def serve(address: str) -> NoReturn:
    """Answer whoever connects to ``address``, for ever."""
    _import_others()
    _settle()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(512)
    os.rename(f"{address}.new", address)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are started here
    homes: dict[bytes, socket.socket] = {}
    while True:
        client, _ = listener.accept()
        key, files, _, _ = socket.recv_fds(client, KEY_BYTES, 3)
        while len(files) == 3:  # else its client has ended
            if key not in homes:
                homes[key] = _start_home(key, [listener, client, *homes.values()], files)
            try:
                socket.send_fds(homes[key], [b"."], [client.fileno(), *files])
                break
            except OSError:  # it had nothing to do, and has ended
                homes.pop(key).close()
        _close(client, *files)


def _import_others() -> None:
    """Import the modules of others that SkyPilot imports."""
    import importlib
    import subprocess

    show = "import sys, sky.jobs.utils, sky.skylet.services; print(*sys.modules)"
    command = [sys.executable, "-W", "ignore", "-c", show]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    for name in names:
        if name.partition(".")[0] not in ("__main__", "sky"):
            try:
                importlib.import_module(name)
            except ImportError:  # a name that a module in C gave to a part of itself
                continue


def _settle() -> None:
    """Make ready for forks, which share what there is now."""
    import gc

    gc.collect()
    gc.freeze()
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("A process with threads cannot be forked safely.")


def _close(*files: socket.socket | int) -> None:
    for file in files:
        os.close(file) if isinstance(file, int) else file.close()


def _start_home(key: bytes, sockets: list[socket.socket], files: list[int]) -> socket.socket:
    """Start a process that imports SkyPilot in a home directory, and then takes requests there."""
    ours, its = socket.socketpair()
    if os.fork():
        its.close()
        return ours
    _close(ours, *sockets, *files)
    os.environ.update(zip(HOMES, key.rstrip(b"\0").decode().split("\0"), strict=False))
    import select

    import sky.jobs.utils
    import sky.skylet.log_lib  # noqa: F401

    _settle()
    while select.select([its], [], [], IDLE_S)[0]:
        mark, passed, _, _ = socket.recv_fds(its, 1, 4)
        if not mark:
            break
        if not os.fork():
            its.close()
            _attend(socket.socket(fileno=passed[0]), passed[1:])
        _close(*passed)
    os._exit(0)


def _attend(client: socket.socket, files: list[int]) -> NoReturn:
    """Run what a client asks for and tell it how that ends; if the client ends first, end it."""
    import select

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    client.sendall(os.getpid().to_bytes(NUMBER_BYTES, "big"))
    worker = os.fork()
    if not worker:
        _work(client, files)
    _close(*files)
    poll = select.poll()
    poll.register(ended := os.pidfd_open(worker), select.POLLIN)
    poll.register(client, 0)  # says when it is closed
    if ended not in dict(poll.poll()):
        os.killpg(0, signal.SIGKILL)
    _, status = os.waitpid(worker, 0)
    client.sendall(status.to_bytes(NUMBER_BYTES, "big"))
    os._exit(0)


def _work(client: socket.socket, files: list[int]) -> NoReturn:
    """Become what a client asks for."""
    import atexit
    import threading
    import traceback

    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, file in enumerate(files):
        os.dup2(file, place)
    sys.executable, arguments, cwd, umask, env = marshal.loads(_exactly(client, _number(client)))
    _close(client, *files)
    os.umask(umask)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    code = 0
    try:
        _interpret(arguments)
    except SystemExit as err:
        if err.code is not None and not isinstance(err.code, int):
            print(err.code, file=sys.stderr)
        code = err.code if isinstance(err.code, int) else int(err.code is not None)
    except BaseException:  # noqa: BLE001  # as Python itself does
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    os._exit(code & 0xFF)


def _interpret(arguments: list[str]) -> None:
    """Do what Python does about its arguments."""
    import runpy
    from types import ModuleType

    unbuffered = arguments[0] == "-u"
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=unbuffered, line_buffering=os.isatty(stream.fileno()))  # type: ignore[union-attr]
    option, *rest = arguments[unbuffered:]
    if option == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    if option == "-c":
        name, code, sys.argv = "<string>", rest[0], ["-c", *rest[1:]]
        sys.path.insert(0, "")
    else:
        with open(option) as file:
            name, code, sys.argv = option, file.read(), [option, *rest]
        sys.path.insert(0, os.path.dirname(os.path.abspath(option)))
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(code, name, "exec"), main.__dict__)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    _, _, socket_path, real, own_name, *given = sys.argv
    run(socket_path, real, own_name, given)
