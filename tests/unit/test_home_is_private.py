"""What an experiment creates on its way is for its owner only."""

from __future__ import annotations

from pathlib import Path

import pytest

import nemo_run as run
from nemo_run.exceptions import ConfigError


def run_one(**options: str) -> Path:
    with run.Experiment("private", clean_mode=True, **options) as exp:  # type: ignore[arg-type]
        exp.add(run.Script(inline="true"))
        exp.run()
    return Path(exp._exp_dir)


def modes(directory: Path, top: Path) -> set[int]:
    found = [directory, *(parent for parent in directory.parents if parent.is_relative_to(top))]
    return {path.stat().st_mode & 0o777 for path in found}


def test_the_home_and_everything_below_it_are_created_for_the_owner(nemorun_home: Path) -> None:
    assert modes(run_one(), nemorun_home) == {0o700}


def test_so_are_those_of_an_experiment_kept_elsewhere(nemorun_home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert modes(run_one(base_dir=str(elsewhere)), elsewhere) == {0o700}
    assert modes(nemorun_home / "experiments" / "private", nemorun_home) == {0o700}


def test_a_file_in_the_way_of_the_home_is_named(nemorun_home: Path) -> None:
    nemorun_home.touch()
    with pytest.raises(ConfigError, match=r"Cannot create .*nemorun_home\)\. Set NEMORUN_HOME"):
        run_one()
