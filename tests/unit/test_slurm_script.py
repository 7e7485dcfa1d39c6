"""The batch script: what it asks of Slurm, and what it does when bash runs it."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.slurm_here import fake_slurm, run_here

import nemo_run as run
from nemo_run._backends.slurm.directives import flag
from nemo_run.core.execution.slurm import (
    SlurmBatchRequest,
    SlurmExecutor,
    SlurmJobDetails,
    _as_sbatch_flag,
)
from nemo_run.exceptions import ConfigError, UnsupportedError


def request(
    *commands: list[str], executor: SlurmExecutor | None = None, **settings: Any
) -> SlurmBatchRequest:
    executor = executor or SlurmExecutor(account="team_a", **settings)
    executor.job_dir = "/local/exp/job"
    executor.tunnel.job_dir = "/remote/exp"
    groups = list(commands) or [["echo", "hi"]]
    return SlurmBatchRequest(
        launch_cmd=["sbatch", "--requeue", "--parsable"],
        jobs=[f"job-{n}" if len(groups) > 1 else "job" for n in range(len(groups))],
        command_groups=groups,
        executor=executor,
        max_retries=executor.retries,
        extra_env={},
        tag="nr-1",
    )


def directives(request: SlurmBatchRequest) -> list[str]:
    lines = request.materialize().splitlines()
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]


def group(executors: list[SlurmExecutor], count: int) -> SlurmBatchRequest:
    return request(
        *([["echo", str(n)] for n in range(count)]), executor=SlurmExecutor.merge(executors, count)
    )


class TestDirectives:
    def test_fields_become_options_in_order(self) -> None:
        assert directives(request(partition="gpu", gpus_per_node=8, exclusive=True)) == [
            "--account=team_a",
            "--exclusive",
            "--gpus-per-node=8",
            "--job-name=team_a-a.job",
            "--nodes=1",
            "--ntasks-per-node=1",
            "--open-mode=append",
            "--output=/remote/exp/job/sbatch_team_a-a.job_%j.out",
            "--partition=gpu",
            "--time=00:10:00",
        ]

    def test_what_is_not_wanted_is_left_out(self) -> None:
        assert not any("exclusive" in line for line in directives(request(exclusive=False)))

    def test_further_options_win_over_fields(self) -> None:
        extra = {"time": "01:00:00", "nice": 5, "hold": True, "wckey": None}
        found = directives(request(additional_parameters=extra))
        assert {"--time=01:00:00", "--nice=5", "--hold"} <= set(found)
        assert not any("wckey" in line for line in found)

    def test_names_of_further_options_may_be_those_of_the_command_line(self) -> None:
        extra = {"no-requeue": True, "ntasks-per-node": 3}
        asked = request(additional_parameters=extra)
        assert not asked.may_come_back
        assert [d for d in directives(asked) if "ntasks" in d] == ["--ntasks-per-node=3"]

    def test_jobs_are_not_sent_to_a_cluster_where_they_are_not_looked_for(self) -> None:
        with pytest.raises(UnsupportedError, match="login node"):
            request(additional_parameters={"clusters": "other"}).materialize()

    def test_a_prefix_of_the_users_own_names_the_job(self) -> None:
        assert "--job-name=mine-job" in directives(request(job_name_prefix="mine-"))

    def test_details_name_the_job_without_a_prefix(self) -> None:
        details = SlurmJobDetails(job_name="team-train")
        found = directives(request(job_details=details, job_name_prefix="mine-"))
        assert "--job-name=team-train" in found
        assert "--output=/remote/exp/job/sbatch_team-train_%j.out" in found

    def test_an_array_has_an_output_for_each_element(self) -> None:
        (output,) = [d for d in directives(request(array="0-3")) if d.startswith("--output")]
        assert output.endswith("_%A_%a.out")

    def test_dependencies_come_last_and_do_not_wait_for_ever(self) -> None:
        handles = ["slurm_tunnel://nemo_run/12", "slurm_tunnel://nemo_run/13@abc"]
        found = directives(request(dependencies=handles, dependency_type="afterany"))
        assert found[-2:] == ["--dependency=afterany:12:13", "--kill-on-invalid-dep=yes"]

    def test_the_user_may_choose_to_wait_for_ever(self) -> None:
        extra = {"kill_on_invalid_dep": "no"}
        found = directives(request(dependencies=["s://n/1"], additional_parameters=extra))
        assert [d for d in found if "kill" in d] == ["--kill-on-invalid-dep=no"]

    def test_torchrun_is_started_once_a_node(self) -> None:
        executor = SlurmExecutor(account="a", ntasks_per_node=8, launcher="torchrun")
        assert "--ntasks-per-node=1" in directives(request(executor=executor))
        assert executor.nproc_per_node() == 8
        assert executor.ntasks_per_node == 8

    def test_a_limit_in_seconds_makes_slurms_own_follow(self) -> None:
        assert "--time=3" in directives(request(time_limit_s=61))

    @pytest.mark.parametrize(
        ("key", "value", "text"),
        [
            ("job_name", "plain", "--job-name=plain"),
            ("comment", "two words", '--comment="two words"'),
            ("comment", 'say "hi" \\', '--comment="say \\"hi\\" \\\\"'),
            ("hold", True, "--hold"),
            ("comment", "", '--comment=""'),
        ],
    )
    def test_values_are_written_as_sbatch_reads_them(
        self, key: str, value: object, text: str
    ) -> None:
        assert flag(key, value) == text
        assert _as_sbatch_flag(key, value) == f"#SBATCH {text}"

    def test_a_value_of_several_lines_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="one line"):
            flag("comment", "a\nb")


class TestHeterogeneous:
    def test_each_task_has_a_block_with_what_it_asks_for(self) -> None:
        executors = [
            SlurmExecutor(account="a", heterogeneous=True, nodes=1),
            SlurmExecutor(account="a", heterogeneous=True, nodes=2, gpus_per_node=4),
        ]
        found = directives(group(executors, 2))
        split = found.index("hetjob")
        first, second = found[:split], found[split + 1 :]
        assert "--nodes=1" in first
        assert not any("gpus" in line for line in first)
        assert {"--nodes=2", "--gpus-per-node=4"} <= set(second)
        assert {"--job-name=a-a.job-0"} <= set(first)
        assert {"--job-name=a-a.job-1"} <= set(second)

    def test_a_name_of_the_users_own_gets_the_position(self) -> None:
        details = SlurmJobDetails(job_name="team-train")
        executor = SlurmExecutor(account="a", heterogeneous=True, job_details=details)
        found = directives(group([executor], 2))
        names = [line for line in found if line.startswith("--job-name")]
        assert names == ["--job-name=team-train-0", "--job-name=team-train-1"]

    def test_tasks_may_share_a_group_of_nodes(self) -> None:
        executor = SlurmExecutor(account="a", heterogeneous=True, het_group_indices=[0, 0, 1])
        text = group([executor], 3).materialize()
        assert text.count("#SBATCH hetjob") == 1
        assert text.count("--het-group=0") == 2
        assert text.count("--het-group=1") == 1
        assert text.count("export SLURM_OVERLAP=1") == 2

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"het_group_indices": [0, 1]}, "heterogeneous=True"),
            ({"het_group_indices": [0], "heterogeneous": True}, "does not fit"),
            ({"het_group_indices": [1, 0], "heterogeneous": True}, "go down"),
        ],
    )
    def test_wrong_indices_are_refused(self, settings: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            SlurmExecutor.merge([SlurmExecutor(account="a", **settings)] * 2, 2)

    def test_executors_that_do_not_fit_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="do not fit"):
            SlurmExecutor.merge([SlurmExecutor(account="a")] * 2, 3)

    def test_merging_leaves_the_executors_as_they_are(self) -> None:
        executor = SlurmExecutor(account="a")
        merged = SlurmExecutor.merge([executor], 2)
        assert merged.run_as_group
        assert not executor.run_as_group


class TestContainers:
    def test_without_an_image_tasks_start_in_the_code(self) -> None:
        text = request().materialize()
        assert "--chdir /remote/exp/job/code" in text
        assert "--container" not in text

    def test_pyxis_is_told_image_mounts_and_variables(self) -> None:
        text = request(
            container_image="nvcr.io/x:1",
            container_mounts=["/data:/data", "/$nemo_run/out:/out"],
            container_env=["A", "B"],
        ).materialize()
        for option in (
            "--container-image nvcr.io/x:1",
            "--container-mounts /data:/data,/remote/exp/job/out:/out,/remote/exp/job:/nemo_run",
            "--container-workdir /nemo_run/code",
            "--container-env A,B",
        ):
            assert option in text

    @pytest.mark.parametrize(
        ("runtime", "start"),
        [
            ("apptainer", "apptainer exec --nv --bind /remote/exp/job:/nemo_run"),
            ("singularity", "singularity exec --nv --bind /remote/exp/job:/nemo_run"),
            (
                "podman",
                "podman run --rm --network=host --ipc=host --device nvidia.com/gpu=all --volume ",
            ),
            ("docker", "docker run --rm --network=host --ipc=host --gpus all --volume "),
        ],
    )
    def test_other_runtimes_are_started_by_srun(self, runtime: Any, start: str) -> None:
        text = request(
            container_image="x", container_runtime=runtime, gpus_per_node=1
        ).materialize()
        assert start in text
        assert "--container-image" not in text

    @pytest.mark.parametrize("runtime", ["podman", "docker"])
    def test_a_container_gets_the_variables_that_it_is_to_take_over(self, runtime: Any) -> None:
        asked = request(container_image="x", container_runtime=runtime, container_env=["MINE"])
        text = asked.materialize()
        for name in ("MINE", "HEAD_NODE_ADDR", "SLURM_NNODES"):
            assert f"--env {name} " in text

    @pytest.mark.parametrize("runtime", ["apptainer", "singularity"])
    def test_variables_win_over_those_of_an_image_of_apptainers(
        self, runtime: Any, tmp_path: Path
    ) -> None:
        asked = request(container_image="a.sif", container_runtime=runtime, container_env=["A"])
        argv = asked.container_of(0).wrapped(["true"])
        program = tmp_path / runtime
        program.write_text(f'#!/bin/sh\necho "${runtime.upper()}ENV_A" "$@"\n')
        program.chmod(0o755)
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "A": 'it\'s "mine"'}
        said = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
        assert said.stdout.startswith('it\'s "mine" exec ')

    def test_a_runtime_that_is_not_known_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="lxc"):
            SlurmExecutor(account="a", container_runtime="lxc")  # type: ignore[arg-type]


class TestDetails:
    def test_names_are_those_of_0_12(self) -> None:
        details = SlurmJobDetails(job_name="n", folder="/f")
        assert str(details.stdout) == "/f/sbatch_n_%j.out"
        assert str(details.srun_stdout) == "/f/log-n_%j_${SLURM_RESTART_COUNT:-0}.out"
        assert details.ls_term == "/f/log*"
        assert repr(details) == "SlurmJobDetails(/f)"

    def test_places_are_not_known_before_a_job_is_planned(self) -> None:
        with pytest.raises(ConfigError, match="folder"):
            _ = SlurmJobDetails().stdout

    def test_a_subclass_chooses_other_places(self) -> None:
        class Mine(SlurmJobDetails):
            @property
            def srun_stdout(self) -> Path:
                return Path("/logs/$SLURM_JOB_NAME-%j.txt")

        text = request(job_details=Mine()).materialize()
        assert 'nemo_run_log=/logs/"${SLURM_JOB_NAME}"-"${SLURM_JOB_ID}".txt' in text


@pytest.fixture
def here(tmp_path: Path) -> Any:
    """Run a request's script with Slurm commands that run tasks here."""
    environment = fake_slurm(tmp_path)

    def run_script(asked: SlurmBatchRequest, **extra: str) -> subprocess.CompletedProcess[str]:
        return run_here(asked, tmp_path, {**environment, **extra})

    return run_script


class TestRunning:
    @pytest.mark.parametrize("code", [0, 3, 255])
    def test_the_exit_code_of_the_task_is_that_of_the_job(self, here: Any, code: int) -> None:
        asked = request(["sh", "-c", f"exit {code}"])
        assert here(asked).returncode == code
        noted = (Path(asked.state_dir) / "exit").read_text().split()
        assert noted[:3] == [str(code), "0", "0"]

    @pytest.mark.parametrize(
        ("array", "number"), [({}, "17"), ({"SLURM_ARRAY_JOB_ID": "12"}, "12")]
    )
    def test_a_job_leaves_its_number_before_its_tasks_run(
        self, here: Any, tmp_path: Path, array: dict[str, str], number: str
    ) -> None:
        started = tmp_path / "job" / ".nemo_run" / "nr-1" / "started"
        asked = request(["cp", str(started), f"{tmp_path}/seen"])
        assert here(asked, **array).returncode == 0
        assert (tmp_path / "seen").read_text() == f"{number}\n"

    def test_a_job_on_one_node_asks_slurm_nothing(self, here: Any, tmp_path: Path) -> None:
        scontrol = tmp_path / "bin" / "scontrol"
        scontrol.write_text(f'#!/bin/bash\necho "$@" >>{tmp_path}/scontrol\n')
        asked = request(["sh", "-c", 'echo "$head_node $HEAD_NODE_ADDR" >"$0"', f"{tmp_path}/said"])
        assert here(asked, SLURMD_NODENAME="node7").returncode == 0
        name, address = (tmp_path / "said").read_text().split()
        assert name == "node7"
        assert address and ":" not in address
        assert not (tmp_path / "scontrol").exists()

    def test_one_on_several_nodes_is_told_where_slurm_finds_the_first(
        self, here: Any, tmp_path: Path
    ) -> None:
        scontrol = tmp_path / "bin" / "scontrol"
        scontrol.write_text(
            "#!/bin/bash\necho '   NodeAddr=10.1.2.3 NodeHostName=node7 Version=1'\n"
        )
        asked = request(["sh", "-c", 'echo "$HEAD_NODE_ADDR" >"$0"', f"{tmp_path}/said"])
        done = here(asked, SLURMD_NODENAME="node7", SLURM_JOB_NUM_NODES="2")
        assert done.returncode == 0
        assert (tmp_path / "said").read_text() == "10.1.2.3\n"

    @pytest.mark.parametrize(
        ("nodes", "by_name", "all_of_them", "found", "asked_for"),
        [
            ("1", "127.0.1.1", "fe80::1 10.0.0.5 172.17.0.1", "10.0.0.5", ["--all-ip-addresses"]),
            ("1", "127.0.1.1", "", "127.0.1.1", ["--all-ip-addresses", "--ip-address"]),
            ("2", "10.0.0.7", "172.17.0.1", "10.0.0.7", ["--ip-address"]),
            ("2", "127.0.1.1", "10.0.0.5", "10.0.0.5", ["--ip-address", "--all-ip-addresses"]),
            ("2", "127.0.1.1", "fe80::1", "node7", ["--ip-address", "--all-ip-addresses"]),
        ],
    )
    def test_the_address_of_the_first_node(
        self,
        here: Any,
        tmp_path: Path,
        nodes: str,
        by_name: str,
        all_of_them: str,
        found: str,
        asked_for: list[str],
    ) -> None:
        hostname = tmp_path / "bin" / "hostname"
        hostname.write_text(
            f'#!/bin/sh\necho "$1" >>{tmp_path}/asked\n'
            f'[ "$1" = --ip-address ] && echo "{by_name}" || echo "{all_of_them}"\n'
        )
        hostname.chmod(0o755)
        asked = request(["sh", "-c", 'echo "$HEAD_NODE_ADDR" >"$0"', f"{tmp_path}/said"])
        assert here(asked, SLURMD_NODENAME="node7", SLURM_JOB_NUM_NODES=nodes).returncode == 0
        assert (tmp_path / "said").read_text() == f"{found}\n"
        assert (tmp_path / "asked").read_text().split() == asked_for

    def test_a_job_without_variables_has_no_file_for_them(self) -> None:
        assert request(["true"]).environment_files() == {}

    def test_a_failed_job_is_queued_again_while_there_are_tries(
        self, here: Any, tmp_path: Path
    ) -> None:
        asked = request(["false"], retries=2)
        for restart in ("0", "1", "2"):
            done = here(asked, SLURM_RESTART_COUNT=restart)
            assert done.returncode == 1
            told = [] if restart == "0" else [f"nemo_run: restart {restart}"]
            assert done.stdout.splitlines() == [*told, "nemo_run: exit code 1"]
        assert (tmp_path / "scontrol").read_text() == "requeue 17\n" * 2
        assert (Path(asked.state_dir) / "exit").read_text().split()[:2] == ["1", "2"]

    def test_an_element_that_failed_is_queued_again_without_the_others(
        self, here: Any, tmp_path: Path
    ) -> None:
        asked = request(["false"], retries=1, array="0-3")
        # One element has the number of the whole array.
        here(asked, SLURM_ARRAY_JOB_ID="17", SLURM_ARRAY_TASK_ID="3")
        assert (tmp_path / "scontrol").read_text() == "requeue 17_3\n"

    def test_an_element_that_takes_too_long_is_ended_without_the_others(
        self, here: Any, tmp_path: Path
    ) -> None:
        scancel = tmp_path / "bin" / "scancel"
        scancel.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/scancel\nexit 1\n')
        scancel.chmod(0o755)
        asked = request(["sleep", "60"], time_limit_s=0.3, array="0-3")
        here(asked, SLURM_ARRAY_JOB_ID="17", SLURM_ARRAY_TASK_ID="3")
        assert (tmp_path / "scancel").read_text() == "--signal=TERM 17_3\n"

    def test_a_job_that_succeeds_is_not(self, here: Any, tmp_path: Path) -> None:
        assert here(request(["true"], retries=2)).returncode == 0
        assert not (tmp_path / "scontrol").exists()

    @pytest.mark.parametrize("monitor", [True, False])
    @pytest.mark.parametrize("codes", [(0, 0), (0, 4), (5, 0)])
    def test_a_group_fails_if_any_task_does(
        self, here: Any, monitor: bool, codes: tuple[int, int]
    ) -> None:
        executor = SlurmExecutor(
            account="a",
            wait_time_for_group_job=0,
            monitor_group_job=monitor,
            monitor_group_job_wait_time=5,
        )
        tasks = [["sh", "-c", f"exit {code}"] for code in codes]
        asked = request(*tasks, executor=SlurmExecutor.merge([executor], 2))
        assert here(asked).returncode == sum(codes)

    def test_when_one_task_has_ended_the_others_get_a_while(
        self, here: Any, tmp_path: Path
    ) -> None:
        executor = SlurmExecutor(
            account="a", wait_time_for_group_job=0, monitor_group_job_wait_time=1
        )
        mark = tmp_path / "in-time"
        tasks = [["true"], ["sh", "-c", f"sleep 0.2; touch {mark}; exec sleep 60"]]
        assert here(request(*tasks, executor=SlurmExecutor.merge([executor], 2))).returncode == 0
        assert mark.exists()

    def test_a_task_that_takes_too_long_is_ended(self, here: Any) -> None:
        done = here(request(["sleep", "60"], time_limit_s=0.3, retries=3))
        assert done.returncode == 143
        assert "the time limit of 0.3 s is reached" in done.stdout

    def test_a_task_that_was_not_done_in_time_has_failed_however_it_ends(self, here: Any) -> None:
        text = "trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.1; done"
        asked = request(["bash", "-c", text], time_limit_s=0.3)
        assert here(asked).returncode == 124
        (log,) = Path(asked.remote_dir).glob("log-*")
        assert log.read_text() == "cleaned\n"

    def test_variables_of_all_tasks_and_of_one(self, here: Any, tmp_path: Path) -> None:
        executor = SlurmExecutor(account="a", wait_time_for_group_job=0)
        show = ["sh", "-c", 'echo "$COMMON-$OWN"']
        asked = request(show, show, executor=SlurmExecutor.merge([executor], 2))
        asked.extra_env = {"COMMON": "it's"}
        asked.task_env = [{}, {"OWN": "mine $HOME"}]
        assert here(asked).returncode == 0
        logs = sorted(Path(asked.remote_dir).glob("log-*"))
        assert [log.read_text() for log in logs] == ["it's-\n", "it's-mine $HOME\n"]

    def test_a_job_that_does_not_come_back_removes_its_variables(self, here: Any) -> None:
        asked = request(["true"], additional_parameters={"no_requeue": True})
        here(asked)
        assert not list(Path(asked.state_dir).glob("env*"))

    def test_variables_of_a_job_that_may_come_back_are_sealed_before_it_starts(
        self, here: Any, tmp_path: Path
    ) -> None:
        show = 'echo "$WORD<$NEMO_RUN_KEY>"; cat "$STATE"/env*; exit 1'
        asked = request(["sh", "-c", show], retries=1)
        asked.extra_env = {"WORD": "it's secret", "STATE": f"{tmp_path}/job/.nemo_run/nr-1"}
        for restart in ("0", "1"):
            here(asked, NEMO_RUN_KEY="k3y", SLURM_RESTART_COUNT=restart)
            log = Path(asked.remote_dir) / f"log-team_a-a.job_17_{restart}.out"
            assert log.read_bytes().startswith(b"it's secret<>\nSalted__")
            assert log.read_bytes().count(b"secret") == 1
        assert list(Path(asked.state_dir).glob("env*")) == []

    def test_setup_lines_find_the_job_directory_by_its_name_in_containers(self) -> None:
        lines = "source /nemo_run/code/env.sh; source /opt/nemo_run/env.sh"
        found = "source /remote/exp/job/code/env.sh; source /opt/nemo_run/env.sh"
        assert found in request(setup_lines=lines).materialize()
        assert lines in request(setup_lines=lines, container_image="i").materialize()

    def test_setup_comes_after_the_variables(self, here: Any) -> None:
        asked = request(["sh", "-c", "echo $LATER"], setup_lines="export LATER=$EARLIER-more")
        asked.extra_env = {"EARLIER": "some"}
        here(asked)
        (log,) = Path(asked.remote_dir).glob("log-*")
        assert log.read_text() == "some-more\n"

    @pytest.mark.parametrize(("lines", "code"), [("exit 0", "0"), ("set -e; false", "1")])
    def test_setup_lines_that_end_the_job_leave_how_and_no_variables(
        self, here: Any, lines: str, code: str
    ) -> None:
        asked = request(["true"], setup_lines=lines)
        asked.extra_env = {"API_TOKEN": "hush"}
        assert here(asked).returncode == int(code)
        assert (Path(asked.state_dir) / "exit").read_text().split()[0] == code
        assert list(Path(asked.state_dir).glob("env*")) == []

    def test_setup_lines_that_fail_are_tried_again(self, here: Any, tmp_path: Path) -> None:
        assert here(request(["true"], setup_lines="exit 4", retries=1)).returncode == 4
        assert (tmp_path / "scontrol").read_text() == "requeue 17\n"

    def test_what_setup_lines_want_done_at_the_end_is_done(self, here: Any, tmp_path: Path) -> None:
        asked = request(["true"], setup_lines=f"trap 'touch {tmp_path}/cleaned' EXIT")
        assert here(asked).returncode == 0
        assert (tmp_path / "cleaned").exists()

    def test_they_may_wait_for_processes_of_their_own(self, here: Any, tmp_path: Path) -> None:
        asked = request(["true"], setup_lines=f"trap 'wait; touch {tmp_path}/waited' EXIT")
        assert here(asked).returncode == 0
        assert (tmp_path / "waited").exists()

    def test_errors_have_a_log_of_their_own_where_that_is_wanted(
        self, here: Any, tmp_path: Path
    ) -> None:
        executor = SlurmExecutor(account="team_a")
        executor.stderr_to_stdout = False
        asked = request(["sh", "-c", "echo out; echo err >&2; sleep 1.5"], executor=executor)
        srun = tmp_path / "bin" / "srun"
        srun.write_text(
            srun.read_text()
            .replace("2>&1", '2>>"$err"')
            .replace("--chdir)", "--error) err=$2; shift 2;; --chdir)")
        )
        assert here(asked).returncode == 0
        logs = {log.suffix: log.read_text() for log in Path(asked.remote_dir).glob("log-*")}
        assert logs == {".out": "out\n", ".err": "err\n"}
        clocks = {c.suffix: c.read_text() for c in Path(asked.state_dir).glob("clock-0-*")}
        noted = {name: text.split()[1::2] for name, text in clocks.items()}
        assert noted == {".out": ["4", "end"], ".err": ["4", "end"]}

    def test_of_a_short_task_only_its_end_is_noted(self, here: Any, tmp_path: Path) -> None:
        stat = tmp_path / "bin" / "stat"
        stat.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
        stat.chmod(0o755)
        asked = request(["echo", "said"])
        began = time.time()
        assert here(asked).returncode == 0
        (clock,) = Path(asked.state_dir).glob("clock-0-*")
        when, size = clock.read_text().split()
        assert began <= float(when) <= time.time()
        assert size == "end"
        assert not (tmp_path / "asked").exists()

    def test_trouble_with_measuring_memory_is_not_taken_for_the_jobs(
        self, here: Any, tmp_path: Path
    ) -> None:
        srun = tmp_path / "bin" / "srun"
        trouble = "srun: error: node1: task 0: Exited with exit code 9"
        lines = srun.read_text().splitlines()
        lines.insert(1, f'case "$*" in *nvidia-smi*) echo "{trouble}" >&2; exit 9;; esac')
        srun.write_text("\n".join(lines) + "\n")
        done = here(request(["sleep", "0.3"], memory_measure=True))
        assert (done.returncode, trouble in done.stdout + done.stderr) == (0, False)

    @pytest.mark.parametrize("option", ["-e", "-u", "-euo pipefail"])
    def test_strictness_that_setup_lines_turn_on_does_not_keep_a_job_from_its_retries(
        self, here: Any, tmp_path: Path, option: str
    ) -> None:
        asked = request(["sh", "-c", "exit 3"], setup_lines=f"set {option}", retries=1)
        assert here(asked).returncode == 3
        assert (tmp_path / "scontrol").read_text() == "requeue 17\n"

    @pytest.mark.parametrize("option", ["-x", "-v", "-vx"])
    def test_tracing_that_setup_lines_turn_on_shows_no_values(self, here: Any, option: str) -> None:
        executor = SlurmExecutor(
            account="a", wait_time_for_group_job=0, setup_lines=f"set {option}", retries=1
        )
        show = ["sh", "-c", 'echo "${#COMMON}-${#OWN}"; exit 1']
        asked = request(show, show, executor=SlurmExecutor.merge([executor], 2))
        asked.extra_env = {"COMMON": "s3cret-one"}
        asked.task_env = [{"OWN": "s3cret-two"}, {"OWN": "s3cret-3"}]
        for restart in ("0", "1"):
            done = here(asked, NEMO_RUN_KEY="k3y", SLURM_RESTART_COUNT=restart)
            assert not [word for word in ("s3cret", "k3y") if word in done.stdout + done.stderr]
            assert ("+ nemo_run_end 1\n" in done.stderr) is ("x" in option)
            logs = sorted(Path(asked.remote_dir).glob(f"log-*_{restart}.out"))
            assert [log.read_text() for log in logs] == ["10-10\n", "10-8\n"]

    @given(argv=st.lists(st.text(st.characters(blacklist_characters="\0")), min_size=1))
    def test_any_command_makes_a_script_that_bash_can_read(self, argv: list[str]) -> None:
        text = request(["echo", *argv]).materialize()
        done = subprocess.run(
            ["bash", "-n"], input=text.encode("utf-8", "surrogatepass"), capture_output=True
        )
        assert done.returncode == 0, done.stderr

    def test_nothing_in_a_script_is_traced_or_exported_from_us(self, here: Any) -> None:
        asked = request()
        asked.extra_env = {"API_KEY": "hush"}
        assert "hush" not in asked.materialize()
        assert "hush" not in repr(asked)
        assert here(asked).stderr == ""


class TestFaultTolerance:
    def launched(self, tmp_path: Path, *command: str, retries: int = 1) -> SlurmBatchRequest:
        asked = request(list(command), retries=retries)
        asked.launcher = run.FaultTolerance(
            cfg_path=str(tmp_path / "cfg"),
            finished_flag_file=str(tmp_path / "finished"),
            job_results_file=str(tmp_path / "results"),
        )
        return asked

    def test_starts_are_counted_and_limited(self, here: Any, tmp_path: Path) -> None:
        asked = self.launched(tmp_path, "false", retries=2)
        assert here(asked).returncode == 1
        assert (tmp_path / "results").read_text() == "17 0 F\n"
        here(asked, SLURM_RESTART_COUNT="1")
        assert (tmp_path / "scontrol").read_text() == "requeue 17\n"
        assert here(asked, SLURM_RESTART_COUNT="2").returncode == 1
        assert (tmp_path / "results").read_text() == "17 0 F\n17 1 F\n"

    def test_a_job_that_has_finished_is_not_run_again(self, here: Any, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        asked = self.launched(tmp_path, "touch", str(ran))
        (tmp_path / "finished").touch()
        (tmp_path / "results").write_text("17 0 S\n")
        assert here(asked, SLURM_RESTART_COUNT="1").returncode == 0
        assert not ran.exists()

    def test_its_files_must_be_known(self) -> None:
        asked = request()
        asked.launcher = run.FaultTolerance()
        with pytest.raises(ConfigError, match="cfg_path"):
            asked.materialize()


def test_quoting_survives_a_path_with_blanks() -> None:
    asked = request()
    asked.executor.tunnel.job_dir = "/remote dir/it's"
    text = asked.materialize()
    assert shlex.quote("/remote dir/it's/job") in text
