"""What only Slurm has: nodes, arrays, het groups, allocations, and a queue of its own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.contract.experiments import states
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.daemons import free_ports
from tests.integration.slurm.jobs import Jobs, log_of, script, wait_until
from torchx.specs import AppState

import nemo_run as run
from nemo_run.core.execution.base import ExecutorMacros
from nemo_run.core.execution.slurm import SlurmJobDetails
from nemo_run.exceptions import ConfigError, JobFailedError, SubmitError

pytestmark = pytest.mark.slow

TORCH = Path(__file__).parents[3] / ".venv-torch" / "bin"


@pytest.fixture(params=["slurm", "bare_slurm"], ids=["accounting", "without-accounting"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Jobs:
    return Jobs(request.getfixturevalue(request.param), tmp_path)


class TestNodes:
    def test_a_task_runs_on_every_node(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("echo $SLURM_NODEID $SLURMD_NODENAME", nodes=2)
        assert jobs.wait(app_id).state is AppState.SUCCEEDED
        lines = sorted(jobs.lines(app_id))
        assert [line.split()[0] for line in lines] == ["0", "1"]
        assert len({line.split()[1] for line in lines}) == 2

    def test_each_task_is_told_its_own_place(self, jobs: Jobs) -> None:
        rank = f"$${ExecutorMacros.NODE_RANK_VAR}"
        head = f"$${ExecutorMacros.HEAD_NODE_IP_VAR}"
        # In one piece: the tasks share a log.
        show = "import sys; sys.stdout.write(' '.join(sys.argv[1:]) + '\\n')"
        app_id = jobs.schedule(["python3", "-c", show, rank, head, "$HOME"], nodes=2)
        assert jobs.wait(app_id).state is AppState.SUCCEEDED
        words = sorted(line.split() for line in jobs.lines(app_id))
        assert [line[0] for line in words] == ["0", "1"]
        assert words[0][1] == words[1][1]
        assert re.fullmatch(r"[\d.]+", words[0][1])
        assert words[0][2] == "$HOME"

    def test_gpus_are_given_to_the_task(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("echo $CUDA_VISIBLE_DEVICES", gpus_per_node=2)
        jobs.wait(app_id)
        assert jobs.lines(app_id) == ["0,1\n"]

    def test_torchrun_trains_across_two_nodes(self, jobs: Jobs) -> None:
        program = jobs.scratch / "train.py"
        program.write_text(
            "import os, torch, torch.distributed as dist\n"
            "dist.init_process_group('gloo')\n"
            "total = torch.tensor([float(dist.get_rank() + 1)])\n"
            "dist.all_reduce(total)\n"
            "print('sum', int(total.item()), 'of', dist.get_world_size())\n"
            # Without it, torch's own threads may abort the process when it leaves.
            "dist.destroy_process_group()\n"
            # The first node is where all meet: the others fail if it leaves before them.
            "if os.environ['GROUP_RANK'] == '0': import time; time.sleep(3)\n"
        )
        with run.Experiment("torch", clean_mode=True, check=True) as exp:
            executor = jobs.slurm_executor(
                nodes=2,
                ntasks_per_node=2,
                launcher=run.Torchrun(rdzv_port=free_ports(1)[0]),
                env_vars={
                    "PATH": f"{TORCH}:/usr/sbin:/usr/bin:/sbin:/bin",
                    "GLOO_SOCKET_IFNAME": "lo",
                    "OMP_NUM_THREADS": "1",
                },
            )
            exp.add(run.Script(path=str(program), entrypoint="python"), executor=executor)
            exp.run()
        (job,) = exp.jobs
        lines = log_of(exp, job.id)
        assert len([line for line in lines if "sum 10 of 4" in line]) == 4

    def test_a_time_chooses_lines_of_a_rank(self, jobs: Jobs) -> None:
        go = shlex.quote(str(jobs.scratch / "go"))
        text = (
            f"echo early $SLURM_PROCID; until [ -e {go} ]; do sleep 0.1; done; "
            "echo late $SLURM_PROCID"
        )
        app_id = jobs.schedule(text, ntasks_per_node=2, rank_logs=True)

        def lines(**query: Any) -> list[str]:
            return [line for k in (0, 1) for line in jobs.lines(app_id, k=k, **query)]

        early, late = (["early 0\n", "early 1\n"], ["late 0\n", "late 1\n"])
        wait_until(lambda: lines(until=datetime.now()) == early, "first lines", 90)
        between = datetime.now()
        (jobs.scratch / "go").touch()
        jobs.wait(app_id)
        assert lines(until=between) == early
        assert lines(since=between) == late

    def test_the_first_rank_to_fail_is_named_and_shown(self, jobs: Jobs) -> None:
        text = (
            "echo from $SLURM_PROCID; [ $SLURM_PROCID != 3 ] || { echo broken; exit 7; }; sleep 30"
        )
        with run.Experiment("rank", clean_mode=True, check=False) as exp:
            executor = jobs.slurm_executor(nodes=2, ntasks_per_node=2, rank_logs=True)
            exp.add(script(text), executor=executor, name="job")
            exp.run()
        print(exp.status(return_dict=True), jobs.engine_says(exp.jobs[0].handle.rpartition("/")[2]))
        with pytest.raises(JobFailedError) as failure:
            exp.raise_if_failed()
        assert failure.value.exit_code == 7
        assert re.search(r"task 3 on node\d", str(failure.value))
        assert list(failure.value.tail) == ["from 3\n", "broken\n"]
        # The shell that Slurm ends may have said so.
        assert set(log_of(exp, "job")) - {"Terminated\n"} == {"from 0\n"}


class TestGroups:
    def test_a_group_is_one_job_with_a_step_for_each_task(self, jobs: Jobs) -> None:
        executor = jobs.slurm_executor(wait_time_for_group_job=0, monitor_group_job_wait_time=30)
        tasks = [script("echo $WHO $SLURM_JOB_ID", {"WHO": who}) for who in ("a", "b")]
        exp = jobs.run_group(tasks, executor, check=True)
        (handle,) = exp.jobs[0].handles  # type: ignore[union-attr]
        app_id = handle.rpartition("/")[2]
        assert log_of(exp, "group-0") == [f"a {app_id}\n"]
        assert log_of(exp, "group-1") == [f"b {app_id}\n"]

    @pytest.mark.parametrize("monitor", [True, False])
    def test_a_group_fails_with_the_code_of_the_task_that_did(
        self, jobs: Jobs, monitor: bool
    ) -> None:
        executor = jobs.slurm_executor(
            wait_time_for_group_job=0, monitor_group_job=monitor, monitor_group_job_wait_time=5
        )
        with pytest.raises(JobFailedError) as failure:
            jobs.run_group([script("echo good"), script("echo bad; exit 4")], executor, check=True)
        assert failure.value.exit_code == 4
        assert list(failure.value.tail) == ["bad\n"]

    @pytest.mark.parametrize(
        "settings",
        [{}, {"heterogeneous": True, "het_group_indices": [0, 0, 1]}],
        ids=["group", "het-groups"],
    )
    def test_tasks_run_side_by_side(self, jobs: Jobs, settings: dict[str, Any]) -> None:
        def meet(ours: str, theirs: str) -> run.Script:
            one, other = jobs.scratch / ours, jobs.scratch / theirs
            return script(f"touch '{one}'; until [ -e '{other}' ]; do sleep 0.1; done; echo met")

        executor = jobs.slurm_executor(wait_time_for_group_job=0, time_limit_s=60, **settings)
        tasks = [meet("one", "two"), meet("two", "three"), meet("three", "one")]
        exp = jobs.run_group(tasks, executor, check=True)
        assert [log_of(exp, f"group-{number}") for number in range(3)] == [["met\n"]] * 3

    def test_when_one_task_has_ended_the_others_are_ended(self, jobs: Jobs) -> None:
        executor = jobs.slurm_executor(wait_time_for_group_job=0, monitor_group_job_wait_time=1)
        exp = jobs.run_group([script("echo client"), script("echo server; sleep 300")], executor)
        assert exp.jobs[0].state is AppState.SUCCEEDED
        assert log_of(exp, "group-1")[0] == "server\n"

    def test_tasks_of_a_heterogeneous_job_have_nodes_of_their_own(self, jobs: Jobs) -> None:
        settings = {"heterogeneous": True, "wait_time_for_group_job": 0}
        executors = [
            jobs.slurm_executor(nodes=1, **settings),
            jobs.slurm_executor(nodes=2, gpus_per_node=1, **settings),
        ]
        show = "echo $SLURM_NNODES ${CUDA_VISIBLE_DEVICES:-none}"
        exp = jobs.run_group([script(show), script(show)], executors, check=True)
        assert log_of(exp, "group-0") == ["1 none\n"]
        assert log_of(exp, "group-1") == ["2 0\n"] * 2
        (told,) = (exp.status(return_dict=True) or {}).values()
        assert [(part["number"], part["state"]) for part in told["parts"]] == [
            (0, "SUCCEEDED"),
            (1, "SUCCEEDED"),
        ]

    def test_a_heterogeneous_job_fails_if_any_part_does(self, jobs: Jobs) -> None:
        settings = {
            "heterogeneous": True,
            "wait_time_for_group_job": 0,
            "monitor_group_job": False,
        }
        executors = [jobs.slurm_executor(**settings), jobs.slurm_executor(**settings)]
        with pytest.raises(JobFailedError) as failure:
            jobs.run_group([script("echo good"), script("exit 6")], executors, check=True)
        assert failure.value.exit_code == 6


class TestArrays:
    def test_elements_are_one_job_that_fails_if_one_does(self, jobs: Jobs) -> None:
        text = "echo element $SLURM_ARRAY_TASK_ID; exit $((SLURM_ARRAY_TASK_ID == 2))"
        app_id = jobs.schedule(text, array="0-2")
        end = jobs.wait(app_id, timeout_s=60)
        assert (end.state, end.exit_code) == (AppState.FAILED, 1)
        assert f"{app_id}_2" in end.message
        assert jobs.lines(app_id) == [f"element {n}\n" for n in range(3)]
        status = jobs.scheduler.status_of(app_id)
        assert status is not None
        ends = [(part.number, part.state, part.exit_code) for part in status.parts]
        assert ends == [(0, "SUCCEEDED", 0), (1, "SUCCEEDED", 0), (2, "FAILED", 1)]
        (told,) = jobs.scheduler.describe(app_id).roles_statuses
        assert [replica.state.name for replica in told.replicas] == [state for _, state, _ in ends]

    def test_an_experiment_shows_how_each_element_is_doing(self, jobs: Jobs) -> None:
        with run.Experiment("array", clean_mode=True) as exp:
            exp.add(
                run.Script(inline="exit $SLURM_ARRAY_TASK_ID"),
                executor=jobs.slurm_executor(array="0-2"),
                name="array",
            )
            exp.run()
        seen = run.Experiment.from_id(exp._id).status(return_dict=True) or {}
        ends = [(part["number"], part["state"]) for part in seen["array"]["parts"]]
        assert ends == [(0, "SUCCEEDED"), (1, "FAILED"), (2, "FAILED")]
        shown = subprocess.run(
            [sys.executable, "-m", "nemo_run", "experiment", "status", exp._id],
            check=True,
            capture_output=True,
            text=True,
        )
        assert "array: SUCCEEDED 0, FAILED 1-2\n" in shown.stdout

    def test_an_array_that_succeeds_has_succeeded(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("true", array="1-3")
        assert jobs.wait(app_id, timeout_s=60).state is AppState.SUCCEEDED

    def test_only_the_element_that_failed_is_started_again(self, jobs: Jobs) -> None:
        # The last one has the number of the whole array.
        text = "echo $SLURM_ARRAY_TASK_ID ${SLURM_RESTART_COUNT:-0}; "
        text += '[ "$SLURM_ARRAY_TASK_ID" != 2 ] || [ -n "$SLURM_RESTART_COUNT" ]'
        app_id = jobs.schedule(text, array="0-2", retries=1)
        assert jobs.wait(app_id, timeout_s=300).state is AppState.SUCCEEDED
        assert jobs.lines(app_id) == ["0 0\n", "1 0\n", "2 0\n", "2 1\n"]

    def test_cancelling_ends_all_elements(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("sleep 300", array="0-3%2")
        jobs.wait_for(app_id, AppState.RUNNING)
        jobs.cancel(app_id)
        assert jobs.wait(app_id).state is AppState.CANCELLED
        assert set(jobs.squeue(app_id, "%T").split()) == {"CANCELLED"}


class TestOrder:
    def test_slurm_holds_a_job_back_until_another_has_succeeded(self, jobs: Jobs) -> None:
        go = jobs.scratch / "go"
        first = jobs.schedule(f"until [ -e '{go}' ]; do sleep 0.1; done", name="first")
        second = jobs.schedule("echo two", name="second", dependencies=[handle(first)])
        third = jobs.schedule("echo three", name="third", dependencies=[handle(second)])
        wait_until(lambda: jobs.says(third, "waits: Dependency"), "reason")
        go.touch()
        assert jobs.wait(third, timeout_s=60).state is AppState.SUCCEEDED
        assert jobs.wait(first).state is AppState.SUCCEEDED

    def test_a_job_whose_dependency_failed_does_not_wait_for_ever(self, jobs: Jobs) -> None:
        first = jobs.schedule("exit 1", name="first")
        second = jobs.schedule("echo never", name="second", dependencies=[handle(first)])
        end = jobs.wait(second, timeout_s=90)
        assert end.state is AppState.CANCELLED
        assert jobs.lines(second) == []

    def test_jobs_of_an_experiment_wait_in_the_queue_for_each_other(self, jobs: Jobs) -> None:
        executor = jobs.executor()
        with run.Experiment("queue", executor=executor, clean_mode=True, check=True) as exp:
            a = exp.add(script("sleep 5"), name="a")
            b = exp.add(script("echo b"), name="b", dependencies=[a])
            exp.add(script("echo c"), name="c", dependencies=[a, b])
            exp.run(detach=True)
            assert len(jobs.submitted()) == 3
        app_id = exp.jobs[2].handle.rpartition("/")[2]
        assert jobs.wait(app_id, timeout_s=90).state is AppState.SUCCEEDED

    @pytest.mark.parametrize("detach", [False, True])
    def test_a_type_of_dependency_that_is_given_is_kept(self, jobs: Jobs, detach: bool) -> None:
        executor = jobs.executor(dependency_type="afterany")
        with run.Experiment("chain", executor=executor, clean_mode=True) as exp:
            a = exp.add(script("sleep 3; exit 5"), name="a")
            b = exp.add(script("echo b"), name="b", dependencies=[a])
            exp.add(script("echo c"), name="c", dependencies=[b])
            exp.run(detach=detach)
            waiting = exp.jobs[1].handle.rpartition("/")[2]
            if detach:
                assert jobs.squeue(waiting, "%E").startswith("afterany:")
        found = run.Experiment.from_id(exp._id)
        found.wait()
        assert states(found) == {"a": "FAILED", "b": "SUCCEEDED", "c": "SUCCEEDED"}

    def test_jobs_of_an_experiment_run_in_order(self, jobs: Jobs) -> None:
        mark = shlex.quote(str(jobs.scratch / "order"))
        with run.Experiment("order", executor=jobs.executor(), clean_mode=True, check=True) as exp:
            a = exp.add(script(f"sleep 1; echo a >>{mark}"), name="a")
            exp.add(script(f"echo b >>{mark}"), name="b", dependencies=[a])
            exp.run()
        assert (jobs.scratch / "order").read_text() == "a\nb\n"


class TestNames:
    def test_details_name_the_job_and_its_files(self, jobs: Jobs) -> None:
        details = SlurmJobDetails(job_name="team-train", folder=str(jobs.scratch))
        app_id = jobs.schedule("echo hello", job_details=details)
        assert jobs.wait(app_id, timeout_s=90).state is AppState.SUCCEEDED
        assert jobs.squeue(app_id, "%j") == "team-train"
        assert (jobs.scratch / f"log-team-train_{app_id}_0.out").read_text() == "hello\n"
        assert (jobs.scratch / f"sbatch_team-train_{app_id}.out").exists()
        assert jobs.lines(app_id) == ["hello\n"]

    @pytest.mark.parametrize("odd", ["a$word", "50% of %j", "x${SLURM_JOB_ID}", "it's `50%`"])
    def test_titles_and_names_mean_nothing_to_slurm(self, jobs: Jobs, odd: str) -> None:
        executor = jobs.slurm_executor(rank_logs="%" not in odd, ntasks_per_node=2)
        executor.stderr_to_stdout = False
        with run.Experiment(odd, executor=executor, clean_mode=True, check=True) as exp:
            exp.add(script("echo rank $SLURM_PROCID; echo bad >&2"), name=odd)
            exp.run()
        scheduler, app_id = exp._runner.scheduler_of(exp.jobs[0].handle)
        replicas = range(2 if executor.rank_logs else 1)
        said = [line for rank in replicas for line in scheduler.log_iter(app_id, odd, rank)]
        assert sorted(said) == ["bad\n", "bad\n", "rank 0\n", "rank 1\n"]
        since = datetime.fromtimestamp(0)
        assert list(scheduler.log_iter(app_id, odd, 0, since=since)) != []

    @pytest.mark.parametrize("where", ["title", "name"])
    def test_a_backslash_is_refused_before_anything_is_submitted(
        self, jobs: Jobs, where: str
    ) -> None:
        names = {"title": "plain", "name": "plain", where: "a\\b"}
        with run.Experiment(names["title"], executor=jobs.executor(), clean_mode=True) as exp:
            exp.add(script("true"), name=names["name"])
            with pytest.raises(ConfigError, match="means something else"):
                exp.run()
        assert jobs.submitted() == []

    def test_the_parts_of_a_heterogeneous_job_have_their_positions(self, jobs: Jobs) -> None:
        details = SlurmJobDetails(job_name="team-train")
        executor = jobs.slurm_executor(
            heterogeneous=True, job_details=details, wait_time_for_group_job=0
        )
        exp = jobs.run_group([script("echo one"), script("echo two")], executor, check=True)
        number = exp.jobs[0].handle.rpartition("/")[2]
        assert jobs.squeue(number, "%j").split() == ["team-train-0", "team-train-1"]
        assert [log_of(exp, f"group-{n}") for n in range(2)] == [["one\n"], ["two\n"]]


class TestComingBack:
    def test_a_requeued_job_runs_again_with_its_variables(self, jobs: Jobs) -> None:
        app_id = jobs.schedule(
            'echo $SLURM_RESTART_COUNT:$WORD; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300',
            env={"WORD": "same"},
        )
        jobs.wait_for_line(app_id, ":same\n")
        jobs.engine.run("scontrol", "requeue", app_id)
        end = jobs.wait(app_id, timeout_s=90)
        assert (end.state, end.restarts) == (AppState.SUCCEEDED, 1)
        # A shell may say that what it waited for was terminated.
        said = [line for line in jobs.lines(app_id) if "same" in line]
        assert said == [":same\n", "1:same\n"]

    def test_a_job_waits_while_no_node_takes_it(self, jobs: Jobs) -> None:
        nodes = jobs.engine.settings.nodes
        for node in nodes:
            jobs.engine.drain(node)
        try:
            app_id = jobs.schedule("echo at last")
            jobs.wait_for(app_id, AppState.PENDING)
            wait_until(lambda: jobs.says(app_id, "waits: "), "reason")
            cancelled = jobs.schedule("echo never", name="other")
            jobs.cancel(cancelled)
            assert jobs.wait(cancelled).state is AppState.CANCELLED
        finally:
            for node in nodes:
                jobs.engine.resume(node)
        assert jobs.wait(app_id, timeout_s=60).state is AppState.SUCCEEDED
        assert jobs.lines(cancelled) == []

    @pytest.mark.timeout(300)  # Slurm's shortest limit is a minute, and it looks twice a minute
    def test_slurm_ends_a_job_at_its_time_limit(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("echo up; sleep 300", time="0:01", retries=3)
        end = jobs.wait(app_id, timeout_s=240)
        assert end.state is AppState.FAILED
        assert "limit" in end.message
        assert jobs.lines(app_id)[0] == "up\n"

    def test_a_job_may_clean_up_at_a_limit_of_ours_and_has_failed(self, jobs: Jobs) -> None:
        wait = "while :; do sleep 60 & wait; done"
        text = f"trap 'echo cleaned; exit 0' TERM; echo up; {wait}"
        app_id = jobs.schedule(text, time_limit_s=3, retries=3)
        end = jobs.wait(app_id, timeout_s=60)
        assert end.state is AppState.FAILED
        assert "limit of 3 s" in end.message
        assert jobs.lines(app_id) == ["up\n", "cleaned\n"]


class TestSettings:
    @pytest.fixture
    def jobs(self, slurm: SlurmCluster, tmp_path: Path) -> Jobs:
        return Jobs(slurm, tmp_path)

    def test_any_option_of_sbatch_and_srun_can_be_given(self, jobs: Jobs) -> None:
        app_id = jobs.schedule(
            "echo $SLURM_LOCALID",
            additional_parameters={"nice": 7, "hold": True, "partition": "short", "time": 5},
            srun_args=["--label"],
            comment="it's $HOME \\ mine",
        )
        jobs.wait_for(app_id, AppState.PENDING)
        assert jobs.squeue(app_id, "%P|%k") == "short|it's $HOME \\ mine"
        jobs.engine.run("scontrol", "release", app_id)
        assert jobs.wait(app_id, timeout_s=60).state is AppState.SUCCEEDED
        assert jobs.lines(app_id) == ["0: 0\n"]

    def test_what_slurm_refuses_is_said_in_its_words(self, jobs: Jobs) -> None:
        with pytest.raises(SubmitError, match=r"(?i)partition"):
            jobs.schedule("true", partition="no-such-partition")
        assert jobs.submitted() == []

    def test_lines_of_setup_run_before_the_task(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("echo $GREETING", setup_lines="export GREETING='good day'")
        jobs.wait(app_id)
        assert jobs.lines(app_id) == ["good day\n"]

    def test_a_job_without_its_variables_says_so(self, jobs: Jobs) -> None:
        hold = {"hold": True}
        app_id = jobs.schedule("true", env={"WORD": "x"}, additional_parameters=hold)
        for file in jobs.remote.rglob("env*"):
            file.unlink()
        jobs.engine.run("scontrol", "release", app_id)
        end = jobs.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 78)
        assert "variables" in end.message

    def test_a_wrong_value_is_found_before_anything_is_submitted(self, jobs: Jobs) -> None:
        with pytest.raises(ConfigError, match="one line"):
            jobs.plan("true", comment="two\nlines")
        with pytest.raises(ConfigError, match="not-a-name"):
            jobs.plan("true", env={"not-a-name": "1"})


class TestOnALoginNode:
    def test_jobs_run_where_they_are_planned(
        self, slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs = Jobs(slurm, tmp_path)
        monkeypatch.setenv("SLURM_CONF", str(slurm.slurm_conf))
        executor = jobs.slurm_executor(tunnel=run.LocalTunnel(job_dir=""))
        before = slurm.sshd.commands()
        with run.Experiment("here", executor=executor, clean_mode=True, check=True) as exp:
            exp.add(script("pwd; echo /nemo_run"), name="job")
            exp.run()
        directory = f"{exp._exp_dir}/job"
        assert log_of(exp, "job") == [f"{directory}/code\n", f"{directory}\n"]
        assert slurm.sshd.commands() == before


def handle(app_id: str) -> str:
    return f"slurm_tunnel://nemo_run/{app_id}"
