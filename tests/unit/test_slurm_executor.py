"""The Slurm executor as a value: sizes, places, and jobs that wait for each other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.contract.experiments import experiment, script
from torchx.specs import AppDef, Role

import nemo_run as run
from nemo_run._experiments.store.loading import load_job
from nemo_run._order import RunIf
from nemo_run.core.execution.slurm import SlurmExecutor, get_packaging_job_key
from nemo_run.core.serialization._envelope import unseal
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
        assert own.held_back(self.before(), "ended") is None

    def test_its_own_dependencies_are_waited_for_too_where_one_word_says_both(self) -> None:
        own = executor(dependencies=["slurm_tunnel://nemo_run/1"], dependency_type="afterany")
        held = own.held_back(self.before(), "ended")
        assert held is not None
        assert (held.dependency_type, held.parse_deps()) == ("afterany", ["1", "17"])
        assert own.parse_deps() == ["1"]


class TestTypeOfDependency:
    @pytest.mark.parametrize(
        ("word", "run_if"),
        [
            ("afterany", "ended"),
            ("after", "ended"),
            ("afternotok", "failed"),
            ("aftercorr", "succeeded"),
        ],
    )
    def test_one_that_is_given_is_what_the_job_is_submitted_with(
        self, word: str, run_if: RunIf
    ) -> None:
        mine = executor(dependency_type=word, packager=run.Packager())
        with experiment(executor=mine) as exp:
            first = exp.add(script("true"), name="first")
            exp.add(script("true"), name="second", dependencies=[first])
        job = exp.jobs[1]
        assert job.run_if == run_if
        held = job.executor.held_back([(mine, "slurm_tunnel://nemo_run/17")], run_if)
        assert isinstance(held, SlurmExecutor)
        assert held.dependency_type == word

    def test_it_is_kept_in_what_0_12_reads(self) -> None:
        with experiment(executor=executor(dependency_type="afterany")) as exp:
            exp.add([script("true"), script("true")], name="pair")
            exp.add(script("true"), executor=executor(), name="other", run_if="ended")
        pair, other = exp.jobs
        assert load_job(*pair.serialize()).run_if == "ended"
        assert "run_if" not in json.dumps(unseal(pair.serialize()[0]))
        assert load_job(*other.serialize()).run_if == "ended"

    def test_a_plugin_may_set_it(self) -> None:
        with experiment(executor=executor()) as exp:
            exp.add(script("true"), name="job", plugins=[AfterAny()])
        assert exp.jobs[0].run_if == "ended"

    def test_it_wins_over_what_else_was_said(self, capsys: pytest.CaptureFixture[str]) -> None:
        with experiment(executor=executor(dependency_type="afterany")) as exp:
            exp.add(script("true"), name="job", run_if="failed")
        assert exp.jobs[0].run_if == "ended"
        assert "run_if='failed' has no effect" in " ".join(capsys.readouterr().err.split())

    def test_a_word_that_slurm_does_not_know_is_refused_while_planning(
        self, nemorun_home: Path
    ) -> None:
        mine = executor(dependency_type="afterall", packager=run.Packager())
        with experiment(executor=mine) as exp:
            exp.add(script("true"), name="job")
            with pytest.raises(ConfigError, match=r"afterall.*afterany"):
                exp.run()
        assert not Path(exp._exp_dir).exists()


@dataclass(kw_only=True)
class AfterAny(run.Plugin):
    def setup(self, task: Any, executor: Any) -> None:
        executor.dependency_type = "afterany"


class TestByHand:
    def test_srun_gets_options_variables_and_flags(self) -> None:
        from nemo_run._backends.slurm.interactive import salloc, srun

        mine = executor(partition="p q", job_name_prefix="me-", container_image="i m")
        assert srun(mine, "nvidia-smi -L", "job", ["--pty"], ["A"], {"time": "1:00"}) == (
            "srun --account=a '--partition=p q' --job-name=me-job --time=1:00 --nodes=1 "
            "--ntasks-per-node=1 '--container-image=i m' --container-env=A --pty nvidia-smi -L"
        )
        assert salloc(mine, "job").startswith("salloc --account=a '--partition=p q'")


def test_profiling_with_gpu_metrics_is_one_command_for_each_task(tmp_path: Path) -> None:
    from nemo_run._backends.slurm.interactive import nsys_argv

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


class TestFaultTolerance:
    def assigned(self, mine: run.SlurmExecutor, id: str) -> run.FaultTolerance:
        mine.assign(id, f"/home/experiments/net/{id}", "train", "train")
        launcher = mine.get_launcher()
        assert isinstance(launcher, run.FaultTolerance)
        return launcher

    def test_its_files_are_those_of_the_job_it_belongs_to(self) -> None:
        mine = executor(launcher="ft", tunnel=run.LocalTunnel(job_dir="/jobs"))
        launcher = self.assigned(mine, "net_1")
        assert launcher.cfg_path == "/jobs/net/net_1/train/train_ft_cfg.yml"
        launcher = self.assigned(mine, "net_2")
        assert launcher.cfg_path == "/jobs/net/net_2/train/train_ft_cfg.yml"
        assert launcher.job_results_file == "/jobs/net/net_2/train/train_job_results"
        assert launcher.finished_flag_file == "/nemo_run/train_finished_flag"

    def test_files_that_the_user_names_stay(self) -> None:
        given = run.FaultTolerance(cfg_path="/mine.yml")
        mine = executor(launcher=given, tunnel=run.LocalTunnel(job_dir="/jobs"))
        self.assigned(mine, "net_1")
        assert self.assigned(mine, "net_2").cfg_path == "/mine.yml"

    def test_what_a_plugin_edits_is_in_the_script(self) -> None:
        mine = executor(launcher="ft", tunnel=run.LocalTunnel(job_dir="/jobs"))
        self.assigned(mine, "net_1").max_restarts = 7
        assert self.assigned(mine, "net_1").max_restarts == 7
