"""The module that runs a function where its job runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import patience
from tests.contract import tasks
from tests.contract.backends import ROOT

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer


def fdl_runner(*args: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nemo_run.core.runners.fdl_runner", *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=patience.seconds(60),
        check=False,
    )


def packed(task: run.Partial) -> str:
    return ZlibJSONSerializer().serialize(task)


def test_runs_a_config_given_as_text() -> None:
    done = fdl_runner("-n", "job", packed(run.Partial(tasks.say, text="from text")))
    assert (done.returncode, done.stdout) == (0, "from text\n")


def test_runs_a_config_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "job" / "configs" / "task"
    file.parent.mkdir(parents=True)
    file.write_text(packed(run.Partial(tasks.fit, net=run.Config(tasks.Net, width=3), steps=1)))
    done = fdl_runner(str(file))
    assert (done.returncode, done.stdout) == (0, "width 3 steps 1\n")


def test_a_dry_run_shows_and_does_not_call(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    done = fdl_runner("--dryrun", packed(run.Partial(tasks.append, path=str(target), text="x")))
    assert done.returncode == 0, done.stderr
    assert "append" in done.stdout
    assert not target.exists()


def test_more_arguments_are_tolerated() -> None:
    done = fdl_runner(packed(run.Partial(tasks.say)), "--local-rank=3", "extra")
    assert (done.returncode, done.stdout) == (0, "hello\n")


def test_the_end_of_the_function_is_the_end_of_the_process() -> None:
    assert fdl_runner(packed(run.Partial(tasks.fail, code=7))).returncode == 7


def test_an_exception_of_the_function_is_shown() -> None:
    done = fdl_runner(packed(run.Partial(tasks.explode)))
    assert done.returncode != 0
    assert "LookupError: nothing there" in done.stderr


def test_functions_of_the_launching_script_come_from_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text("def mine(word):\n    print('mine', word)\n")
    launcher = tmp_path / "pack.py"
    launcher.write_text(
        "import nemo_run as run\n"
        "from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer\n"
        "def mine(word):\n    print('mine', word)\n"
        "print(ZlibJSONSerializer().serialize(run.Partial(mine, word='x')), end='')\n"
    )
    text = subprocess.run(
        [sys.executable, str(launcher)], check=True, capture_output=True, text=True
    ).stdout
    file = tmp_path / "job" / "configs" / "task"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = fdl_runner("-n", "job", str(file))
    assert (done.returncode, done.stdout) == (0, "mine x\n"), done.stderr


def test_a_packager_is_set_up_first(tmp_path: Path) -> None:
    (tmp_path / "my_packager.py").write_text(
        "from dataclasses import dataclass\n"
        "import nemo_run as run\n"
        "@dataclass(kw_only=True)\n"
        "class Loud(run.Packager):\n"
        "    def setup(self):\n        print('set up')\n"
        "if __name__ == '__main__':\n"
        "    from my_packager import Loud\n"
        "    from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer\n"
        "    print(ZlibJSONSerializer().serialize(Loud().to_config()), end='')\n"
    )
    packager = subprocess.run(
        [sys.executable, "my_packager.py"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    done = fdl_runner("-p", packager, packed(run.Partial(tasks.say)), path=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "set up\nhello\n"), done.stderr


def test_a_line_is_written_in_one_piece_though_python_is_unbuffered() -> None:
    # A pipe that keeps what each call has written apart.
    reader, writer = os.pipe2(os.O_DIRECT)
    config = packed(run.Partial(tasks.fit, net=run.Config(tasks.Net, width=3), steps=1))
    command = [sys.executable, "-u", "-m", "nemo_run.core.runners.fdl_runner", config]
    subprocess.run(command, cwd=ROOT, stdout=writer, timeout=patience.seconds(60), check=True)
    os.close(writer)
    assert [os.read(reader, 1000) for _ in range(2)] == [b"width 3 steps 1\n", b""]
    os.close(reader)
