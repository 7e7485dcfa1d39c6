"""Programs that build an application of their own around ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import rich.console
import typer
import nemo_run as run
import fiddle as fdl
from nemo_run.cli.api import Entrypoint, create_cli
from nemo_run.cli.cli_parser import parse_cli_args


class Ours(Entrypoint):
    '''Runs commands in this process, with settings from elsewhere.'''

    def _execute_simple(self, args, console):
        config = parse_cli_args(self.fn, args, run.Partial)
        config.note = f"by rich: {isinstance(console, rich.console.Console)}"
        fdl.build(config)()


@run.cli.entrypoint(namespace="zoo", entrypoint_cls=Ours)
def feed(animal: str, times: int = 1, note: str = ""):
    print("fed", animal, times, note)


@run.cli.entrypoint(namespace="zoo.tools", enable_executor=False, name="turn")
def convert(source: str, to: str = "x"):
    print("converted", source, to)


@run.cli.entrypoint(namespace="garden")
def plant(what: str):
    print("planted", what)


app = create_cli(add_verbose_callback=False, nested_entrypoints_creation=NESTED)
more = typer.Typer(help="more commands")


@more.command("list")
def list_all():
    print("everything")


@app.command()
def doctor():
    print("our own doctor")


app.add_typer(more, name="more")


@app.callback()
def first(version: bool = typer.Option(False, "--version")):
    print("first", version)


if __name__ == "__main__":
    app()
"""


@pytest.fixture(params=[True, False], ids=["nested", "at-once"])
def program(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    path = tmp_path / "zoo.py"
    path.write_text(PROGRAM.replace("NESTED", str(request.param)))

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(path), *words],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return call


def test_commands_of_all_namespaces_and_of_typer_are_there(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    shown = program("--help").stdout
    for word in ("zoo", "garden", "more", "experiment", "doctor", "--version"):
        assert word in shown
    assert program("garden", "plant", "what=trees", "--yes").stdout.split()[-2:] == [
        "planted",
        "trees",
    ]
    assert "everything" in program("more", "list").stdout
    assert "our own doctor" in program("doctor").stdout


def test_a_class_of_the_programs_runs_its_commands(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = program("zoo", "feed", "bear", "times=3")
    assert "fed bear 3 by rich: True" in done.stdout, done.stderr
    # What asks for how to run is not for it.
    done = program("zoo", "feed", "animal=bear", "run.direct=True", "--yes")
    assert "fed bear 1 \n" in done.stdout, done.stderr
    # Simple commands take words by position, by their other name.
    done = program("zoo", "tools", "turn", "a.ckpt", "to=y")
    assert "converted a.ckpt y" in done.stdout, done.stderr
