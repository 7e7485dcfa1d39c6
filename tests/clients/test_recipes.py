"""Recipes made of factories, on command lines: of a script, of `nemorun`, of an own application."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.clients.users import PROGRAMS, User, said

TINY = {"width": 8, "depth": 2, "optimizer": {"lr": 0.01, "betas": [0.9, 0.95]}}
MOCK = {"path": "/mock", "shards": 1}


def pretrained(user: User, *words: str, program: str = "recipes.py") -> dict[str, Any]:
    user.runs(program, *words, "--yes")
    found = user.found("pretrain")
    assert isinstance(found, dict)
    return found


class TestScript:
    """`python recipes.py ...`: one command, of the file itself."""

    def test_factories_make_the_parts(self, user: User) -> None:
        found = pretrained(user, "model=tiny", "data=mock_data", "steps=3")
        assert (found["model"], found["data"], found["steps"]) == (TINY, MOCK, 3)

    def test_overrides_reach_into_the_parts(self, user: User) -> None:
        words = ["model=tiny", "model.width=5", "model.optimizer.lr=0.5", "data=mock_data"]
        found = pretrained(user, *words, "data.shards=4", "model.depth*=3")
        assert found["model"]["width"] == 5
        assert found["model"]["depth"] == 6
        assert found["model"]["optimizer"] == {"lr": 0.5, "betas": [0.9, 0.95]}
        assert found["data"] == {"path": "/mock", "shards": 4}

    def test_a_factory_takes_arguments(self, user: User) -> None:
        found = pretrained(user, "model=wide(width=64)", "data=mock_data")
        assert found["model"]["width"] == 64

    def test_a_recipe_is_where_to_start(self, user: User) -> None:
        found = pretrained(user, "--factory", "tiny_recipe", "model.width=9", "tags=['a','b c']")
        assert found["model"] == {**TINY, "width": 9}
        assert (found["data"], found["steps"], found["tags"]) == (MOCK, 5, ["a", "b c"])

    def test_a_recipe_takes_arguments_too(self, user: User) -> None:
        assert pretrained(user, "--factory", "tiny_recipe(steps=2)")["steps"] == 2

    def test_an_executor_is_a_factory_as_well(self, user: User) -> None:
        words = ["--factory", "tiny_recipe", "run.executor=here"]
        assert pretrained(user, *words)["executor"] == "here"

    def test_without_an_executor_the_task_runs_here(self, user: User) -> None:
        assert pretrained(user, "--factory", "tiny_recipe")["executor"] is None

    def test_a_dry_run_runs_nothing(self, user: User) -> None:
        done = user.runs("recipes.py", "--factory", "tiny_recipe", "steps=77", "--dryrun")
        assert "77" in done.stdout
        assert not (user.out / "pretrain").exists()

    def test_a_name_that_is_wrong_is_said(self, user: User) -> None:
        done = user.tries("recipes.py", "--factory", "tiny_recipe", "model.widht=4", "--yes")
        assert done.returncode != 0
        assert "widht" in done.stderr
        assert not (user.out / "pretrain").exists()


class TestApplication:
    """A typer application around `create_cli`, which has the commands of all namespaces."""

    def test_a_command_of_a_namespace_runs(self, user: User) -> None:
        found = pretrained(
            user, "zoo", "pretrain", "model=tiny", "data=mock_data", program="zoo.py"
        )
        assert found["model"] == TINY

    def test_a_command_may_have_another_name_than_its_function(self, user: User) -> None:
        user.runs("zoo.py", "zoo", "tune", "model=tiny", "rate=0.25", "--yes")
        assert user.found("tune")["rate"] == 0.25

    def test_an_own_namespace_is_there_too(self, user: User) -> None:
        user.runs("zoo.py", "garden", "plant", "what=trees", "rows=3", "--yes")
        assert (user.found("plant")["what"], user.found("plant")["rows"]) == ("trees", 3)

    def test_namespaces_are_nested(self, user: User) -> None:
        user.runs("zoo.py", "zoo", "tools", "convert", "source=a.ckpt")
        assert user.found("convert")["source"] == "a.ckpt"

    def test_commands_of_typer_are_beside_them(self, user: User) -> None:
        assert user.runs("zoo.py", "version").stdout == "zoo 1.2\n"
        assert user.runs("zoo.py", "version", "--short").stdout == "1.2\n"
        assert user.runs("zoo.py", "models", "list").stdout == "tiny wide\n"

    def test_help_shows_all(self, user: User) -> None:
        shown = user.runs("zoo.py", "--help").stdout
        for word in ("zoo", "garden", "models", "version", "experiment"):
            assert word in shown
        shown = user.runs("zoo.py", "zoo", "--help").stdout
        for word in ("pretrain", "tune", "sweep", "tools"):
            assert word in shown

    def test_a_job_is_launched_and_found_again(self, user: User) -> None:
        words = ["zoo", "pretrain", "--factory", "tiny_recipe", "run.executor=here"]
        found = pretrained(user, *words, "--name", "mine", program="zoo.py")
        assert found["executor"] == "here"
        shown = user.runs("zoo.py", "experiment", "status", "mine")
        assert "SUCCEEDED" in shown.stdout + shown.stderr

    def test_an_experiment_runs_its_jobs(self, user: User) -> None:
        user.runs("zoo.py", "zoo", "sweep", "widths=[3,6]", "recipe.steps=1", "--yes")
        found = user.found("pretrain")
        assert (found["model"]["width"], found["steps"]) == (6, 1)

    def test_there_is_no_option_that_was_left_out(self, user: User) -> None:
        assert user.tries("zoo.py", "--verbose", "version").returncode != 0


class TestInstalled:
    """`nemorun`, which finds the zoo as an installed package."""

    @pytest.fixture
    def nemorun(self, user: User, tmp_path: Path) -> Any:
        info = tmp_path / "site" / "zoo_models-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-models\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[nemo_run.cli]\nzoo = recipes\n")

        def call(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [str(Path(sys.executable).parent / "nemorun"), *words],
                cwd=user.work,
                env={**user.environment, "PYTHONPATH": f"{PROGRAMS}:{info.parent}"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=patience.seconds(60),
                check=False,
            )

        return call

    def test_a_command_of_the_package_runs(self, user: User, nemorun: Any) -> None:
        done = nemorun("zoo", "pretrain", "model=tiny", "data=mock_data", "model.width=7", "--yes")
        assert done.returncode == 0, said(done)
        assert user.found("pretrain")["model"] == {**TINY, "width": 7}

    def test_a_recipe_runs_on_an_executor(self, user: User, nemorun: Any) -> None:
        done = nemorun(
            "zoo", "pretrain", "--factory", "tiny_recipe", "run.executor=here", "steps=1", "--yes"
        )
        assert done.returncode == 0, said(done)
        assert (user.found("pretrain")["executor"], user.found("pretrain")["steps"]) == ("here", 1)

    def test_the_group_is_in_the_help(self, nemorun: Any) -> None:
        assert "zoo" in nemorun("--help").stdout
        assert "pretrain" in nemorun("zoo", "--help").stdout
