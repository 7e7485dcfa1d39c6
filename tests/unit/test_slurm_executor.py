"""The Slurm executor as a value: sizes, places, and jobs that wait for each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torchx.specs import AppDef, Role

import nemo_run as run
from nemo_run.core.execution.slurm import SlurmExecutor, get_packaging_job_key
from nemo_run.exceptions import ConfigError, UnsupportedError
from nemo_run.run.torchx_backend.schedulers.slurm import create_scheduler


def executor(**settings: Any) -> SlurmExecutor:
    return SlurmExecutor(account="a", **settings)


class TestSizes:
    @pytest.mark.parametrize(
        ("settings", "processes"),
        [
            ({}, 1),
            ({"ntasks_per_node": 4}, 4),
            ({"gpus_per_node": 8}, 8),
            ({"gpus_per_node": 8, "ntasks_per_node": 4}, 4),
            ({"gpus_per_task": 2, "ntasks_per_node": 4}, 2),
            ({"gpus_per_task": 2, "ntasks_per_node": 4, "launcher": "torchrun"}, 4),
            ({"torchrun_nproc_per_node": 3, "gpus_per_node": 8}, 3),
        ],
    )
    def test_how_many_processes_a_launcher_starts(
        self, settings: dict[str, Any], processes: int
    ) -> None:
        assert executor(**settings).nproc_per_node() == processes

    def test_a_negative_pause_is_none(self) -> None:
        assert executor(wait_time_for_group_job=-5).wait_time_for_group_job == 0


class TestPlaces:
    def test_a_job_lives_below_the_directory_of_its_tunnel(self, tmp_path: Path) -> None:
        tunnel = run.SSHTunnel(host="h", user="u", job_dir="/base")
        mine = executor(tunnel=tunnel)
        mine.assign("title_1", str(tmp_path), "job", "job")
        assert mine.tunnel.job_dir == "/base/title/title_1"
        assert mine.remote_dir == "/base/title/title_1/job"
        assert tunnel.job_dir == "/base"

    def test_assigning_a_stored_executor_again_nests_nothing(self, tmp_path: Path) -> None:
        first = executor(tunnel=run.SSHTunnel(host="h", user="u", job_dir="/base"))
        first.assign("title_1", str(tmp_path), "job", "job")
        again = first.clone()
        again.assign("title_2", str(tmp_path), "job", "job")
        assert again.remote_dir == "/base/title/title_2/job"

    @pytest.mark.parametrize("job_dir", ["~/jobs", "jobs", ""])
    def test_a_place_that_only_the_cluster_could_name_is_refused(
        self, tmp_path: Path, job_dir: str
    ) -> None:
        mine = executor(tunnel=run.SSHTunnel(host="h", user="u", job_dir=job_dir))
        mine.assign("title_1", str(tmp_path), "job", "job")
        app = AppDef("job", roles=[Role("job", image="", entrypoint="true")])
        with pytest.raises(ConfigError, match=f"{job_dir}.*whole path"):
            create_scheduler("test").submit_dryrun(app, mine)

    def test_retries_of_a_job_that_may_not_be_queued_again_are_refused(
        self, tmp_path: Path
    ) -> None:
        mine = executor(additional_parameters={"no-requeue": True})
        mine.assign("title_1", str(tmp_path), "job", "job")
        app = AppDef("job", roles=[Role("job", image="", entrypoint="true", max_retries=2)])
        with pytest.raises(UnsupportedError, match=r"retries=2.*no_requeue"):
            create_scheduler("test").submit_dryrun(app, mine)

    def test_an_array_may_be_asked_for_as_a_further_option(self) -> None:
        assert executor(additional_parameters={"array": "0-3"}).array == "0-3"

    def test_a_place_on_this_machine_is_named_from_here(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", "/home/me")
        for job_dir, base in (("jobs", f"{tmp_path}/jobs"), ("~/jobs", "/home/me/jobs")):
            mine = executor(tunnel=run.LocalTunnel(job_dir=job_dir))
            mine.assign("title_1", str(tmp_path), "job", "job")
            assert mine.remote_dir == f"{base}/title/title_1/job"

    def test_from_a_login_node_a_job_lives_in_its_experiment(self, nemorun_home: Path) -> None:
        directory = nemorun_home / "experiments" / "title" / "title_1"
        mine = executor()
        mine.assign("title_1", str(directory), "job", "job")
        assert mine.remote_dir == mine.job_dir == str(directory / "job")

    def test_configs_are_named_as_a_container_sees_them(self, tmp_path: Path) -> None:
        mine = executor()
        mine.assign("title_1", str(tmp_path), "job", "job")
        assert mine.package_configs(("x", "text")) == ["/nemo_run/configs/x"]

    def test_the_key_of_a_packaging_job(self) -> None:
        assert get_packaging_job_key("title_1", "job") == "title_1:job"


class TestHoldingBack:
    def before(self, **settings: Any) -> list[tuple[SlurmExecutor, str]]:
        return [(executor(**settings), "slurm_tunnel://nemo_run/17")]

    @pytest.mark.parametrize(("run_if", "kind"), [("succeeded", "afterok"), ("ended", "afterany")])
    def test_slurm_waits_for_jobs_of_the_same_cluster(self, run_if: str, kind: str) -> None:
        mine = executor()
        held = mine.held_back(self.before(), run_if)
        assert held is not None
        assert (held.dependency_type, held.parse_deps()) == (kind, ["17"])
        assert mine.dependencies == []

    def test_what_it_cannot_say_is_left_to_us(self) -> None:
        assert executor().held_back(self.before(), "failed") is None
        there = self.before(tunnel=run.SSHTunnel(host="h", user="u", job_dir="/x"))
        assert executor().held_back(there, "succeeded") is None
        assert executor().held_back([(run.LocalExecutor(), "x")], "succeeded") is None
        own = executor(dependencies=["slurm_tunnel://nemo_run/1"])
        assert own.held_back(self.before(), "succeeded") is None


class TestByHand:
    def test_srun_gets_options_variables_and_flags(self) -> None:
        from nemo_run.core.execution._slurm_interactive import salloc, srun

        mine = executor(partition="p q", job_name_prefix="me-", container_image="i m")
        assert srun(mine, "nvidia-smi -L", "job", ["--pty"], ["A"], {"time": "1:00"}) == (
            "srun --account=a '--partition=p q' --job-name=me-job --time=1:00 --nodes=1 "
            "--ntasks-per-node=1 '--container-image=i m' --container-env=A --pty nvidia-smi -L"
        )
        assert salloc(mine, "job").startswith("salloc --account=a '--partition=p q'")


def test_profiling_with_gpu_metrics_is_one_command_for_each_task(tmp_path: Path) -> None:
    from nemo_run.core.execution._slurm_interactive import nsys_argv

    launcher = run.Torchrun(nsys_profile=True, nsys_gpu_metrics=True)
    mine = executor(launcher=launcher)
    mine.assign("title_1", str(tmp_path), "job", "job")
    prefix = mine.get_launcher_prefix()
    assert prefix is not None
    program, last = mine.get_nsys_entrypoint()
    argv = nsys_argv([program, *prefix, "torchrun", "x.py", last])
    assert argv[0] == "sh"
    assert argv[3:5] == ["nsys", "profile"]
    assert argv[-2:] == ["torchrun", "x.py"]
    assert "$GPU_METRICS_FLAG" not in argv


def test_without_profiling_there_is_no_prefix() -> None:
    assert executor().get_launcher_prefix() is None
