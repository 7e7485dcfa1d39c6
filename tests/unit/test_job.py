"""Jobs and groups on their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import fiddle as fdl
import pytest
from tests.contract import tasks
from tests.contract.experiments import experiment, script
from torchx.specs import AppState

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import Runner, get_runner


@pytest.fixture
def runner() -> Runner:
    return get_runner()


def assigned(tmp_path: Path, name: str) -> run.LocalExecutor:
    executor = run.LocalExecutor()
    executor.assign("e_1", str(tmp_path), name, name)
    return executor


def job(tmp_path: Path, text: str) -> Job:
    return Job(id="a", task=run.Script(inline=text), executor=assigned(tmp_path, "a"))


class TestJob:
    def test_starts_as_unsubmitted(self, tmp_path: Path) -> None:
        made = job(tmp_path, "true")
        assert (made.handle, made.launched, made.state) == ("", False, AppState.UNSUBMITTED)
        assert (made.plugins, made.tail_logs, made.dependencies) == (None, False, [])

    def test_is_stored_without_its_task(self, tmp_path: Path) -> None:
        made = Job(id="a", task=run.Partial(tasks.say), executor=assigned(tmp_path, "a"))
        text, task = made.serialize()
        stored = ZlibJSONSerializer().deserialize(text)
        assert stored.task is None
        assert stored.id == "a"
        assert ZlibJSONSerializer().deserialize(task) == run.Partial(tasks.say)

    def test_runs_and_is_waited_for(self, tmp_path: Path, runner: Runner) -> None:
        made = job(tmp_path, "exit 0")
        assert made.status(runner) is AppState.UNSUBMITTED
        made.prepare()
        made.launch(wait=True, runner=runner)
        assert made.launched
        assert made.handle.startswith("local_persistent://nemo_run/a-")
        assert made.wait(runner) is AppState.SUCCEEDED
        assert made.status(runner) is AppState.SUCCEEDED

    def test_says_how_it_failed(self, tmp_path: Path, runner: Runner) -> None:
        made = job(tmp_path, "exit 1")
        made.prepare()
        made.launch(wait=False, runner=runner)
        assert made.wait(runner) is AppState.FAILED

    def test_can_be_cancelled(self, tmp_path: Path, runner: Runner) -> None:
        made = job(tmp_path, "sleep 60")
        made.prepare()
        made.launch(wait=False, runner=runner)
        made.cancel(runner)
        assert made.status(runner) is AppState.CANCELLED

    def test_a_dry_run_launches_nothing(self, tmp_path: Path, runner: Runner) -> None:
        made = job(tmp_path, "true")
        made.prepare()
        made.launch(wait=False, runner=runner, dryrun=True)
        assert (made.launched, made.handle) == (False, "")

    def test_prints_its_log(
        self, tmp_path: Path, runner: Runner, capfd: pytest.CaptureFixture[str]
    ) -> None:
        made = job(tmp_path, "echo heard")
        made.prepare()
        made.launch(wait=True, runner=runner)
        made.logs(runner)
        assert "heard\n" in capfd.readouterr().err

    def test_trouble_while_cleaning_up_is_only_logged(self, tmp_path: Path, runner: Runner) -> None:
        class Messy(run.LocalExecutor):
            def cleanup(self, handle: str) -> None:
                raise OSError("no")

        executor = Messy()
        executor.assign("e_1", str(tmp_path), "a", "a")
        made = Job(id="a", task=run.Script(inline="true"), executor=executor)
        made.state = AppState.SUCCEEDED
        made.cleanup()


class TestGroup:
    def group(self, tmp_path: Path, *texts: str) -> JobGroup:
        members: list[Any] = [run.Script(inline=text) for text in texts]
        return JobGroup(
            id="g",
            tasks=members,
            executors=assigned(tmp_path, "g"),
        )

    def test_starts_as_unsubmitted(self, tmp_path: Path) -> None:
        made = self.group(tmp_path, "true", "true")
        assert (made.state, made.handle, made.handles) == (AppState.UNSUBMITTED, "", [])
        assert isinstance(made.executor, run.LocalExecutor)

    def test_is_stored_without_its_tasks(self, tmp_path: Path) -> None:
        text, task = self.group(tmp_path, "echo 1", "echo 2").serialize()
        assert list(ZlibJSONSerializer().deserialize(text).tasks) == [None, None]
        assert fdl.build(ZlibJSONSerializer().deserialize(task)) == [
            run.Script(inline="echo 1"),
            run.Script(inline="echo 2"),
        ]

    def test_every_member_is_launched(self, tmp_path: Path, runner: Runner) -> None:
        made = self.group(tmp_path, "true", "true", "true")
        made.prepare()
        made.launch(wait=True, runner=runner)
        assert len(made.handles) == 3
        assert made.wait(runner) is AppState.SUCCEEDED
        assert made.states == [AppState.SUCCEEDED] * 3

    def test_can_be_cancelled(self, tmp_path: Path, runner: Runner) -> None:
        made = self.group(tmp_path, "sleep 60", "sleep 60")
        made.prepare()
        made.launch(wait=False, runner=runner)
        made.cancel(runner)
        assert made.status(runner) is AppState.CANCELLED

    def test_cannot_be_run_directly(self, tmp_path: Path, runner: Runner) -> None:
        made = self.group(tmp_path, "true")
        made.prepare()
        with pytest.raises(NotImplementedError):
            made.launch(wait=True, runner=runner, direct=True)

    @pytest.mark.parametrize("count", [0, 3])
    def test_needs_one_executor_or_one_for_each_task(self, tmp_path: Path, count: int) -> None:
        members: list[Any] = [run.Script(inline="true")] * 2
        with pytest.raises(AssertionError):
            JobGroup(
                id="g",
                tasks=members,
                executors=[assigned(tmp_path, "g") for _ in range(count)],
            )


class _Tidy(run.LocalExecutor):
    tidied: ClassVar[list[str]] = []

    def cleanup(self, handle: str) -> None:
        self.tidied.append(handle)
        raise OSError("not now")


def test_leaving_an_experiment_cleans_up_after_each_job_that_began(monkeypatch: Any) -> None:
    monkeypatch.setattr(_Tidy, "tidied", [])
    with experiment(executor=_Tidy(), check=False) as exp:
        exp.add(script("true"), name="well")
        bad = exp.add(script("exit 3"), name="badly")
        exp.add(script("true"), name="never", dependencies=[bad])
        exp.run()
        assert _Tidy.tidied == []
    assert sorted(_Tidy.tidied) == sorted(job.handle for job in exp.jobs[:2])


def test_detaching_cleans_up_nothing(monkeypatch: Any) -> None:
    monkeypatch.setattr(_Tidy, "tidied", [])
    with experiment(executor=_Tidy()) as exp:
        exp.add(script("true"), name="a")
        exp.run(detach=True)
    exp.wait()
    assert _Tidy.tidied == []


class TestRunner:
    def test_its_name_is_in_every_handle(self, tmp_path: Path, runner: Runner) -> None:
        made = job(tmp_path, "true")
        (app,) = made.prepare()
        handle = runner.run(app, "local_persistent", made.executor)
        assert handle.startswith("local_persistent://nemo_run/a-")
        status = runner.wait(handle, wait_interval=0.05)
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        assert [line for line in runner.log_lines(handle, "a")] == []

    def test_refuses_what_cannot_run(self, tmp_path: Path, runner: Runner) -> None:
        from torchx.specs import AppDef, Role

        executor = assigned(tmp_path, "a")
        for roles in (
            [],
            [Role(name="a", image="", entrypoint="")],
            [Role(name="a", image="", entrypoint="true", num_replicas=0)],
        ):
            with pytest.raises(ValueError):
                runner.dryrun(AppDef(name="a", roles=roles), "local_persistent", executor)

    def test_nothing_is_known_of_another_handle(self, runner: Runner) -> None:
        assert runner.status("local_persistent://nemo_run/never") is None
