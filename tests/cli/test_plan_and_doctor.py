"""What would be submitted, and whether it could be."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.cli.commands import SCRIPTS, Result

from nemo_run.cli.commands.doctor import _within, executor_findings
from nemo_run.core.execution.checks import Finding
from nemo_run.core.execution.local import LocalExecutor

pytestmark = pytest.mark.slow

Command = Callable[..., Result]


def test_a_plan_shows_the_request_of_a_script_and_hides_secrets(
    nemorun: Command, here: Path
) -> None:
    secret = 'run.executor.env_vars={"DB_PASSWORD": "hunter2"}'
    words = ("plan", str(SCRIPTS / "fit.py"), "net=small_net", "run.executor=local", secret)
    result = nemorun(*words, env={"NEMORUN_HOME": str(here / "home")})
    assert result.code == 0, result.err
    assert "fdl_runner" in result.out
    assert "with DB_PASSWORD='***'\n" in result.out
    assert f"{here}/home/experiments/fit/fit_" in result.out, "paths are not broken into lines"
    assert "hunter2" not in result.out + result.err
    assert not list((here / "home").rglob("_CONFIG")), "nothing is left of it"


LAUNCHERS = """
import subprocess
import sys
from pathlib import Path

import nemo_run as run


def work(x: int = 1) -> None:
    Path("ran").touch()


def experiment(**how):
    with run.Experiment("planned") as exp:
        exp.add(run.Script(inline="touch ran"), name="one")
        exp.add(run.Partial(work), name="two")
        exp.run(**how)
    exp.wait()
    exp.raise_if_failed()


if __name__ == "__main__":
    {
        "experiment": experiment,
        "detached": lambda: experiment(detach=True, sequential=True),
        "directly": lambda: experiment(direct=True),
        "task": lambda: run.run(run.Partial(work), executor=run.LocalExecutor()),
        "here": lambda: run.run(run.Partial(work), dryrun=False),
        "script": lambda: run.run(run.Script(inline="touch ran")),
        "child": lambda: subprocess.run([sys.executable, __file__, "experiment"], check=True),
        "command": lambda: run.cli.main(work, cmd_defaults={"dryrun": False}),
    }[sys.argv.pop(1)]()
"""


@pytest.mark.parametrize(
    "words",
    [
        ["experiment"],
        ["detached"],
        ["directly"],
        ["task"],
        ["here"],
        ["script"],
        ["child"],
        ["command", "--yes"],
        ["command", "run.executor=LocalExecutor", "run.dryrun=False", "--yes"],
        ["command", "x=1,2", "--sweep", "--no-dryrun", "run.dryrun=False", "--yes"],
    ],
    ids=" ".join,
)
def test_a_plan_runs_nothing_however_the_script_launches(
    nemorun: Command, here: Path, words: list[str]
) -> None:
    (here / "launchers.py").write_text(LAUNCHERS)
    result = nemorun("plan", "launchers.py", *words)
    assert result.code == 0, result.err
    assert not (here / "ran").exists()
    assert "dry" in result.out.lower(), "it is shown"


def test_a_plan_of_something_wrong_says_so(nemorun: Command) -> None:
    wrong = nemorun("plan", str(SCRIPTS / "fit.py"), "net=small_nte")
    assert (wrong.code, "Did you mean 'small_net'?" in wrong.err) == (2, True)
    gone = nemorun("plan", "gone.py")
    assert (gone.code, gone.err) == (2, "Error: There is no script 'gone.py'.\n")


def test_the_doctor_looks_at_the_installation_and_at_executors(
    nemorun: Command, here: Path
) -> None:
    (here / "workspace.py").write_text(
        "import nemo_run as run\n"
        "@run.cli.factory\n"
        "def gpus() -> run.Config[run.LocalExecutor]:\n"
        "    return run.Config(run.LocalExecutor, gpus=99)\n"
    )
    on = {"INCLUDE_WORKSPACE_FILE": "true"}
    result = nemorun("doctor", "--json", env=on)
    assert result.code == 1
    found = result.json()
    assert found["installation"][0]["verdict"] == "ok"
    assert {f["subject"] for f in found["installation"]} >= {"home", "backend local_persistent"}
    (slots,) = (f for f in found["gpus"] if f["subject"] == "slots")
    assert (slots["verdict"], "gpus=99" in slots["detail"]) == ("failed", True)

    wrong = nemorun("doctor", "LocalExecutor", "LocalExecutor(retires=1)")
    assert (wrong.code, "Did you mean 'retries'?" in wrong.err, wrong.out) == (2, True, "")
    incomplete = nemorun("doctor", "SlurmExecutor")
    assert incomplete.code == 1
    needs = "SlurmExecutor needs run.executor.account. Give a value, such as"
    assert f"  failed  executor: {needs} run.executor.account=VALUE." in incomplete.lines
    fine = nemorun("doctor", "LocalExecutor")
    assert fine.code == 0
    assert "  ok      slots: 0 GPUs asked for" in fine.lines


def test_a_broken_workspace_and_a_home_in_the_way_are_found(nemorun: Command, here: Path) -> None:
    (here / "workspace.py").write_text("1 / 0\n")
    (here / "file").touch()
    env = {"INCLUDE_WORKSPACE_FILE": "true", "NEMORUN_HOME": str(here / "file" / "home")}
    result = nemorun("doctor", env=env)
    assert result.code == 1
    assert "ZeroDivisionError" in result.out
    assert "Set NEMORUN_HOME" in result.out


def test_executors_join_with_one_method() -> None:
    class Cloud(LocalExecutor):
        def diagnose(self):
            yield Finding("credentials", "failed", "expired", "Log in again.")

    class Silent:
        pass

    class Broken(LocalExecutor):
        def diagnose(self):
            raise KeyError("it is not ready")

    assert [f.verdict for f in executor_findings(Cloud())] == ["ok", "failed"]
    assert [f.verdict for f in executor_findings(Silent())] == ["ok", "unknown"]
    assert [f.detail for f in executor_findings(Broken())] == [
        "Broken",
        "KeyError: 'it is not ready'",
    ]


@pytest.mark.skipif(find_spec("sky") is not None, reason="SkyPilot is installed")
def test_a_client_that_is_not_installed_is_named(nemorun: Command) -> None:
    found = nemorun("doctor", "SkypilotExecutor", "--json")
    (sdk,) = (f for f in found.json()["SkypilotExecutor"] if f["subject"] == "sdk")
    assert (found.code, sdk["verdict"]) == (1, "failed")
    assert "pip install 'nemo_run[skypilot]'" in sdk["detail"]


def test_versions_are_compared_by_their_numbers() -> None:
    assert _within("0.10.2", ">=0.9,<1")
    assert not _within("1.0", ">=0.9,<1")
    assert not _within("0.8.9", ">=0.9,<1")
    assert _within("2.41.0rc1", ">=2.40,<3")
