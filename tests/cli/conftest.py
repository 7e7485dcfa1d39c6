"""Keep the tests away from workspace files of whoever runs them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cli import commands
from tests.cli.commands import Result


@pytest.fixture(autouse=True)
def no_workspace(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("INCLUDE_WORKSPACE_FILE", "false")
    monkeypatch.setenv("NEMORUN_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fit(here: Path) -> Callable[..., Result]:
    """Run the training script with words."""
    return lambda *words, **options: commands.script("fit.py", *words, cwd=here, **options)


@pytest.fixture
def nemorun(here: Path) -> Callable[..., Result]:
    """Run the installed command with words."""
    return lambda *words, **options: commands.nemorun(*words, cwd=here, **options)


@pytest.fixture
def installed_facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The commands in ``facts``, as if their package was installed."""
    info = tmp_path / "site" / "facts-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(commands.SCRIPTS / "facts.py", tmp_path / "site")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: facts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nemo_run.cli]\nfacts = facts\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))


Several = Callable[[Sequence[Sequence[str]]], list[Result]]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Several:
    """Run the training script with one command line after the other, in one process."""

    def run_all(lines: Sequence[Sequence[str]]) -> list[Result]:
        directory = tmp_path_factory.mktemp("several")
        done = commands.run(
            [sys.executable, commands.SCRIPTS / "several.py"],
            cwd=directory,
            env={**os.environ, "NEMORUN_HOME": str(directory), "INCLUDE_WORKSPACE_FILE": "false"},
            input="".join(json.dumps(list(words)) + "\n" for words in lines),
        )
        assert done.code == 0, done.err
        return [Result(*json.loads(line)) for line in done.lines]

    return run_all
