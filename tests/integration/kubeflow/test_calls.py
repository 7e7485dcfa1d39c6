"""The calls of the executor that scripts for 0.12 use."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from tests.contract.backends import KubeflowCluster
from tests.emulators.faults import Fault
from tests.emulators.kubernetes import KubernetesEmulator
from tests.integration.kubeflow.waiting import until
from torchx.specs import AppState

import nemo_run as run
from nemo_run.core.execution.kubeflow import KubeflowJobState
from nemo_run.exceptions import BackendUnavailableError

pytestmark = pytest.mark.slow


def assigned(cluster: KubeflowCluster, **settings: object) -> run.KubeflowExecutor:
    executor = cluster.assigned("job", **settings)
    assert isinstance(executor, run.KubeflowExecutor)
    return executor


def has_succeeded(executor: run.KubeflowExecutor, name: str) -> bool:
    return executor.status(name) is KubeflowJobState.SUCCEEDED


def test_a_command_is_launched_watched_and_cancelled(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    executor = assigned(bare)
    name, state = executor.launch("My Job", ["sh", "-c", "echo up; sleep 60"])
    assert state is KubeflowJobState.CREATED
    assert name.startswith("my-job-")
    until(lambda: executor.status(name) is KubeflowJobState.RUNNING)
    assert executor.cancel(name, wait=True) is True
    assert executor.status(name) is None
    assert executor.cancel(name, wait=True) is None
    assert not emulator.pods


def test_a_launch_that_belongs_to_no_job_takes_no_files_along(
    cluster: KubeflowCluster,
    emulator: KubernetesEmulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "private").touch()
    monkeypatch.chdir(here)
    executor = cluster.executor()
    assert isinstance(executor, run.KubeflowExecutor)
    name, _ = executor.launch("job", ["true"])
    until(functools.partial(has_succeeded, executor, name))
    assert not list(emulator.volume("work").rglob("private"))


def test_the_same_executor_launches_as_often_as_it_is_asked(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    executor = assigned(bare)
    names = [executor.launch("job", ["true"], wait=True, poll_interval=1)[0] for _ in range(2)]
    assert len(set(names)) == 2
    for name in names:
        until(functools.partial(has_succeeded, executor, name))


def test_a_job_that_does_not_start_in_time_is_an_error(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    with emulator.held(), pytest.raises(RuntimeError, match="has not started"):
        assigned(bare).launch("job", ["true"], wait=True, timeout=1, poll_interval=1)


def test_cancelling_does_not_wait_longer_than_told(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    executor = assigned(bare)
    name, _ = executor.launch("job", ["sh", "-c", "trap '' TERM; sleep 60"])
    until(lambda: executor.status(name) is KubeflowJobState.RUNNING)
    assert executor.cancel(name) is None
    assert executor.cancel(name, wait=True, timeout=60, poll_interval=1) in (True, None)


def test_a_job_is_cancelled_by_its_id_and_the_scheduler_knows(
    bare: KubeflowCluster,
) -> None:
    app_id = bare.schedule("echo up; sleep 60")
    bare.wait_for_line(app_id, "up\n")
    assert assigned(bare).cancel(f"kubeflow://nemo_run/{app_id}", wait=True) is True
    assert bare.wait(app_id).state is AppState.CANCELLED


class TestLogs:
    def test_the_last_lines_are_those_that_were_asked_for(self, bare: KubeflowCluster) -> None:
        executor = assigned(bare)
        name, _ = executor.launch("job", ["sh", "-c", "seq 200"])
        until(lambda: executor.status(name) is KubeflowJobState.SUCCEEDED)
        assert list(executor.fetch_logs(name, lines=3)) == ["198\n", "199\n", "200\n"]
        assert len(list(executor.fetch_logs(name))) == 100
        assert list(executor.fetch_logs(name, stream=True))[-1] == "200\n"
        everything = Path(executor.job_dir) / "log-allranks_0.out"
        assert everything.read_text().startswith("1\n2\n")

    def test_of_torchruns_processes_the_first_and_the_last_are_shown(
        self, bare: KubeflowCluster
    ) -> None:
        say = 'for i in 0 1 2; do echo "[default$i]: node $PET_NODE_RANK"; done; echo plain'
        executor = assigned(bare, num_nodes=2, nprocs_per_node=3)
        name, _ = executor.launch("job", ["sh", "-c", say])
        until(lambda: executor.status(name) is KubeflowJobState.SUCCEEDED)
        assert list(executor.fetch_logs(name)) == [
            "[default0]: node 0\n",
            "plain\n",
            "[default2]: node 1\n",
            "plain\n",
        ]

    def test_what_all_nodes_say_is_streamed_as_it_comes_and_noted_once(
        self, bare: KubeflowCluster
    ) -> None:
        go = bare.scratch / "go"
        wait = f"for i in $(seq 100); do [ -e '{go}' ] && break; sleep 0.1; done"
        executor = assigned(bare, num_nodes=2)
        name, _ = executor.launch("job", ["sh", "-c", f"echo $PET_NODE_RANK; {wait}; echo end"])
        lines = iter(executor.fetch_logs(name, stream=True))
        assert {next(lines), next(lines)} == {"0\n", "1\n"}
        go.touch()
        assert list(lines) == ["end\n"] * 2
        assert list(executor.fetch_logs(name)) == ["0\n", "end\n", "1\n", "end\n"]
        everything = Path(executor.job_dir) / "log-allranks_0.out"
        assert everything.read_text() == "0\nend\n1\nend\n"

    def test_nodes_in_the_middle_are_noted_and_not_shown(self, bare: KubeflowCluster) -> None:
        executor = assigned(bare, num_nodes=3)
        name, _ = executor.launch("job", ["sh", "-c", "echo node $PET_NODE_RANK"])
        until(lambda: executor.status(name) is KubeflowJobState.SUCCEEDED)
        for stream in (False, True):
            shown = sorted(executor.fetch_logs(name, stream=stream))
            assert shown == ["node 0\n", "node 2\n"]
            everything = Path(executor.job_dir) / "log-allranks_0.out"
            assert sorted(everything.read_text().splitlines()) == ["node 0", "node 1", "node 2"]
            everything.unlink()

    def test_what_was_noted_stays_where_less_is_to_be_had(
        self, bare: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        executor = assigned(bare)
        name, _ = executor.launch("job", ["seq", "1000"])
        until(lambda: executor.status(name) is KubeflowJobState.SUCCEEDED)
        list(executor.fetch_logs(name))
        everything = Path(executor.job_dir) / "log-allranks_0.out"
        noted = everything.read_text()
        assert len(noted.splitlines()) == 1000
        with (
            emulator.faults.on(Fault(path="/log$", cut_after=500)),
            pytest.raises(BackendUnavailableError),
        ):
            list(executor.fetch_logs(name))
        emulator.expire(name)
        for stream in (False, True):
            assert list(executor.fetch_logs(name, stream=stream)) == []
        assert everything.read_text() == noted

    def test_streaming_ends_with_a_job_that_is_deleted(self, bare: KubeflowCluster) -> None:
        executor = assigned(bare)
        name, _ = executor.launch("job", ["sh", "-c", "echo up; sleep 60"])
        lines = iter(executor.fetch_logs(name, stream=True))
        assert next(lines) == "up\n"
        executor.cancel(name)
        assert list(lines) == []


def test_the_script_is_written_for_its_owner_alone(bare: KubeflowCluster) -> None:
    executor = assigned(bare, env_vars={"name": "a b"})
    path = Path(executor.materialize_launch_script(["echo", "a  b"], max_retries=2))
    text = path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert "export name='a b'" in text
    assert "TORCHX_MAX_RETRIES=2" in text
    assert "echo 'a  b'" in text


def test_nothing_is_moved_without_a_volume(
    bare: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    executor = assigned(bare)
    executor.copy_to_workspace(str(tmp_path), "/workspace/x")
    executor.copy_from_workspace("/workspace/x", str(tmp_path))
    assert emulator.movers == []
