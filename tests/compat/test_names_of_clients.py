"""Names that programs import, replace in their tests and extend, whatever their underscore says."""

from __future__ import annotations

import importlib
import inspect
import io
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import nemo_run as run
from nemo_run.core.serialization.yaml import YamlSerializer
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import (
    AuthenticationError,
    ConfigError,
    JobNotFoundError,
    SubmitError,
    UnsupportedError,
)
from nemo_run.run.logs import get_logs
from nemo_run.run.torchx_backend.packaging import _serialize
from nemo_run.run.torchx_backend.schedulers.api import EXECUTOR_MAPPING, get_executor_str

IMPORTED = {
    "nemo_run.config": ["NEMORUN_HOME", "get_nemorun_home", "set_nemorun_home"],
    "nemo_run.core.tunnel": ["Callback", "LocalTunnel", "PackagingJob", "SSHTunnel", "Tunnel"],
    "nemo_run.core.tunnel.client": ["RunResult", "Context"],
    "nemo_run.core.tunnel.rsync": ["rsync"],
    "nemo_run.core.execution.slurm": [
        "Context",
        "LocalTunnel",
        "SSHTunnel",
        "SlurmJobDetails",
        "get_packaging_job_key",
    ],
    "nemo_run.core.packaging.git": ["Context"],
    "nemo_run.core.packaging.pattern": ["Context"],
    "nemo_run.core.packaging.hybrid": ["Context"],
    "nemo_run.cli.lazy": ["DictConfig", "LazyEntrypoint"],
    "nemo_run.run.experiment": ["rsync"],
    "nemo_run.run.job": ["AppState", "Job", "Runner"],
    "nemo_run.run.ray.cluster": ["RayCluster"],
    "nemo_run.run.ray.job": ["RayJob"],
    "nemo_run.run.ray.slurm": ["SlurmRayCluster", "SlurmRayRequest", "logger", "rsync"],
    "nemo_run.run.task": ["Context"],
    "nemo_run.run.torchx_backend.packaging": ["_serialize"],
    "invoke": ["StreamWatcher"],
}
NAMES = [(module, name) for module, names in IMPORTED.items() for name in names]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_is_there_and_can_be_replaced(module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    assert found is not None
    with mock.patch(f"{module}.{name}") as replaced:
        assert getattr(importlib.import_module(module), name) is replaced
    assert getattr(importlib.import_module(module), name) == found


@pytest.mark.parametrize("module", sorted({module for module, _ in NAMES} - {"invoke"}))
def test_a_name_that_is_not_there_is_said(module: str) -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'"):
        importlib.import_module(module).nothing  # noqa: B018


def test_the_home_is_the_one_that_is_used(nemorun_home: Path) -> None:
    from nemo_run.config import NEMORUN_HOME

    assert str(nemorun_home) == NEMORUN_HOME


def test_states_of_lepton_are_the_vendors() -> None:
    pytest.importorskip("leptonai")
    from nemo_run.core.execution.lepton import LeptonJobState

    assert LeptonJobState.Running.value == "Running"


def add(a: int, b: int = 2) -> None:
    print("sum", a + b)


def test_a_task_is_made_text() -> None:
    task = run.Partial(add, a=1)
    assert ZlibJSONSerializer().deserialize(_serialize(task)) == task
    assert "a: 1" in _serialize(task, serializer_cls=YamlSerializer)


class TestRunIsAFunction:
    def test_its_signature_is_that_of_the_function(self) -> None:
        from nemo_run.help import help as help_function
        from nemo_run.run.api import run as run_function

        assert inspect.signature(run.run) == inspect.signature(run_function)
        assert "fn_or_script" in inspect.signature(run.run).parameters
        assert inspect.signature(run.help) == inspect.signature(help_function)

    def test_it_can_be_given_to_other_processes(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text("def greet(name):\n    print('hello', name)\n")
        (tmp_path / "main.py").write_text(
            "import copy, multiprocessing as mp\n"
            "import nemo_run as run\n"
            "from mine import greet\n"
            "if __name__ == '__main__':\n"
            "    assert copy.deepcopy({'do': run.run})['do'] is run.run\n"
            "    with mp.get_context('spawn').Pool(1) as pool:\n"
            "        pool.apply(run.run, (run.Partial(greet, name='you'),), {'direct': True})\n"
        )
        done = subprocess.run(
            [sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert "hello you" in done.stdout

    def test_modules_below_it_are_found(self) -> None:
        assert run.run.experiment.Experiment is run.Experiment  # type: ignore[attr-defined]


class TestExecutorsOfPrograms:
    """A program registers a class of its own the way 0.12 wants it."""

    @pytest.fixture(autouse=True)
    def lists(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("_PARALLEL_SUPPORTED_EXECUTORS", "_DETACH_SUPPORTED_EXECUTORS"):
            monkeypatch.setattr(run.Experiment, name, getattr(run.Experiment, name))
        monkeypatch.setattr(
            "nemo_run.run.torchx_backend.schedulers._mapping.EXECUTOR_MAPPING",
            dict(EXECUTOR_MAPPING),
        )

    def test_lists_of_executors_can_be_added_to(self) -> None:
        class Mine(run.DGXCloudExecutor):
            pass

        assert run.SlurmExecutor in run.Experiment._DETACH_SUPPORTED_EXECUTORS
        assert Mine not in run.Experiment._PARALLEL_SUPPORTED_EXECUTORS
        run.Experiment._PARALLEL_SUPPORTED_EXECUTORS += (Mine,)  # type: ignore[assignment]
        run.Experiment._DETACH_SUPPORTED_EXECUTORS += (Mine,)  # type: ignore[assignment]
        assert run.Experiment._DETACH_SUPPORTED_EXECUTORS[-1] is Mine

    def test_a_class_may_be_registered_with_its_scheduler(self) -> None:
        from nemo_run.run.torchx_backend.schedulers import api

        class Mine(run.Executor):
            pass

        with pytest.raises(KeyError, match="does not say which scheduler") as caught:
            get_executor_str(Mine())
        assert isinstance(caught.value, ConfigError)
        api.EXECUTOR_MAPPING[Mine] = "local_persistent"
        assert get_executor_str(Mine()) == "local_persistent"

    def test_what_was_added_can_be_detached(self) -> None:
        from nemo_run._experiments.jobs.checks import check_can_detach
        from nemo_run.run.job import Job

        class Mine(run.Executor):
            pass

        jobs = [Job(id="a", task=run.Script(inline="true"), executor=Mine())]
        with pytest.raises(UnsupportedError, match="end with this process"):
            check_can_detach(jobs, run.Experiment._DETACH_SUPPORTED_EXECUTORS)
        run.Experiment._DETACH_SUPPORTED_EXECUTORS += (Mine,)  # type: ignore[assignment]
        check_can_detach(jobs, run.Experiment._DETACH_SUPPORTED_EXECUTORS)


class TestErrorsThatProgramsCatch:
    def test_a_launcher_that_is_not_there(self) -> None:
        with pytest.raises(KeyError, match=r"^There is no launcher 'torchrum'"):
            run.LocalExecutor(launcher="torchrum").get_launcher()

    def test_what_has_no_name_that_can_be_imported(self) -> None:
        def inner() -> None: ...

        for target in (inner, lambda: 1):
            with pytest.raises(AttributeError, match="Unserializable"):
                ZlibJSONSerializer().serialize(run.Partial(target))

    def test_a_mount_of_lepton_that_lacks_a_path(self) -> None:
        executor = run.LeptonExecutor(
            container_image="i",
            nemo_run_dir="/v/n",
            resource_shape="cpu.small",
            mounts=[{"mount_path": "/v"}],
        )
        with pytest.raises(RuntimeError, match="has no path"):
            executor.check()

    def test_a_job_or_a_login_that_is_refused(self) -> None:
        for kind in (SubmitError, AuthenticationError):
            with pytest.raises(RuntimeError, match="no"):
                raise kind("no", backend="lepton")

    def test_a_log_that_is_not_there(self) -> None:
        with pytest.raises(RuntimeError):
            get_logs(io.StringIO(), "local_persistent://nemo_run/nothing", None)


class TestJobsOfPrograms:
    def test_logs_are_chosen_by_role_and_replica(self) -> None:
        with run.Experiment("logs", clean_mode=True) as experiment:
            experiment.add(run.Script(inline="echo it is me"), name="me")
            experiment.run()
        handle = experiment.jobs[0].handle
        for identifier in (handle, f"{handle}/me", f"{handle}/me/0"):
            printed = io.StringIO()
            get_logs(printed, identifier, None)
            assert "it is me" in printed.getvalue()
        for identifier, why in ((f"{handle}/you", "no role"), (f"{handle}/me/1", "no replica 1")):
            with pytest.raises(JobNotFoundError, match=why):
                get_logs(io.StringIO(), identifier, None)
        with pytest.raises(ConfigError, match="not a replica's number"):
            get_logs(io.StringIO(), f"{handle}/me/first", None)
        with pytest.raises(ConfigError, match="'job-1' is not a handle"):
            get_logs(io.StringIO(), "job-1", None)

    def test_some_jobs_can_be_waited_for(self) -> None:
        with run.Experiment("some", clean_mode=True) as experiment:
            experiment.add(run.Script(inline="echo quick"), name="quick")
            experiment.add(run.Script(inline="sleep 60"), name="slow")
            experiment.run(detach=True)
            experiment._wait_for_jobs([experiment._jobs[0]])
            found = experiment.status(return_dict=True) or {}
            experiment.cancel("slow")
            experiment._wait_for_jobs(experiment.jobs)
        assert found["quick"]["status"].name == "SUCCEEDED"
        assert found["slow"]["status"].name in {"PENDING", "RUNNING"}
