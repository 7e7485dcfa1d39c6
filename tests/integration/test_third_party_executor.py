"""An executor from another package: installed with pip, found by its entry point, used in full.

Every step happens in a process of its own, as it would for a user who comes back tomorrow.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests import patience

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).parents[2] / "examples" / "acme_executor"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the example package installed in it."""
    source = tmp_path_factory.mktemp("source") / PACKAGE.name
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("site")
    # Building in isolation downloads the build system; without it, it has to be here.
    local = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--target", str(target), *local, str(source)),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target


class Shell:
    """Runs Python programs that see the package, all with the home directory of the test."""

    def __init__(self, directory: Path, site: Path) -> None:
        self._directory = directory
        self._env: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(site)}

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        program = self._directory / "program.py"
        program.write_text(textwrap.dedent(code))
        return subprocess.run(
            [sys.executable, str(program)],
            env=self._env,
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=patience.seconds(60),
        )

    def status(self, title: str) -> dict[str, Any]:
        done = self.python(f"""
            import nemo_run as run
            print(run.Experiment.from_title({title!r}).status_json())
        """)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def wait_for(self, title: str, job: str, state: str, timeout_s: float = 30) -> dict[str, Any]:
        deadline = patience.deadline(timeout_s)
        while True:
            found: dict[str, Any] = self.status(title)[job]
            if found["status"] == state:
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.1)


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def shell(tmp_path: Path, site: Path) -> Shell:
    return Shell(tmp_path, site)


def test_tasks_run_in_order_and_their_outcome_is_known_to_other_processes(shell: Shell) -> None:
    done = shell.python("""
        import os
        import nemo_run as run
        from acme_run import AcmeExecutor

        def train(name):
            print(repr(name), "on queue", os.environ["ACME_QUEUE"])

        if __name__ == "__main__":
            with run.Experiment("acme", executor=AcmeExecutor(queue="short"), check=True) as exp:
                first = exp.add(run.Partial(train, name="it's $HOME; \\n naïve"), name="train")
                exp.add(run.Script(inline="echo then"), name="then", dependencies=[first])
                exp.run(tail_logs=True)
    """)

    assert done.returncode == 0, done.stdout + done.stderr
    assert '"it\'s $HOME; \\n naïve" on queue short' in done.stdout
    status = shell.status("acme")
    assert [status[job]["status"] for job in ("train", "then")] == ["SUCCEEDED"] * 2
    assert status["train"]["executor"] == "AcmeExecutor"
    assert status["train"]["handle"].startswith("acme://nemo_run/")


def test_a_failed_job_raises_with_its_exit_code_and_last_lines(shell: Shell) -> None:
    done = shell.python("""
        import nemo_run as run
        from acme_run import AcmeExecutor

        try:
            run.run(
                run.Script(inline="echo no disk; exit 7"),
                executor=AcmeExecutor(queue="short"),
                name="bad",
                check=True,
            )
        except run.exceptions.JobFailedError as err:
            print("caught", err.exit_code, list(err.tail))
    """)

    assert "caught 7 ['no disk\\n']" in done.stdout, done.stdout + done.stderr
    assert shell.status("bad")["bad"]["exit_code"] == 7


def test_a_detached_job_is_found_read_and_cancelled_by_other_processes(
    shell: Shell, tmp_path: Path
) -> None:
    done = shell.python("""
        import nemo_run as run
        from acme_run import AcmeExecutor

        with run.Experiment("long", executor=AcmeExecutor(queue="long")) as exp:
            exp.add(run.Script(inline="echo $$ > pid; echo started; sleep 600"), name="job")
            exp.add(run.Script(inline="echo never"), name="after", dependencies=["job"])
            exp.run(detach=True)
    """)
    assert done.returncode == 0, done.stdout + done.stderr
    shell.wait_for("long", "job", "RUNNING")

    cancelled = shell.python("""
        import nemo_run as run
        exp = run.Experiment.from_title("long")
        exp.cancel("job")
        exp.cancel("job")
        exp.logs("job")
    """)

    assert cancelled.returncode == 0, cancelled.stderr
    assert "started" in cancelled.stderr
    assert shell.status("long")["job"]["status"] == "CANCELLED"
    assert not is_running(int((tmp_path / "pid").read_text()))
    assert "job CANCELLED" in shell.wait_for("long", "after", "CANCELLED")["message"]


def test_what_the_queue_cannot_do_is_refused_before_anything_is_submitted(shell: Shell) -> None:
    done = shell.python("""
        import nemo_run as run
        from acme_run import AcmeExecutor

        with run.Experiment("greedy", executor=AcmeExecutor(queue="short", retries=3)) as exp:
            exp.add(run.Script(inline="echo hello"), name="job")
            try:
                exp.dryrun()
            except run.exceptions.UnsupportedError as err:
                print("refused:", err)
    """)

    assert "refused: AcmeExecutor does not start failed jobs again" in done.stdout, done.stderr


def test_a_packager_brings_the_code_of_launch_time_and_it_can_be_run_again(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "data.txt").write_text("one\n")
    done = shell.python("""
        import pathlib
        import nemo_run as run
        from acme_run import AcmeExecutor

        executor = AcmeExecutor(queue="short", packager=run.SnapshotPackager())
        with run.Experiment("packed", executor=executor, check=True) as exp:
            task = run.Script(inline="while [ ! -e '%s' ]; do sleep 0.05; done; pwd; cat data.txt" %
                              pathlib.Path("changed").absolute())
            exp.add(task, name="job")
            exp.run(tail_logs=True)
            pathlib.Path("data.txt").write_text("two\\n")
            pathlib.Path("changed").touch()
    """)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "job/code\n" in done.stdout
    assert "one\n" in done.stdout

    again = shell.python("""
        import nemo_run as run

        for code in ("recorded", "today"):
            with run.Experiment.from_title("packed").reset(code=code) as exp:
                exp.run(tail_logs=True)
            print(code, exp.provenance.code)
    """)
    assert again.returncode == 0, again.stdout + again.stderr
    recorded, today = again.stdout.split("recorded as recorded by packed_")
    assert "one\n" in recorded
    assert "two\n" in today


def test_a_dry_run_shows_the_request_without_the_environment(shell: Shell) -> None:
    done = shell.python("""
        import nemo_run as run
        from acme_run import AcmeExecutor

        executor = AcmeExecutor(queue="short", env_vars={"TOKEN": "hunter2"})
        run.run(run.Script(inline="echo hello"), executor=executor, name="dry", dryrun=True)
    """)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "AcmeRequest(" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr
