"""Installed plug-ins and workspace files, loaded in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests import patience

WORKSPACE = """
import nemo_run as run
from fractions import Fraction
print("loaded", __name__, __file__.rpartition("/")[2])

@run.cli.factory
def {name}() -> run.Config[Fraction]:
    return run.Config(Fraction, 1, 3)
"""
LOOK_UP = """
import nemo_run as run
from fractions import Fraction
for _ in range(2):
    print(sorted(factory.__name__ for factory in run.cli.list_factories(Fraction)))
"""


def python(directory: Path, code: str, **environ: str) -> str:
    """Run code in a new process in ``directory`` and return what it printed."""
    base = {k: v for k, v in os.environ.items() if k != "INCLUDE_WORKSPACE_FILE"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=directory,
        env={**base, "NEMORUN_HOME": str(directory / "home"), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.seconds(60),
    )
    return done.stdout + done.stderr


def write_workspace(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(WORKSPACE.format(name=name))


def test_a_workspace_file_is_executed_once_as_module_workspace(here: Path) -> None:
    write_workspace(here / "workspace.py", "mine")
    assert python(here, LOOK_UP).splitlines() == [
        "loaded workspace workspace.py",
        "['mine']",
        "['mine']",
    ]


def test_a_private_workspace_file_wins(here: Path) -> None:
    write_workspace(here / "workspace.py", "public")
    write_workspace(here / "workspace_private.py", "private")
    assert "['private']" in python(here, LOOK_UP)


def test_a_workspace_file_of_a_parent_directory_is_found(here: Path) -> None:
    write_workspace(here / "workspace.py", "above")
    inner = here / "a" / "b"
    inner.mkdir(parents=True)
    assert "['above']" in python(inner, LOOK_UP)


def test_the_workspace_file_of_the_home_is_found(here: Path) -> None:
    write_workspace(here / "home" / "workspace.py", "at_home")
    assert "['at_home']" in python(here, LOOK_UP)


def test_the_nearest_file_wins_and_the_home_comes_before_parents(here: Path) -> None:
    write_workspace(here / "workspace.py", "above")
    inner = here / "inner"
    inner.mkdir()
    write_workspace(inner / "home" / "workspace.py", "at_home")
    assert "['at_home']" in python(inner, LOOK_UP)
    write_workspace(inner / "workspace.py", "nearest")
    assert "['nearest']" in python(inner, LOOK_UP)


def test_workspace_files_can_be_switched_off(here: Path) -> None:
    write_workspace(here / "workspace.py", "mine")
    assert python(here, LOOK_UP, INCLUDE_WORKSPACE_FILE="false").splitlines() == ["[]", "[]"]


@pytest.mark.parametrize(
    "use",
    [
        "run.cli.resolve_factory(Fraction, 'mine')",
        "run.cli.list_entrypoints()",
        "run.cli.parse_partial(task, 'x=mine')",
    ],
)
def test_looking_something_up_loads_the_workspace(here: Path, use: str) -> None:
    write_workspace(here / "workspace.py", "mine")
    code = f"""
        import nemo_run as run
        from fractions import Fraction
        def task(x: Fraction): ...
        {use}
    """
    assert python(here, code) == "loaded workspace workspace.py\n"


def test_plain_values_do_not_load_the_workspace(here: Path) -> None:
    write_workspace(here / "workspace.py", "mine")
    code = """
        import nemo_run as run
        def task(x: int, y: str = "", z: list[int] = []): ...
        print(run.cli.parse_partial(task, "x=3", "y=mine", "z=[1]", "z+=[2]"))
    """
    assert python(here, code) == "<Partial[task(x=3, y='mine', z=[1, 2])]>\n"


def test_a_workspace_file_that_fails_is_named(here: Path) -> None:
    (here / "workspace.py").write_text("1 / 0\n")
    output = python(here, LOOK_UP)
    assert "ConfigError: Workspace file" in output
    assert "workspace.py failed with ZeroDivisionError: division by zero" in output


def test_a_workspace_file_may_look_up_factories_itself(here: Path) -> None:
    write_workspace(here / "workspace.py", "mine")
    with (here / "workspace.py").open("a") as file:
        file.write("print(run.cli.resolve_factory(Fraction, 'mine')())\n")
    assert "<Config[Fraction(numerator=1, denominator=3)]>" in python(here, LOOK_UP)


def install(directory: Path, module: str, code: str, point: str) -> None:
    """Put a distribution with one entry point where Python finds it."""
    (directory / f"{module}.py").write_text(textwrap.dedent(code))
    info = directory / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[nemo_run.cli]\n{point}\n")


def test_installed_plugins_are_loaded(here: Path) -> None:
    install(here, "plugged", WORKSPACE.format(name="plugged_in"), "plugged = plugged")
    assert python(here, LOOK_UP).splitlines() == [
        "loaded plugged plugged.py",
        "['plugged_in']",
        "['plugged_in']",
    ]


def test_a_plugin_that_fails_is_reported_and_the_others_are_loaded(here: Path) -> None:
    install(here, "a_bad_one", "raise RuntimeError('not today')", "bad = a_bad_one")
    install(here, "plugged", WORKSPACE.format(name="plugged_in"), "plugged = plugged")
    output = python(here, LOOK_UP)
    assert "Plug-in bad (a_bad_one) cannot be loaded: not today" in output
    assert "['plugged_in']" in output
