"""Commands whose code is read where they run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli import commands
from tests.cli.commands import SCRIPTS, Result

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("installed_facts")]

Command = Callable[..., Result]


def test_scripts_can_be_in_directories_with_blanks(here: Path) -> None:
    place = here / "my scripts"
    place.mkdir()
    shutil.copy(SCRIPTS / "fit.py", place / "fit it.py")
    words = ["--lazy", "net=small_net(width=3)", "run.executor=local", "--yes"]
    result = commands.run([sys.executable, place / "fit it.py", *words], cwd=here)
    assert result.code == 0, result.err
    assert '"width": 3' in result.out


def test_a_command_can_be_lazy_where_its_help_says_so(nemorun: Command) -> None:
    result = nemorun("facts", "by-name", "--lazy", "run.executor=LocalExecutor", "-y")
    assert (result.code, "renamed" in result.out) == (0, True), result.err


def test_the_default_executor_of_a_command_is_used(nemorun: Command) -> None:
    result = nemorun("facts", "prepared", "--lazy", "x=6")
    assert result.code == 0, result.err
    assert "prepared Net(width=3, depth=2) 6 default marked" in result.out


def test_a_question_is_asked_before_something_is_launched(nemorun: Command) -> None:
    words = ("--lazy", "facts", "bare", "run.executor=LocalExecutor")
    nobody, no, yes = (nemorun(*words, input=answer) for answer in ("", "n\n", "y\n"))
    assert (nobody.code, "Say --yes" in nobody.err) == (2, True)
    assert (no.code, "Nothing was run." in no.err, "bare 1" in no.out) == (0, True, False)
    assert (yes.code, "bare 1" in yes.out) == (0, True), yes.err


def test_an_experiment_is_not_lazy(nemorun: Command) -> None:
    result = nemorun("facts", "loud", "--lazy", "run.executor=LocalExecutor")
    assert (result.code, "--lazy is for tasks" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["facts", "bare", "xx=1"], "Error: xx=1: No parameter named 'xx' exists for bare."),
        (["facts", "baer"], "Error: There is no command 'facts baer'. Did you mean 'bare'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_by_the_job_in_a_line(
    nemorun: Command, words: list[str], said: str
) -> None:
    result = nemorun("--lazy", *words, "run.executor=LocalExecutor", "--yes")
    assert (result.code, said in result.out + result.err) == (1, True), result.out
    assert "Traceback" not in result.out + result.err


def test_a_lazy_experiment_is_run_again_with_changes(fit: Command, nemorun: Command) -> None:
    first = fit("--lazy", "net=small_net", "steps=2", "run.executor=local", "--yes", "-n", "lazy")
    assert first.code == 0, first.err
    again = nemorun("experiment", "rerun", "lazy", "steps+=3", "net.depth=5", "--tail-logs")
    assert (again.code, "officially supported" in again.err) == (0, False), again.err
    assert (again.answer()["steps"], again.answer()["net"]) == (5, {"width": 4, "depth": 5})
    wrong = nemorun("experiment", "rerun", "lazy", "run.name=x")
    assert (wrong.code, "run.name cannot be changed here" in wrong.err) == (2, True)
