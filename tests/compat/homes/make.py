"""Record a home directory as a version of the package writes it, and what that version says of it.

Later versions are held to both: ``tests/compat/test_upgrade.py``. Run this as root, in a checkout
of the version to record, with the python of that checkout's ``.venv``::

    cd CHECKOUT && .venv/bin/python PATH_OF_THIS_TREE/tests/compat/homes/make.py [--answers]

It takes clusters from the checkout's own tests (a real Slurm, a real Docker engine, emulated
services) and two minutes. Beside this file it writes ``COMMIT.tar.gz``, the home, and
``COMMIT.json``, the answers of that version to ``questions.py``, which are asked after all clusters
have gone. Everything happens below ``/srv/nemo``, which must not exist: no other directory of the
machine may be named in the archive. With ``--answers`` the home that there is already is kept, and
only asked again, after questions were added.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = Path.cwd()
sys.path[0] = str(HERE.parents[2])

from tests.compat.homes import archive, questions  # noqa: E402 - found by the line before

# All other tests are those of the checkout, which know the version that is recorded.
sys.path[0] = str(CHECKOUT)

ROOT = Path(archive.ROOT)
PROJECT, HOME = ROOT / "project", ROOT / "home"
PYTHON = ROOT / "venv" / "bin" / "python"

ON_THIS_MACHINE = ("finished", "failing", "group", "retried", "lazy", "planned", "detached")
EMULATED = ("lepton", "dgx_cloud", "kubeflow")

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": str(ROOT / "user"),
    "NEMORUN_HOME": str(HOME),
    "LANG": "C.UTF-8",
    "CHECKOUT": str(CHECKOUT),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Record a home and what is said of it.")
    parser.add_argument("--answers", action="store_true", help="only ask about the recorded home")
    only_answers = parser.parse_args().answers
    commit = _said("git", "rev-parse", "--short=7", "HEAD")
    if not only_answers:
        record(commit)
    (HERE / f"{commit}.json").write_text(_a_line_each(ask(commit)))


def record(commit: str) -> None:
    """Run all cases and store the home they leave."""
    ROOT.mkdir()
    try:
        _make_project()
        for case in (*ON_THIS_MACHINE, *EMULATED):
            _launch(case)
        _launch_half()
        with _slurm() as found:
            _launch("slurm", found)
        with _docker() as found:
            _launch("docker", found)
        _annotate()
        _wait_until_quiet()
        _check_paths()
        packed = archive.pack(ROOT, commit)
    finally:
        shutil.rmtree(ROOT)
    print(f"{packed}: {packed.stat().st_size} bytes")


def ask(commit: str) -> dict[str, list[questions.Answer]]:
    """Return the answers to all questions, each story with a copy of the home of its own."""
    answers = {}
    for story in questions.STORIES:
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory).resolve()
            archive.unpack(commit, root)
            answers[story] = questions.ask(story, root)
    return answers


def _a_line_each(answers: Mapping[str, list[questions.Answer]]) -> str:
    """Return JSON in which a changed answer is a changed line."""
    stories = [
        f"{json.dumps(story)}: [\n" + ",\n".join(map(json.dumps, told)) + "\n]"
        for story, told in answers.items()
    ]
    return "{\n" + ",\n".join(stories) + "\n}\n"


def _make_project() -> None:
    """Lay the launching script and its modules into a repository of their own."""
    for name in ("home", "user"):
        (ROOT / name).mkdir()
    (ROOT / "venv").symlink_to(CHECKOUT / ".venv")
    shutil.copytree(HERE / "project", PROJECT, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(PROJECT), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "What is recorded"], check=True)


def _launch(case: str, found: Mapping[str, str] = ENVIRONMENT) -> None:
    subprocess.run(_command(case), cwd=PROJECT, env={**ENVIRONMENT, **found}, timeout=300)


def _launch_half() -> None:
    """Kill a launcher while its first job runs, and let that job end."""
    process = subprocess.Popen(_command("half"), cwd=PROJECT, env=ENVIRONMENT)
    logs = HOME / "experiments" / "half"
    _wait_for(lambda: any(_has_said(path) for path in logs.rglob("combined.log")), "the first job")
    process.send_signal(signal.SIGKILL)
    process.wait()
    (PROJECT / "gate").touch()
    _wait_until_quiet()


def _annotate() -> None:
    for words in (
        ["tag", "finished", "best", "paper"],
        ["note", "finished", "better with warm-up"],
        ["tag", "slurm", "best"],
    ):
        command = [str(PYTHON), "-m", "nemo_run", "experiment", *words]
        subprocess.run(command, env=ENVIRONMENT, check=True)


@contextlib.contextmanager
def _slurm() -> Iterator[dict[str, str]]:
    from tests.integration.slurm.cluster import temporary_cluster

    with temporary_cluster() as cluster:
        yield {**cluster.environment, "NEMO_RUN_TEST_SLURM": str(cluster.directory)}


@contextlib.contextmanager
def _docker() -> Iterator[dict[str, str]]:
    from tests.integration.docker.engine import temporary_engine

    with temporary_engine() as engine:
        yield engine.environment


def _check_paths() -> None:
    for path in archive.files(ROOT / "home"):
        if str(CHECKOUT) in archive.plain(path.read_text()):
            raise RuntimeError(f"{path} names {CHECKOUT}, which may not be published")


def _wait_until_quiet() -> None:
    from tests.conftest import processes_with

    _wait_for(lambda: not processes_with(f"NEMORUN_HOME={HOME}"), "the end of all processes")


def _wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {timeout_s:g} s")
        time.sleep(0.1)


def _has_said(path: Path) -> bool:
    return "first" in path.read_text()


def _command(case: str) -> list[str]:
    return [str(PYTHON), str(PROJECT / "launch.py"), case]


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    os.umask(0o022)
    main()
