"""Commands that are typed often: short names, the latest experiment, and questions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract import tasks
from tests.contract.experiments import experiment, script, states
from tests.integration.terminals import Terminal

import nemo_run as run
import nemo_run.__main__ as command
from nemo_run.cli.commands import application

PROGRAM = Path(str(command.__file__))


def done(title: str = "short") -> run.Experiment:
    with experiment(title, check=False) as exp:
        exp.add(script("echo hello"), name="one")
        exp.run()
    return exp


@pytest.fixture
def two_that_run() -> Iterator[run.Experiment]:
    with experiment("two") as exp:
        for name in ("one", "two"):
            exp.add(script("sleep 300"), name=name)
        exp.run(detach=True)
    yield exp
    for name in ("one", "two"):
        exp.cancel(name)


def output_of(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    code = application.main(words)
    said = capsys.readouterr()
    return f"{code} {said.out}{said.err}"


def test_short_names_mean_the_long_ones_and_the_latest_experiment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    id = done()._id
    assert id in output_of("ls", capsys=capsys)
    assert output_of("ls", "--ids", capsys=capsys) == f"0 {id}\n"
    assert output_of("experiment", "ls", "--ids", capsys=capsys) == f"0 {id}\n"
    assert output_of("status", capsys=capsys).startswith(f"0 {id}\n")
    assert output_of("logs", capsys=capsys) == "0 hello\n"
    assert output_of("wait", capsys=capsys) == f"0 {id}: 1 job: 1 SUCCEEDED\n"
    assert "echo hello" in output_of("rerun", "--dryrun", capsys=capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lgos"], "Did you mean 'logs'?"),
        (["diff", "a", "b"], "Did you mean `nemorun experiment diff`?"),
        (["experiment", "docter"], "Did you mean `nemorun doctor`?"),
        (["experiment", "lst"], "Did you mean 'list'?"),
    ],
)
def test_suggestions_cross_levels(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in output_of(*words, capsys=capsys)


def test_cancel_never_asks_without_a_terminal(
    two_that_run: run.Experiment,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "Say which experiment" in output_of("cancel", capsys=capsys)
    said = output_of("cancel", two_that_run._id, capsys=capsys)
    assert said.startswith("0 one: CANCELLED\n")
    assert states(two_that_run)["two"] != "CANCELLED"


@pytest.mark.slow
def test_cancel_asks_which_job_is_meant_on_a_terminal(two_that_run: run.Experiment) -> None:
    terminal = Terminal(PROGRAM, "cancel")
    terminal.wait_for(lambda text: "Cancel which?" in text, "the question")
    assert "  0  one" in terminal.text()
    terminal.type("two\n")
    assert terminal.wait() == 0
    assert "two: CANCELLED" in terminal.text()
    terminal.close()
    assert states(two_that_run)["one"] != "CANCELLED"


@pytest.mark.slow
def test_cancel_does_nothing_without_an_answer(two_that_run: run.Experiment) -> None:
    terminal = Terminal(PROGRAM, "cancel", two_that_run._id)
    terminal.wait_for(lambda text: "Cancel which?" in text, "the question")
    terminal.type("\n")
    assert terminal.wait() == 0
    assert "Nothing was cancelled." in terminal.text()
    terminal.close()
    assert "CANCELLED" not in states(two_that_run).values()


def test_a_plan_shows_arguments_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    executor = run.LocalExecutor(env_vars={"API_TOKEN": "hunter2", "MODE": "a b"}, retries=2)
    task = run.Partial(tasks.say, text="x y")
    with run.Experiment("planned", executor=executor) as exp:
        exp.add(run.Script(inline="echo hi"), name="job")
        exp.add(task, name="call")
        exp.dryrun()
    text = capsys.readouterr().out
    assert "  | echo hi\n" in text
    assert "Calls tests.contract.tasks.say with\n  text = x y\n" in text
    assert "  with MODE='a b'\n" in text
    assert "tried again when it fails: 2 times" in text
    assert "hunter2" not in text
