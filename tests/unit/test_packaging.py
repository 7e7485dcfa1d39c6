"""From a task and an executor to an application."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import fiddle as fdl
import pytest
from tests.contract import tasks
from torchx.specs import AppDef

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError, UnserializableError
from nemo_run.run.torchx_backend.packaging import merge_executables, package


@pytest.fixture
def executor(tmp_path: Path) -> run.LocalExecutor:
    executor = run.LocalExecutor()
    executor.assign("e_1", str(tmp_path), "job", "job")
    executor.create_job_dir()
    return executor


def command(app: AppDef) -> list[str]:
    (role,) = app.roles
    return [role.entrypoint, *role.args]


class TestFunctions:
    def test_a_function_is_run_by_the_runner_module(
        self, executor: run.LocalExecutor, tmp_path: Path
    ) -> None:
        task = run.Partial(tasks.say, text="x")
        app = package("job", task, executor, serialize_to_file=True)
        stored = tmp_path / "job" / "configs" / "job_fn_or_script"
        assert command(app)[:3] == [sys.executable, "-m", "nemo_run.core.runners.fdl_runner"]
        assert command(app)[-1] == str(stored)
        assert ZlibJSONSerializer().deserialize(stored.read_text()) == task

    def test_its_packager_and_two_copies_for_people_are_beside_it(
        self, executor: run.LocalExecutor, tmp_path: Path
    ) -> None:
        package("job", run.Partial(tasks.say), executor, serialize_to_file=True)
        configs = tmp_path / "job" / "configs"
        assert {path.name for path in configs.iterdir()} == {
            "job_fn_or_script",
            "job_packager",
            "job_config.yaml",
            "job_executor.yaml",
        }
        stored = ZlibJSONSerializer().deserialize((configs / "job_packager").read_text())
        assert fdl.build(stored) == run.Packager()

    def test_inline_the_config_is_an_argument(self, executor: run.LocalExecutor) -> None:
        task = run.Partial(tasks.say, text="x")
        args = command(package("job", task, executor))
        assert ZlibJSONSerializer().deserialize(args[-1]) == task
        assert args[args.index("-n") + 1] == "job"

    def test_the_command_works(self, executor: run.LocalExecutor) -> None:
        app = package("job", run.Partial(tasks.say, text="a b"), executor, serialize_to_file=True)
        done = subprocess.run(
            command(app),
            env={**os.environ, **app.roles[0].env},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "a b\n"

    def test_what_cannot_travel_is_named(self, executor: run.LocalExecutor) -> None:
        task = run.Partial(tasks.say, text=object())
        with pytest.raises(UnserializableError, match="text"):
            package("job", task, executor, serialize_to_file=True)


class TestScripts:
    def test_an_inline_script_becomes_a_file(
        self, executor: run.LocalExecutor, tmp_path: Path
    ) -> None:
        script = run.Script(inline="echo \"$HOME\" 'x'")
        app = package("job", script, executor, serialize_to_file=True)
        file = tmp_path / "job" / "scripts" / "job.sh"
        assert command(app) == ["bash", str(file)]
        assert file.read_text() == "#!/usr/bin/bash\necho \"$HOME\" 'x'"
        assert stat.S_IMODE(file.stat().st_mode) == 0o755

    def test_a_path_is_run_with_its_arguments(self, executor: run.LocalExecutor) -> None:
        script = run.Script("train.py", args=["--lr", "a b"], entrypoint="python")
        app = package("job", script, executor)
        assert app.roles[0].args == ["train.py", "--lr", "a b"]

    def test_a_module_is_run_as_one(self, executor: run.LocalExecutor) -> None:
        script = run.Script("pkg.mod", m=True, entrypoint="python", args=["x"])
        assert package("job", script, executor).roles[0].args == ["-m", "pkg.mod", "x"]

    def test_copies_for_people_can_be_left_out(
        self, executor: run.LocalExecutor, tmp_path: Path
    ) -> None:
        script = run.Script(inline="true")
        package("job", script, executor, serialize_metadata_for_scripts=False)
        assert not (tmp_path / "job" / "configs").exists()
        package("job", script, executor)
        assert {path.name for path in (tmp_path / "job" / "configs").iterdir()} == {
            "job_config.yaml",
            "job_executor.yaml",
        }

    def test_metadata_of_a_script_is_that_of_the_application(
        self, executor: run.LocalExecutor
    ) -> None:
        script = run.Script(inline="true", metadata={"note": "x"})
        assert package("job", script, executor).metadata["note"] == "x"

    def test_a_job_of_a_ray_cluster_needs_slurm(self, executor: run.LocalExecutor) -> None:
        script = run.Script(inline="true", metadata={"use_with_ray_cluster": True})
        with pytest.raises(ConfigError, match="Slurm"):
            package("job", script, executor)


class TestEnvironment:
    def test_the_script_wins_over_the_executor_over_the_argument(
        self, executor: run.LocalExecutor
    ) -> None:
        executor.env_vars = {"B": "executor", "C": "executor"}
        script = run.Script(inline="true", env={"C": "script"})
        env = (
            package("job", script, executor, env={"A": "arg", "B": "arg", "C": "arg"}).roles[0].env
        )
        assert {key: env[key] for key in "ABC"} == {"A": "arg", "B": "executor", "C": "script"}

    def test_nothing_given_is_changed(self, executor: run.LocalExecutor) -> None:
        env = {"A": "1"}
        executor.env_vars = {"B": "2"}
        script = run.Script(inline="true", env={"C": "3"})
        package("job", script, executor, env=env)
        assert (env, executor.env_vars, script.env) == ({"A": "1"}, {"B": "2"}, {"C": "3"})


class TestLaunchers:
    def test_torchrun_starts_a_function_by_its_module(self, executor: run.LocalExecutor) -> None:
        executor.launcher = run.Torchrun(rdzv_port=1234, rdzv_id=5)
        executor.ntasks_per_node = 3
        app = package("job", run.Partial(tasks.say), executor, serialize_to_file=True)
        args = command(app)
        assert args[0].endswith("torchrun")
        assert args[args.index("--nproc-per-node") + 1] == "3"
        assert args[args.index("--rdzv-id") + 1] == "5"
        assert args[args.index("-m") + 1] == "nemo_run.core.runners.fdl_runner"
        assert app.roles[0].port_map == {"c10d": 1234}

    def test_a_word_will_do(self, executor: run.LocalExecutor) -> None:
        executor.launcher = "torchrun"
        app = package("job", run.Script("t.py", entrypoint="python"), executor)
        assert "--nproc-per-node" in command(app)
        assert executor.launcher == "torchrun"

    def test_a_shell_script_is_not_python(self, executor: run.LocalExecutor) -> None:
        executor.launcher = run.Torchrun()
        args = command(package("job", run.Script("t.sh", args=["x"]), executor))
        assert args[args.index("--no-python") + 1 :] == ["t.sh", "x"]

    def test_torchrun_names_the_program_of_an_inline_script(
        self, executor: run.LocalExecutor
    ) -> None:
        script = run.Script(inline="echo $1", args=["x"])
        plain = command(package("job", script, executor))
        executor.launcher = run.Torchrun()
        args = command(package("job", script, executor))
        # Images differ in where bash is, so that the first line of the file must not matter.
        assert args[args.index("--no-python") + 1 :] == plain
        assert plain[0] == "bash"

    def test_an_inline_script_is_the_same_with_and_without_a_launcher(
        self, executor: run.LocalExecutor
    ) -> None:
        script = run.Script(inline="echo $1", args=["x"])
        plain = command(package("job", script, executor))
        executor.launcher = run.Torchrun()
        launched = command(package("job", script, executor))
        assert (plain[-1] == "x") is (launched[-1] == "x")

    def test_retries_are_those_of_the_executor(self, executor: run.LocalExecutor) -> None:
        executor.retries = 2
        assert package("job", run.Script(inline="x"), executor).roles[0].max_retries == 2
        executor.launcher = run.Torchrun()
        assert package("job", run.Script(inline="x"), executor).roles[0].max_retries == 2

    def test_debugging_is_asked_of_the_packager(self, executor: run.LocalExecutor) -> None:
        executor.packager = run.Packager(debug=True)
        executor.launcher = run.Torchrun()
        app = package("job", run.Script("t.py", entrypoint="python"), executor)
        assert app.roles[0].env["CUDA_LAUNCH_BLOCKING"] == "1"

    def test_the_profiler_comes_first(self, executor: run.LocalExecutor, tmp_path: Path) -> None:
        executor.launcher = run.Torchrun(nsys_profile=True)
        app = package("job", run.Script("t.py", entrypoint="python"), executor)
        args = command(app)
        assert args[:2] == ["nsys", "profile"]
        torchrun = next(arg for arg in args if arg.endswith("torchrun"))
        assert args.index("--cuda-event-trace=false") < args.index(torchrun)
        assert "" not in args


class TestMerging:
    def test_roles_follow_each_other_and_metadata_is_merged(
        self, executor: run.LocalExecutor
    ) -> None:
        apps = [
            package(f"g-{i}", run.Script(inline="true", metadata={f"k{i}": i}), executor)
            for i in range(2)
        ]
        merged = merge_executables(iter(apps), "g")
        assert merged.name == "g"
        assert [role.name for role in merged.roles] == ["g-0", "g-1"]
        assert {"k0", "k1"} <= merged.metadata.keys()
