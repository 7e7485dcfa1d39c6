"""Commands whose output nobody reads, or cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cli import commands
from tests.cli.commands import BIN, GIVE_UP_S, SCRIPTS, Result

Command = Callable[..., Result]

FIT = [sys.executable, str(SCRIPTS / "fit.py")]
NEMORUN = [str(BIN / "nemorun")]
SMALL = "net=small_net"
FULL = "Error: Cannot write to standard output: No space left on device.\n"


def run_into(output: int, argv: Sequence[str], cwd: Path, **env: str) -> tuple[int, str]:
    """Run a command whose standard output is a descriptor; return its exit code and errors."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=GIVE_UP_S,
        check=False,
    )
    os.close(output)
    return done.returncode, done.stderr


def closed_pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.slow
def test_a_job_is_launched_whoever_reads_about_it(here: Path) -> None:
    words = [SMALL, "run.executor=local", "--yes", "--name", "unread"]
    assert run_into(closed_pipe(), [*FIT, *words], here) == (0, "")
    (made,) = commands.nemorun("experiment", "list", "--json", cwd=here).json()
    assert (made["title"], made["state"]) == ("unread", "SUCCEEDED")


@pytest.mark.slow
def test_a_task_goes_on_when_nobody_reads_what_it_prints(here: Path) -> None:
    (here / "talk.py").write_text(
        "from pathlib import Path\n"
        "import nemo_run as run\n"
        "def talk(times: int = 20000):\n"
        "    for _ in range(times): print('all work and no play')\n"
        "    Path('done').touch()\n"
        "if __name__ == '__main__': run.cli.main(talk)\n"
    )
    assert run_into(closed_pipe(), [sys.executable, "talk.py", "--yes"], here) == (0, "")
    assert (here / "done").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [
        [*FIT, SMALL, "run.executor=local", "--dryrun"],
        [*NEMORUN, "plan", str(SCRIPTS / "fit.py"), SMALL, "run.executor=local"],
        [*FIT, "--help"],
        [*NEMORUN, "experiment", "list"],
    ],
    ids=["dry run", "plan", "help", "list"],
)
def test_what_is_only_shown_ends_quietly_when_nobody_looks(here: Path, argv: list[str]) -> None:
    assert run_into(closed_pipe(), argv, here) == (0, "")


@pytest.mark.slow
def test_a_pipe_of_the_task_itself_that_breaks_is_its_failure(here: Path) -> None:
    (here / "pipe.py").write_text(
        "import os\n"
        "import nemo_run as run\n"
        "def pipe():\n"
        "    read, write = os.pipe(); os.close(read); os.write(write, b'x')\n"
        "if __name__ == '__main__': run.cli.main(pipe)\n"
    )
    done = commands.run([sys.executable, "pipe.py", "--yes"], cwd=here)
    assert (done.code, "BrokenPipeError" in done.err) == (1, True)


@pytest.mark.parametrize(
    "argv",
    [[*NEMORUN, "--help"], [*FIT, "--help"], [*NEMORUN, "experiment", "list", "--json"]],
    ids=["application", "script", "list"],
)
def test_a_full_disk_is_said_in_a_line(here: Path, argv: list[str]) -> None:
    assert run_into(os.open("/dev/full", os.O_WRONLY), argv, here) == (1, FULL)


def test_a_closed_output_is_one_that_nobody_reads(here: Path) -> None:
    words = ["sh", "-c", '"$0" experiment list >&-', *NEMORUN]
    done = commands.run(words, cwd=here)
    assert (done.code, done.err) == (0, "")


@pytest.mark.slow
def test_what_cannot_be_encoded_is_escaped(fit: Command) -> None:
    done = fit(SMALL, "path=日本", "--dryrun", env={"PYTHONIOENCODING": "ascii"})
    assert (done.code, "'\\u65e5\\u672c'" in done.out) == (0, True), done.err


@pytest.mark.slow
@pytest.mark.parametrize("format", ["yaml", "toml", "json"])
def test_what_is_no_text_is_not_exported(fit: Command, here: Path, format: str) -> None:
    done = fit(SMALL, "path=\udcff", f"--to-{format}", "task")
    assert (done.code, done.err) == (
        2,
        "Error: task cannot be written: '\\udcff' in the task is no text. Use Unicode.\n",
    )
    assert not (here / "task").exists()


def test_a_script_that_is_not_python_is_not_planned(nemorun: Command, here: Path) -> None:
    (here / "wrong.py").write_text("def fit(:\n")
    done = nemorun("plan", "wrong.py")
    assert (done.code, "SyntaxError: invalid syntax" in done.err) == (1, True)
    assert "Traceback" not in done.err
    assert 'File "wrong.py", line 1' in done.err
