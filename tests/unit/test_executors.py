"""The base of executors, macros, the local executor, executors loaded by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from torchx.specs import Role

import nemo_run as run
from nemo_run.core.execution.base import Executor, ExecutorMacros, LogSupportedExecutor
from nemo_run.exceptions import ConfigError

MACROS = ExecutorMacros(
    head_node_ip_var="head_node_ip",
    nproc_per_node_var="NPROC",
    num_nodes_var="NNODES",
    node_rank_var="RANK",
    het_group_host_var="het_group_host",
)


class TestMacros:
    def test_placeholders_become_variable_names(self) -> None:
        text = f"{ExecutorMacros.HEAD_NODE_IP_VAR}:1 {ExecutorMacros.NODE_RANK_VAR}"
        assert MACROS.substitute(text) == "head_node_ip:1 RANK"

    def test_a_doubled_dollar_keeps_the_variable_for_the_shell(self) -> None:
        assert MACROS.substitute(f"$${ExecutorMacros.HEAD_NODE_IP_VAR}") == "$head_node_ip"
        assert MACROS.substitute(ExecutorMacros.group_host(2)) == "$het_group_host_2"

    def test_what_is_not_ours_stays(self) -> None:
        assert MACROS.substitute("$HOME ${USER} 5$") == "$HOME ${USER} 5$"

    def test_arguments_and_values_are_substituted_in_a_copy(self) -> None:
        role = Role(
            name="r",
            image="",
            args=[ExecutorMacros.NUM_NODES_VAR],
            env={ExecutorMacros.NUM_NODES_VAR: ExecutorMacros.NPROC_PER_NODE_VAR},
        )
        applied = MACROS.apply(role)
        assert applied.args == ["NNODES"]
        assert applied.env == {ExecutorMacros.NUM_NODES_VAR: "NPROC"}
        assert role.args == [ExecutorMacros.NUM_NODES_VAR]

    def test_fault_tolerance_has_a_default_place_for_its_config(self) -> None:
        assert MACROS.substitute(ExecutorMacros.FT_LAUNCHER_CFG_PATH_VAR) == "FAULT_TOL_CFG_PATH"


class TestBase:
    def test_leaves_sizes_and_places_to_its_subclasses(self) -> None:
        with pytest.raises(NotImplementedError):
            Executor().nnodes()
        with pytest.raises(NotImplementedError):
            Executor().nproc_per_node()
        with pytest.raises(NotImplementedError):
            Executor().assign("e", "/e", "t", "t")

    def test_defaults_ask_for_nothing(self) -> None:
        executor = Executor()
        assert (executor.retries, executor.env_vars, executor.launcher) == (0, {}, None)
        assert executor.packager == run.Packager()
        assert executor.macro_values() is None
        assert executor.supports_launcher_transform() is False
        assert executor.get_nsys_entrypoint() == ("nsys", "")

    def test_profiling_makes_its_folder(self, tmp_path: Path) -> None:
        executor = run.LocalExecutor(launcher=run.Torchrun(nsys_profile=True))
        executor.assign("e_1", str(tmp_path), "job", "job")
        prefix = executor.get_launcher_prefix()
        assert prefix is not None
        assert str(tmp_path / "job" / "nsys_profile" / "profile_%p") in prefix
        assert (tmp_path / "job" / "nsys_profile").is_dir()

    def test_something_else_is_no_launcher(self) -> None:
        with pytest.raises(ConfigError, match="42"):
            run.LocalExecutor(launcher=42).get_launcher()  # type: ignore[arg-type]

    def test_printing_logs_itself_is_a_matter_of_having_the_method(self) -> None:
        class Talkative(Executor):
            @classmethod
            def logs(cls, app_id: str, fallback_path: str | None) -> None: ...

        assert isinstance(Talkative(), LogSupportedExecutor)
        assert not isinstance(run.LocalExecutor(), LogSupportedExecutor)


class TestLocal:
    def test_sizes_are_what_was_asked_for(self) -> None:
        executor = run.LocalExecutor(nodes=2, ntasks_per_node=4)
        assert (executor.nnodes(), executor.nproc_per_node()) == (2, 4)
        assert (run.LocalExecutor().nnodes(), run.LocalExecutor().nproc_per_node()) == (1, 1)

    def test_python_is_the_interpreter_that_launches(self) -> None:
        assert run.LocalExecutor().python() == sys.executable

    def test_can_detach_group_retry_and_limit(self) -> None:
        can = run.LocalExecutor.CAPABILITIES
        assert can.detach
        assert can.groups
        assert can.retries
        assert can.time_limit
        assert can.local_paths


class TestByName:
    @pytest.fixture
    def file(self, nemorun_home: Path) -> Path:
        nemorun_home.mkdir()
        path = nemorun_home / "executors.py"
        path.write_text(
            "import nemo_run as run\n"
            "def sized(tasks=2):\n    return run.LocalExecutor(ntasks_per_node=tasks)\n"
            "ready = run.LocalExecutor(ntasks_per_node=7)\n"
        )
        return path

    def test_a_function_is_called_with_the_arguments(self, file: Path) -> None:
        assert run.import_executor("sized") == run.LocalExecutor(ntasks_per_node=2)
        assert run.import_executor("sized", tasks=5) == run.LocalExecutor(ntasks_per_node=5)

    def test_a_function_is_returned_when_not_to_be_called(self, file: Path) -> None:
        found = run.import_executor("sized", call=False)
        assert callable(found)
        assert found(tasks=3) == run.LocalExecutor(ntasks_per_node=3)

    def test_an_executor_is_returned_as_it_is(self, file: Path) -> None:
        assert run.import_executor("ready").nproc_per_node() == 7

    def test_another_file_can_be_named(self, file: Path, tmp_path: Path) -> None:
        other = tmp_path / "mine.py"
        other.write_text("import nemo_run as run\nx = run.LocalExecutor(nodes=3)\n")
        assert run.import_executor("x", file_path=str(other)).nnodes() == 3

    def test_a_name_that_is_not_there_is_an_attribute_error(self, file: Path) -> None:
        with pytest.raises(AttributeError, match="nowhere"):
            run.import_executor("nowhere")

    def test_a_file_that_is_not_there_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r"executors\.py"):
            run.import_executor("x")

    def test_the_file_does_not_become_a_module_of_the_process(self, file: Path) -> None:
        run.import_executor("ready")
        assert "executors" not in sys.modules
        assert os.fspath(file.parent) not in sys.path


@pytest.mark.parametrize(
    "executor",
    [
        run.DockerExecutor(container_image="image"),
        run.SlurmExecutor(account="me", packager=run.Packager()),
    ],
    ids=["docker", "slurm"],
)
def test_code_is_collected_for_a_job_only(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="belongs to no job yet"):
        executor.package(run.PatternPackager(include_pattern="*", relative_path="."), "train")
    assert list(tmp_path.iterdir()) == []
