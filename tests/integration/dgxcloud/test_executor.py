"""The calls that NeMo Run 0.12 has on the executor."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.backends import DGXCloudCluster
from tests.emulators.faults import Fault
from tests.emulators.runai import RunaiEmulator

import nemo_run as run
from nemo_run.core.execution.dgxcloud import DGXCloudExecutor, DGXCloudRequest, DGXCloudState
from nemo_run.core.execution.launcher import FaultTolerance, Torchrun
from nemo_run.exceptions import ConfigError

pytestmark = pytest.mark.slow


def assigned(cluster: DGXCloudCluster, **settings: Any) -> DGXCloudExecutor:
    executor = cluster.assigned("job", **settings)
    assert isinstance(executor, DGXCloudExecutor)
    return executor


@pytest.fixture
def executor(cluster: DGXCloudCluster) -> DGXCloudExecutor:
    return assigned(cluster)


def wait(executor: DGXCloudExecutor, job_id: str, *states: DGXCloudState) -> None:
    deadline = patience.deadline(30)
    while executor.status(job_id) not in states:
        assert time.monotonic() < deadline
        time.sleep(0.05)


class TestCalls:
    def test_a_token_and_the_ids_of_the_project_can_be_had(
        self, executor: DGXCloudExecutor
    ) -> None:
        token = executor.get_auth_token()
        assert token
        project_id, cluster_id = executor.get_project_and_cluster_id(token)
        assert project_id == "28"
        assert cluster_id

    @pytest.mark.parametrize("name", ["", "team-x"])
    def test_a_project_is_not_guessed(self, cluster: DGXCloudCluster, name: str) -> None:
        executor = assigned(cluster, project_name=name)
        assert executor.get_project_and_cluster_id("any") == (None, None)

    def test_there_is_no_token_for_a_wrong_secret(
        self, cluster: DGXCloudCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WRONG_SECRET", "nonsense")
        executor = assigned(cluster, client_secret="env:WRONG_SECRET")
        assert executor.get_auth_token() is None

    def test_a_command_is_launched_watched_and_read(self, executor: DGXCloudExecutor) -> None:
        job_id, phase = executor.launch("My_job.1", ["bash", "-c", "echo hi; echo there"])
        assert DGXCloudState(phase) in DGXCloudState
        assert list(executor.fetch_logs(job_id, stream=True)) == ["hi\n", "there\n"]
        wait(executor, job_id, DGXCloudState.COMPLETED)
        assert list(executor.fetch_logs(job_id, stream=False)) == ["hi\n", "there\n"]

    @pytest.mark.parametrize("nodes", [1, 2])
    def test_a_job_can_be_cancelled(self, cluster: DGXCloudCluster, nodes: int) -> None:
        executor = assigned(cluster, nodes=nodes)
        job_id, _ = executor.launch("job", ["sleep", "60"])
        executor.cancel(job_id)
        wait(executor, job_id, DGXCloudState.STOPPED)

    def test_the_last_part_of_a_handle_names_the_workload(self, cluster: DGXCloudCluster) -> None:
        with run.Experiment("train", executor=cluster.executor()) as exp:
            exp.add(run.Script(inline="echo hi; sleep 60"), name="job")
            exp.run(detach=True)
        executor = exp.jobs[0].executor
        assert isinstance(executor, DGXCloudExecutor)
        job_id = exp.jobs[0].handle.split("___")[-1]
        wait(executor, job_id, DGXCloudState.RUNNING)
        lines = iter(executor.fetch_logs(job_id, stream=True))
        assert next(lines) == "hi\n"
        executor.cancel(job_id)
        wait(executor, job_id, DGXCloudState.STOPPED)

    def test_the_state_of_what_is_not_there_is_not_known(self, executor: DGXCloudExecutor) -> None:
        assert executor.status("nonsense") is None

    def test_a_workload_can_be_created_from_a_script_on_the_volume(
        self, executor: DGXCloudExecutor, emulator: RunaiEmulator
    ) -> None:
        executor.deploy_script_to_pvc("echo deployed", f"{executor.pvc_job_dir}/launch_script.sh")
        (there,) = emulator.volume("work").rglob("launch_script.sh")
        assert there.stat().st_mode & 0o777 == 0o700
        token = executor.get_auth_token()
        assert token
        project_id, cluster_id = executor.get_project_and_cluster_id(token)
        assert project_id
        assert cluster_id
        response = executor.create_training_job(token, project_id, cluster_id, "job")
        assert response.status_code == 202
        job_id = response.json()["workloadId"]
        assert list(executor.fetch_logs(job_id, stream=True)) == ["deployed\n"]

    def test_a_name_may_be_used_again(self, executor: DGXCloudExecutor) -> None:
        executor.deploy_script_to_pvc("true", f"{executor.pvc_job_dir}/launch_script.sh")
        token = executor.get_auth_token()
        assert token
        project_id, cluster_id = executor.get_project_and_cluster_id(token)
        answers = [
            executor.create_training_job(token, project_id or "", cluster_id or "", "job")
            for _ in range(2)
        ]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert len({answer.json()["name"] for answer in answers}) == 2

    def test_a_refusal_is_returned_as_it_is(
        self, executor: DGXCloudExecutor, emulator: RunaiEmulator
    ) -> None:
        emulator.faults.add(Fault(path="/workloads/trainings$", status=403, message="no"))
        assert executor.create_training_job("t", "28", "c", "job").status_code == 403

    @pytest.mark.parametrize("given", [("", "p", "c"), ("t", "", "c"), ("t", "p", "")])
    def test_nothing_is_created_without_a_token_and_ids(
        self, executor: DGXCloudExecutor, given: tuple[str, str, str]
    ) -> None:
        with pytest.raises(ConfigError, match="token"):
            executor.create_training_job(*given, "job")

    def test_the_job_directory_can_be_moved_alone(
        self, executor: DGXCloudExecutor, emulator: RunaiEmulator
    ) -> None:
        (Path(executor.job_dir) / "file").write_text("content")
        executor.move_data("token", "28", "cluster")
        (there,) = emulator.volume("work").rglob("file")
        assert there.read_text() == "content"

    def test_a_workspace_can_be_deleted(
        self, executor: DGXCloudExecutor, emulator: RunaiEmulator
    ) -> None:
        executor.move_data("token", "28", "cluster")
        (mover,) = emulator.workloads.values()
        assert executor.delete_workload("token", mover.id).status_code == 202
        assert mover.desired == "Deleted"

    def test_a_directory_can_be_written_as_a_command(
        self, executor: DGXCloudExecutor, tmp_path: Path
    ) -> None:
        source, target = tmp_path / "from", tmp_path / "it's to"
        (source / "deep").mkdir(parents=True)
        (source / "deep" / "file").write_text("content")
        target.mkdir()
        (target / "old").touch()
        command = executor.copy_directory_data_command(str(source), str(target))
        subprocess.run(["sh", "-c", command], check=True)
        assert (target / "deep" / "file").read_text() == "content"
        assert sorted(path.name for path in target.iterdir()) == ["deep"]


class TestAnswers:
    def test_processes_are_as_many_as_gpus_where_there_are_any(
        self, cluster: DGXCloudCluster
    ) -> None:
        assert assigned(cluster, gpus_per_node=8, nprocs_per_node=2).nproc_per_node() == 8
        assert assigned(cluster, nprocs_per_node=2).nproc_per_node() == 2
        assert assigned(cluster, nprocs_per_node=0).nproc_per_node() == 1

    def test_the_directory_of_a_job_is_below_the_home_on_the_volume(
        self, cluster: DGXCloudCluster, nemorun_home: Path
    ) -> None:
        executor = cluster.executor()
        assert isinstance(executor, DGXCloudExecutor)
        executor.assign("t_1", str(nemorun_home / "experiments" / "t" / "t_1"), "job", "job")
        assert executor.pvc_job_dir == "/workspace/nemo_run/experiments/t/t_1/job"

    def test_a_job_that_is_kept_elsewhere_has_a_directory_too(
        self, cluster: DGXCloudCluster, tmp_path: Path
    ) -> None:
        executor = cluster.executor()
        assert isinstance(executor, DGXCloudExecutor)
        executor.assign("t_1", str(tmp_path / "elsewhere"), "job", "job")
        assert executor.pvc_job_dir == "/workspace/nemo_run/experiments/t_1/job"

    def test_headers_show_a_token_if_there_is_one(self, executor: DGXCloudExecutor) -> None:
        plain = {"Accept": "application/json", "Content-Type": "application/json"}
        assert executor._default_headers() == plain
        assert executor._default_headers("t") == {**plain, "Authorization": "Bearer t"}

    def test_a_profile_is_written_to_the_volume(self, cluster: DGXCloudCluster) -> None:
        executor = assigned(cluster, launcher=Torchrun(nsys_profile=True))
        prefix = executor.get_launcher_prefix()
        assert prefix is not None
        assert "/nemo_run/nsys_profile/profile_%p" in prefix

    def test_a_request_shows_its_script_without_secrets(self, executor: DGXCloudExecutor) -> None:
        request = DGXCloudRequest(
            launch_cmd=["echo", "hi there"],
            jobs=["job"],
            executor=executor,
            max_retries=2,
            extra_env={"MY_TOKEN": "hunter2"},
            launcher=FaultTolerance(),
        )
        assert "export MY_TOKEN=hunter2" in request.materialize()
        assert "hunter2" not in repr(request)
        assert "echo 'hi there'" in repr(request)
        assert f"FAULT_TOL_FINISHED_FLAG_FILE={executor.pvc_job_dir}/job_finished_flag" in repr(
            request
        )
