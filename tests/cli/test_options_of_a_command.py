"""The options that every run command takes, and how a script answers to them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli import commands
from tests.cli.commands import Result
from tests.cli.conftest import Several

pytestmark = pytest.mark.slow

Command = Callable[..., Result]


def test_a_question_is_asked_before_something_is_run(fit: Command) -> None:
    yes, no = (fit("net=small_net", input=answer) for answer in ("what?\ny\n", "n\n"))
    assert (yes.code, no.code) == (0, 0)
    assert "Continue? [y/N]" in yes.err
    assert "REPORT" in yes.out
    assert "REPORT" not in no.out
    assert "Nothing was run." in no.err


def test_many_processes_are_not_asked(fit: Command) -> None:
    result = fit("net=small_net", env={"WORLD_SIZE": "2"})
    assert (result.code, "REPORT" in result.out) == (0, True)


def test_nothing_else_is_printed_at_the_start(fit: Command) -> None:
    assert fit("net=small_net", "--yes").lines[0] == "Task fit:fit:"
    assert fit("net=small_net", "--dryrun").lines[0] == "Dry run for task fit:fit:"


@pytest.mark.slow
def test_a_dry_run_shows_arguments_and_requests_and_leaves_nothing(
    fit: Command, here: Path
) -> None:
    home = {"NEMORUN_HOME": str(here / "home")}
    words = ("run.executor=local", 'run.executor.env_vars={"MY_TOKEN": "hunter2"}', "steps=4")
    result = fit("net=small_net", *words, "--dryrun", env=home)
    assert result.code == 0, result.err
    assert "Net(width=4)" in result.out
    assert "fdl_runner" in result.out
    assert "REPORT" not in result.out
    assert "hunter2" not in result.out + result.err
    assert not list((here / "home").rglob("_CONFIG"))


@pytest.mark.slow
def test_exports_are_written_and_can_be_fed_back(fit: Command, here: Path) -> None:
    wrote = fit(
        *("net=small_net", "net.depth=3", "steps=4", "data=two_files"),
        *("--to-yaml", "a.yaml", "--to-toml", "a.toml", "--to-json", "a.txt"),
    )
    assert wrote.code == 0, wrote.err
    assert "REPORT" not in wrote.out
    assert json.loads((here / "a.txt").read_text())["steps"] == 4, "as the flag says"
    (here / "a.txt").rename(here / "a.json")
    for file in ("a.yaml", "a.toml", "a.json"):
        report = fit("--yaml", file, "steps+=1", "--yes").answer()
        assert report["net"] == {"width": 4, "depth": 3}
        assert report["data"]["paths"] == ["a", "b"]
        assert report["steps"] == 5


@pytest.mark.slow
def test_a_part_can_be_exported_and_used(fit: Command) -> None:
    assert fit("net=small_net", "--to-toml", "net.toml:net").code == 0
    assert fit("net=@net.toml", "net.depth=3", "--yes").answer()["net"] == {"width": 4, "depth": 3}
    gone = fit("net=small_net", "--to-yaml", "x.yaml:nett")
    assert (gone.code, gone.err) == (2, "Error: The task has no 'nett' to write to x.yaml.\n")


@pytest.mark.slow
def test_a_file_can_hold_factories_sections_operators_and_how_to_run(
    fit: Command, here: Path
) -> None:
    (here / "all.yaml").write_text(
        "run: {factory: recipe, executor: local, name: from-file}\n"
        "net: {_factory_: small_net(width=3), depth: 5}\n"
        "'steps+=': 8\n"
        "path: ${oc.env:FIT_PATH}\n"
    )
    result = fit("--yaml", "all.yaml", "run_id=1", "--yes", env={"FIT_PATH": "/data"})
    assert result.code == 0, result.err
    report = json.loads(result.out.partition("REPORT ")[2].splitlines()[0])
    assert report["net"] == {"width": 3, "depth": 5}
    assert (report["steps"], report["run_id"], report["path"]) == (108, 1, "/data")
    assert "Entering Experiment from-file" in result.out


@pytest.mark.slow
def test_a_section_of_a_file_can_be_a_value_and_a_file_a_starting_point(
    fit: Command, here: Path
) -> None:
    (here / "all.yaml").write_text("net: {width: 6}\nother: {_target_: fit.Net, depth: 1}\n")
    (here / "start.json").write_text('{"_factory_": "recipe", "steps": 2}')
    report = fit("-f", "@start.json", "net=@all.yaml:net", "--yes").answer()
    assert report["net"] == {"width": 6, "depth": 2}
    assert report["steps"] == 2
    gone = fit("net=@all.yaml:nte", "--yes")
    assert (gone.code, "Did you mean 'net'?" in gone.err) == (2, True)


@pytest.mark.slow
def test_the_logs_of_a_task_are_printed_unless_told_not_to(fit: Command) -> None:
    words = ("net=small_net", "run.executor=local", "--yes")
    assert "REPORT" in fit(*words).out
    quiet = fit(*words, "--no-tail-logs")
    assert quiet.code == 0
    assert "REPORT" not in quiet.out


@pytest.mark.slow
def test_a_detached_command_returns_at_once_and_the_job_goes_on(
    fit: Command, nemorun: Command
) -> None:
    launched = fit("net=small_net", "run.executor=local", "--detach", "--name", "away", "--yes")
    assert launched.code == 0, launched.err
    assert nemorun("experiment", "wait", "away").code == 0
    assert "REPORT" in nemorun("experiment", "logs", "away").out


def test_a_shell_has_the_task_and_can_run_it(fit: Command) -> None:
    result = fit("net=small_net", "--repl", input="task.steps = 5\nrun_task()\n")
    assert result.code == 0, result.err
    assert json.loads(result.out.partition("REPORT ")[2].splitlines()[0])["steps"] == 5


def test_a_traceback_is_shown_as_it_is_asked_for(several: Several) -> None:
    wrong = ["stpes=3"]
    failing = ["net=small_net", "fail=on purpose", "--yes"]
    plain, verbose, drawn, short = several(
        [
            wrong,
            [*wrong, "--verbose"],
            [*failing, "--rich-exceptions", "--rich-hide-locals", "--rich-theme", "vim"],
            [*failing, "--rich-exceptions", "--rich-traceback-short"],
        ]
    )
    assert "Traceback" not in plain.err
    assert "Traceback (most recent call last)" in verbose.err
    assert "Traceback (most recent call last) ─" in drawn.err + short.err
    assert "locals ─" not in drawn.err
    assert "locals ─" in short.err
    assert (verbose.code, drawn.code, short.code) == (2, 1, 1)


def test_defaults_of_a_script_give_way_to_flags(here: Path) -> None:
    run, negated = (
        commands.script("kinds.py", *words, cwd=here) for words in ((), ("--no-confirm",))
    )
    asked = commands.script("kinds.py", "--no-yes", cwd=here)
    assert (run.code, negated.code) == (0, 0)
    assert (asked.code, "--yes" in asked.err) == (2, True), "a default of True can be negated"


def written(here: Path, end: str) -> Path:
    """A script with a command of one argument."""
    script = here / "once.py"
    script.write_text(
        "import nemo_run as run\n"
        "def once(x: int = 1): print('x is', x)\n"
        "class Plain(run.Plugin): pass\n"
        "class Name:\n    pass\n"
        f"if __name__ == '__main__':\n    {end}\n    print('went on')\n"
    )
    return script


def python(script: Path, *words: str, **options: Any) -> Result:
    return commands.run([sys.executable, script, *words], cwd=script.parent, **options)


def test_one_answer_is_enough_for_a_process(here: Path) -> None:
    script = written(here, "run.cli.main(once); run.cli.main(once)")
    done = python(script, "x=2", input="y\n")
    assert done.code == 0, done.err
    assert done.err.count("Continue? [y/N]") == 1
    assert (done.out.count("x is 2"), "went on" in done.out) == (2, True)


def test_defaults_of_a_script_hold_for_every_option(here: Path) -> None:
    defaults = "{'skip_confirmation': True, 'dryrun': True, 'to_json': 'task.json'}"
    script = written(here, f"run.cli.main(once, cmd_defaults={defaults})")
    done = python(script, "x=2")
    assert (done.code, "x is 2" in done.out) == (0, False), done.err
    assert json.loads((here / "task.json").read_text())["x"] == 2
    wrong = python(written(here, "run.cli.main(once, cmd_defaults={'detahc': True})"))
    assert (wrong.code, "Did you mean 'detach'?" in wrong.err) == (2, True)


def test_default_plugins_must_be_configs(here: Path) -> None:
    done = python(written(here, "run.cli.main(once, default_plugins=[Plain()])"))
    assert done.code == 1
    assert "ValueError" in done.err or "ConfigError" in done.err
    assert "default_plugins is a run.Config or a list of them" in done.err


def test_a_lazy_script_only_says_what_it_would_run(here: Path) -> None:
    script = written(here, "run.cli.main(once); print(run.cli.api.MAIN_ENTRYPOINT.path)")
    done = python(script, "x=2", env={"LAZY_CLI": "true"})
    assert (done.code, done.lines) == (0, ["once.once", "went on"])


def test_options_can_be_switched_off_again(fit: Command) -> None:
    words = ("net=small_net", "run.executor=local", "-n", "named", "-y")
    here = fit(*words, "--direct")
    assert (here.code, "Entering Experiment" in here.out, "REPORT" in here.out) == (0, False, True)
    there = fit(*words, "--direct", "--no-direct", "--no-tail-logs")
    assert (there.code, "Entering Experiment named" in there.out) == (0, True)


def test_names_of_the_script_itself_are_found(here: Path) -> None:
    script = here / "own.py"
    script.write_text(
        "from dataclasses import dataclass\n"
        "import nemo_run as run\n"
        "@dataclass\n"
        "class Net: width: int = 8\n"
        "def fit(net: Net, name: str = ''): print(net, name)\n"
        "def wide(): return run.Config(Net, width=99)\n"
        "if __name__ == '__main__': run.cli.main(fit)\n"
    )
    done = python(script, "net=wide", "name=wide", "--yes")
    assert (done.code, done.lines[-1]) == (0, "Net(width=99) wide"), done.err
