"""What every executor promises: it is a value, and using it does not change it."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path

import fiddle as fdl
import pytest
from tests.contract.backends import Cluster

import nemo_run as run
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.launcher import LAUNCHER_MAP, Launcher
from nemo_run.core.serialization.yaml import YamlSerializer
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError
from nemo_run.run.torchx_backend.schedulers.api import (
    EXECUTOR_MAPPING,
    REVERSE_EXECUTOR_MAPPING,
    get_executor_str,
)


@pytest.fixture
def executor(cluster: Cluster) -> Executor:
    return cluster.executor(env_vars={"A": "x y", "B": ""}, launcher=run.Torchrun(rdzv_port=1))


class TestValue:
    def test_equal_settings_make_equal_executors(self, cluster: Cluster) -> None:
        assert cluster.executor(env_vars={"A": "1"}) == cluster.executor(env_vars={"A": "1"})
        assert cluster.executor(env_vars={"A": "1"}) != cluster.executor(env_vars={"A": "2"})

    def test_a_clone_is_equal_and_independent(self, executor: Executor) -> None:
        clone = executor.clone()
        assert clone == executor
        assert type(clone) is type(executor)
        clone.env_vars["A"] = "changed"
        assert executor.env_vars["A"] == "x y"

    def test_a_clone_does_not_know_the_directory_of_its_experiment(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        executor.assign("e_1", str(tmp_path), "task", "dir")
        assert executor.clone().experiment_dir == ""

    def test_copying_and_pickling_keep_everything(self, executor: Executor) -> None:
        assert copy.deepcopy(executor) == executor
        assert pickle.loads(pickle.dumps(executor)) == executor

    def test_its_config_builds_it_again(self, executor: Executor) -> None:
        assert fdl.build(executor.to_config()) == executor

    def test_it_survives_being_stored(self, executor: Executor) -> None:
        text = ZlibJSONSerializer().serialize(executor.to_config())
        assert fdl.build(ZlibJSONSerializer().deserialize(text)) == executor

    def test_it_can_be_written_for_people(self, executor: Executor) -> None:
        text = YamlSerializer().serialize(executor.to_config())
        assert type(executor).__name__ in text

    def test_positional_settings_are_refused(self, executor: Executor) -> None:
        with pytest.raises(TypeError):
            type(executor)("positional")  # type: ignore[call-arg, arg-type]

    def test_a_setting_that_does_not_exist_is_refused(self, cluster: Cluster) -> None:
        with pytest.raises(TypeError, match="no_such_setting"):
            cluster.executor(no_such_setting=1)


class TestQuestions:
    def test_asking_twice_gives_the_same_answer_and_changes_nothing(
        self, executor: Executor
    ) -> None:
        before = copy.deepcopy(executor)
        answers = [
            (
                executor.info(),
                executor.nnodes(),
                executor.nproc_per_node(),
                executor.get_launcher(),
                executor.macro_values(),
                executor.supports_launcher_transform(),
                executor.get_launcher_prefix(),
                executor.get_nsys_entrypoint(),
            )
            for _ in range(2)
        ]
        assert answers[0] == answers[1]
        assert executor == before

    def test_sizes_are_numbers_from_one(self, executor: Executor) -> None:
        assert executor.nnodes() >= 1
        assert executor.nproc_per_node() >= 1

    def test_it_names_itself(self, executor: Executor) -> None:
        assert executor.info().startswith(type(executor).__qualname__)

    def test_without_a_launcher_there_is_a_plain_one(self, cluster: Cluster) -> None:
        assert cluster.executor().get_launcher() == Launcher()

    @pytest.mark.parametrize("word", sorted(set(LAUNCHER_MAP) - {"slurm_template"}))
    def test_a_word_stands_for_a_launcher(self, cluster: Cluster, word: str) -> None:
        executor = cluster.executor(launcher=word)
        executor.nproc_per_node()
        executor.supports_launcher_transform()
        assert executor.to_config().launcher == word
        assert type(executor.get_launcher()) is LAUNCHER_MAP[word]

    @pytest.mark.parametrize("given", [None, "torchrun", "ft", Launcher()])
    def test_the_launcher_that_is_edited_is_the_one_that_is_used(
        self, cluster: Cluster, given: str | Launcher | None, tmp_path: Path
    ) -> None:
        executor = cluster.executor(launcher=given)
        executor.assign("title_17", str(tmp_path), "task", "job")
        executor.get_launcher().nsys_profile = True
        executor.get_launcher().nsys_trace = ["osrt"]
        for one in (executor, executor.clone(), copy.deepcopy(executor)):
            assert one.get_launcher() is one.get_launcher()
            prefix = one.get_launcher_prefix()
            assert prefix is not None
            assert prefix[prefix.index("-t") + 1] == "osrt"

    def test_a_misspelt_launcher_is_refused_with_a_suggestion(self, cluster: Cluster) -> None:
        with pytest.raises(ConfigError, match="torchrun"):
            cluster.executor(launcher="torchrum").get_launcher()

    def test_cleaning_up_after_a_job_that_is_not_known_is_fine(self, executor: Executor) -> None:
        executor.cleanup("scheduler://nemo_run/never-submitted")


class TestAssigning:
    def test_an_executor_is_told_where_its_job_lives(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        executor.assign("title_17", str(tmp_path), "task", "directory")
        assert executor.experiment_id == "title_17"
        assert executor.experiment_dir == str(tmp_path)
        assert executor.job_dir == str(tmp_path / "directory")

    def test_the_job_directory_can_be_made_twice(self, executor: Executor, tmp_path: Path) -> None:
        executor.assign("title_17", str(tmp_path), "task", "a/b")
        executor.create_job_dir()
        executor.create_job_dir()
        assert (tmp_path / "a" / "b").is_dir()

    def test_configs_are_written_below_the_job_directory(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        executor.assign("title_17", str(tmp_path), "task", "job")
        seen = executor.package_configs(("plain", "one"), ("deep/er", "zwei ☃"))
        configs = tmp_path / "job" / "configs"
        assert (configs / "plain").read_text() == "one"
        assert (configs / "deep" / "er").read_text() == "zwei ☃"
        assert [Path(path).name for path in seen] == ["plain", "er"]
        if executor.CAPABILITIES.local_paths:
            assert seen == [str(configs / "plain"), str(configs / "deep" / "er")]


class TestScheduler:
    def test_its_scheduler_is_installed(self, executor: Executor) -> None:
        assert entry_points(group="torchx.schedulers", name=executor.SCHEDULER)

    def test_its_scheduler_is_in_the_tables(self, executor: Executor) -> None:
        assert EXECUTOR_MAPPING[type(executor)] == executor.SCHEDULER
        assert REVERSE_EXECUTOR_MAPPING[executor.SCHEDULER] is type(executor)

    def test_a_subclass_runs_on_the_same_scheduler(self, cluster: Cluster) -> None:
        executor = cluster.executor()
        mine = type("Mine", (type(executor),), {})
        settings = {f.name: getattr(executor, f.name) for f in fields(executor) if f.init}
        assert get_executor_str(mine(**settings)) == executor.SCHEDULER
