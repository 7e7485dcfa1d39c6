"""What was not made to its end hides nothing of what was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli import commands
from tests.cli.commands import Result
from tests.contract.experiments import experiment, script

import nemo_run as run
from nemo_run.exceptions import ConfigError


def nemorun(where: Path, *words: str) -> Result:
    return commands.run([commands.BIN / "nemorun", "experiment", *words], cwd=where)


def finished(title: str = "mine") -> str:
    with experiment(title) as exp:
        exp.add(script("true"), name="job")
        exp.run()
    return exp._id


def left_empty(title: str = "mine") -> Path:
    """What a launcher that was killed while it began leaves behind; it is the newest."""
    path = Path(os.environ["NEMORUN_HOME"], "experiments", title, f"{title}_{'9' * 19}")
    path.mkdir()
    return path


def test_an_executor_that_cannot_be_stored_leaves_no_directory() -> None:
    earlier = finished()
    odd = run.LocalExecutor(env_vars={"ODD": object()})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="ODD"), experiment("mine", executor=odd) as exp:
        exp.add(script("true"), name="job", executor=run.LocalExecutor())
        exp.run()
    root = Path(os.environ["NEMORUN_HOME"], "experiments", "mine")
    assert [path.name for path in root.iterdir()] == [earlier]


def test_an_empty_directory_does_not_hide_the_earlier_run_of_its_title(tmp_path: Path) -> None:
    earlier = finished()
    left_empty()
    assert run.Experiment.catalog("mine") == [earlier]
    assert run.Experiment.from_title("mine")._id == earlier
    for word in ("mine", "latest", "mine_"):
        assert nemorun(tmp_path, "status", word).lines[0] == earlier
    assert nemorun(tmp_path, "wait", "mine").code == 0
    assert nemorun(tmp_path, "rm", "--yes", "mine").out == f"Removed {earlier}\n"


def test_gc_goes_on_past_an_empty_directory(tmp_path: Path) -> None:
    earlier = finished()
    empty = left_empty()
    empty.rename(empty.with_name(f"mine_{'1' * 19}"))  # old enough
    result = nemorun(tmp_path, "gc", "--yes", "--older-than", "0s", "--json")
    assert result.code == 0, result.err
    assert result.json()["experiments"] == [earlier]
