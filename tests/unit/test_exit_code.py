"""A process ends with 1 in place of 0, after all that Python does at the end, whatever its version.

The module needs nothing but Python, so it is tried with every interpreter of this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import patience

from nemo_run._experiments.ending import exit_code


def interpreters() -> list[Any]:
    """Return the running interpreter, and one of each other version that can be found."""
    found = {sys.version_info[1]: sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(10, 15):
        installed = [str(path) for path in sorted(pyenv.glob(f"3.{minor}.*/bin/python"))]
        on_path = shutil.which(f"python3.{minor}")
        if on_path and "shims" not in Path(on_path).parts:
            installed.append(on_path)
        if installed:
            found.setdefault(minor, installed[0])
    return [
        pytest.param(
            found[minor],
            id=f"3.{minor}",
            marks=() if found[minor] == sys.executable else pytest.mark.slow,
        )
        for minor in sorted(found)
    ]


PROGRAM = f"""
import atexit, logging, logging.handlers, os, sys, threading, time, weakref
sys.path.insert(0, {str(Path(exit_code.__file__).parent)!r})

def says(word):
    atexit.register(print, word)

# All of these are registered before the module is imported.
says("atexit before")
file = logging.FileHandler("log.txt")
memory = logging.handlers.MemoryHandler(100, logging.CRITICAL, file)
logging.getLogger().addHandler(memory)
logging.warning("kept until logging shuts down")

import exit_code

class Finalised:
    def __del__(self):
        print("finaliser")

kept = Finalised()
referred = Finalised.__del__ and type("Referred", (), {{}})()
weakref.finalize(referred, print, "weakref")
buffer = open("buffer.txt", "w")
buffer.write("written at the end")

def fail():
    exit_code.end_with_1("what failed")

def main():
    return 3

{{body}}
"""

ENDS_OF_ALL = ["weakref", "atexit before", "finaliser"]


class Ended:
    """How a program ended, and what it left."""

    def __init__(self, directory: Path, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout.splitlines()
        self.err = done.stderr
        self.buffer = _text(directory / "buffer.txt")
        self.log = _text(directory / "log.txt")

    def assert_all_else_ran(self) -> None:
        assert [line for line in self.out if line in ENDS_OF_ALL] == ENDS_OF_ALL, self.err
        assert self.buffer == "written at the end"
        assert self.log == "kept until logging shuts down\n"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture(params=interpreters())
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(python: str, directory: Path, body: str, *, how: str = "file") -> Ended:
    text = PROGRAM.replace("{body}", body)
    (directory / "program.py").write_text(text)
    words = {
        "file": ["program.py"],
        "-m": ["-m", "program"],
        "-c": ["-c", text],
        "runpy": ["-c", "import runpy; runpy.run_path('program.py', run_name='__main__')"],
    }[how]
    done = subprocess.run(
        [python, *words],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience.seconds(60),
        check=False,
    )
    return Ended(directory, done)


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "sys.exit()", "raise SystemExit(main() - 3)"])
def test_success_becomes_1_and_the_line_is_the_last_word(
    python: str, tmp_path: Path, end: str
) -> None:
    ended = run(python, tmp_path, f"fail()\n{end}")
    assert (ended.code, ended.err) == (1, "what failed\n")
    ended.assert_all_else_ran()


@pytest.mark.parametrize("how", ["-m", "-c", "runpy"])
def test_it_does_not_matter_how_python_was_started(python: str, tmp_path: Path, how: str) -> None:
    ended = run(python, tmp_path, "fail()", how=how)
    assert (ended.code, ended.err) == (1, "what failed\n")
    assert [line for line in ended.out if line in ENDS_OF_ALL] == ENDS_OF_ALL
    assert run(python, tmp_path, "fail(); raise SystemExit(main())", how=how).code == 3


@pytest.mark.parametrize(
    ("end", "code", "last_words"),
    [
        ("sys.exit(3)", 3, ""),
        ("raise SystemExit(main())", 3, ""),
        ("exit(3)", 3, ""),
        ("sys.exit('no way')", 1, "no way"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
    ],
)
def test_a_code_of_the_program_s_own_stays(
    python: str, tmp_path: Path, end: str, code: int, last_words: str
) -> None:
    ended = run(python, tmp_path, f"fail()\n{end}")
    assert ended.code == code
    assert ended.err.strip().endswith(last_words)
    assert "what failed" not in ended.err
    ended.assert_all_else_ran()


def test_a_code_that_the_system_cuts_to_0_counts_as_0(python: str, tmp_path: Path) -> None:
    assert run(python, tmp_path, "fail()\nsys.exit(256)").code == 1


def test_an_exit_that_the_program_caught_is_none(python: str, tmp_path: Path) -> None:
    body = "fail()\ntry:\n    sys.exit(9)\nexcept SystemExit:\n    pass"
    assert run(python, tmp_path, body).code == 1


def test_a_function_at_the_end_that_raises_changes_nothing(python: str, tmp_path: Path) -> None:
    ended = run(python, tmp_path, "fail()\natexit.register(lambda: 1 / 0)")
    assert ended.code == 1
    assert ended.err.endswith("what failed\n")
    ended.assert_all_else_ran()


@pytest.mark.parametrize("order", ["fail(); says('atexit after')", "says('atexit after'); fail()"])
def test_functions_at_the_end_run_once_and_in_their_order(
    python: str, tmp_path: Path, order: str
) -> None:
    ended = run(python, tmp_path, order)
    assert [line for line in ended.out if "atexit" in line] == ["atexit after", "atexit before"]


def test_text_without_a_line_break_is_printed(python: str, tmp_path: Path) -> None:
    assert run(python, tmp_path, "fail(); sys.stdout.write('no break ')").out[0].startswith("no b")


def test_c_code_writes_what_it_has_buffered(python: str, tmp_path: Path) -> None:
    ended = run(python, tmp_path, "fail()\nimport ctypes; ctypes.CDLL(None).puts(b'from C')")
    assert (ended.code, ended.out.count("from C")) == (1, 1)


def test_it_can_be_taken_back_until_the_end(python: str, tmp_path: Path) -> None:
    ended = run(python, tmp_path, "fail()\natexit.register(exit_code.end_with_1, '')")
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(("end", "code"), [("", 1), ("sys.exit(0)", 1), ("sys.exit(3)", 3)])
def test_another_thread_may_say_so(python: str, tmp_path: Path, end: str, code: int) -> None:
    body = f"thread = threading.Thread(target=fail); thread.start(); thread.join()\n{end}"
    ended = run(python, tmp_path, body)
    assert ended.code == code
    ended.assert_all_else_ran()


@pytest.mark.parametrize(("end", "code"), [("", 1), ("sys.exit(0)", 1), ("sys.exit(3)", 3)])
def test_a_thread_that_lives_longer_than_the_main_program_may_say_so(
    python: str, tmp_path: Path, end: str, code: int
) -> None:
    body = f"""
ready = threading.Event()

def late():
    exit_code.listen()
    ready.set()
    threading.main_thread().join()
    fail()

threading.Thread(target=late).start()
ready.wait()
{end}
"""
    assert run(python, tmp_path, body).code == code


def test_threads_that_never_end_do_not_keep_it(python: str, tmp_path: Path) -> None:
    body = """
def spin():
    while True:
        sum(range(1000))

for _ in range(3):
    threading.Thread(target=spin, daemon=True).start()
fail()
"""
    ended = run(python, tmp_path, body)
    assert (ended.code, ended.err) == (1, "what failed\n")


def test_leaving_at_once_is_not_changed(python: str, tmp_path: Path) -> None:
    assert run(python, tmp_path, "fail(); os._exit(0)").code == 0


def test_a_process_without_stderr_ends_with_1_too(python: str, tmp_path: Path) -> None:
    assert run(python, tmp_path, "fail(); os.close(2)").code == 1


def test_children_do_not_inherit_it(python: str, tmp_path: Path) -> None:
    body = """
fail()
child = os.fork()
if child == 0:
    sys.exit(0)
print("forked:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

import multiprocessing
for method in ("fork", "spawn", "forkserver"):
    process = multiprocessing.get_context(method).Process(target=print)
    if __name__ == "__main__":
        process.start()
        process.join()
        print(method, process.exitcode)
"""
    body = "if __name__ == '__main__':\n" + "\n".join(f"    {line}" for line in body.splitlines())
    ended = run(python, tmp_path, body)
    assert ended.code == 1
    for line in ("forked: 0", "fork 0", "spawn 0", "forkserver 0"):
        assert line in ended.out, ended.err


def test_a_child_has_a_code_of_its_own(python: str, tmp_path: Path) -> None:
    body = """
child = os.fork()
if child == 0:
    fail()
    sys.exit(0)
print("forked:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ended = run(python, tmp_path, body)
    assert (ended.code, "forked: 1" in ended.out) == (0, True)
