"""What every scheduler promises, whichever backend is behind it."""

from __future__ import annotations

import copy
import json
import logging
import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from tests import patience
from tests.conftest import processes_with
from tests.contract.backends import Cluster, End
from tests.contract.secrets import command_lines, holds, readable_files_with
from torchx.specs import AppState, is_terminal

import nemo_run as run
from nemo_run._jobs.records import new_tag
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import (
    ConfigError,
    JobNotFoundError,
    SubmitError,
    UnsupportedError,
)
from nemo_run.run.torchx_backend.packaging import package
from nemo_run.run.torchx_backend.schedulers.api import TAG

AWKWARD = [
    "",
    " ",
    "a b",
    'say "hi"',
    "it's",
    "$HOME",
    "${HOME}",
    "$$",
    "${app_id} ${replica_id} ${img_root}",
    "`date`",
    "x\ny",
    "\ttab",
    "back\\slash",
    "50% off; $(exit 1) && false | cat > /dev/null &",
    "*",
    "~",
    "--flag=a b",
    "naïve ☃ 日本",
    "!history",
    "trailing ",
    "{{mustache}}",
    "#hash",
]

# Forward is the only way: what may follow a state is itself or something later.
AGE = {
    AppState.UNSUBMITTED: 0,
    AppState.SUBMITTED: 1,
    AppState.PENDING: 2,
    AppState.RUNNING: 3,
    AppState.SUCCEEDED: 4,
    AppState.FAILED: 4,
    AppState.CANCELLED: 4,
}


def files_below(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*")}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pids: list[int], timeout_s: float = 5) -> list[int]:
    deadline = patience.deadline(timeout_s)
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


class TestPlanning:
    def test_a_dry_run_creates_nothing(self, cluster: Cluster, tmp_path: Path) -> None:
        cluster.plan("echo hi")  # writes the script that travels
        before = files_below(tmp_path)
        planned = cluster.plan(["echo", "hi"])
        str(planned)
        after = files_below(tmp_path)
        assert after.keys() == before.keys()
        assert cluster.listed() == {}
        assert processes_with(f"NEMORUN_HOME={os.environ['NEMORUN_HOME']}") == []

    def test_the_same_input_gives_the_same_request_apart_from_the_tag(
        self, cluster: Cluster
    ) -> None:
        texts = set()
        for _ in range(2):
            planned = cluster.plan(["echo", "hi"], env={"B": "2", "A": "1"})
            texts.add(str(planned).replace(planned.planned.metadata[TAG], "TAG"))
        assert len(texts) == 1

    def test_every_plan_has_a_tag_of_its_own(self, cluster: Cluster) -> None:
        tags = {cluster.plan(["true"]).planned.metadata[TAG] for _ in range(20)}
        assert len(tags) == 20

    def test_a_plan_can_be_read_by_people(self, cluster: Cluster) -> None:
        text = str(cluster.plan(["echo", "a-very-special-word"]))
        assert "a-very-special-word" in text
        assert " object at 0x" not in text

    def test_planning_changes_neither_application_nor_executor(self, cluster: Cluster) -> None:
        executor = cluster.assigned("job", env_vars={"A": "1"}, retries=0)
        app = cluster.app(["echo", "$HOME"], env={"X": "${head_node_ip_var}"}, executor=executor)
        app_before, executor_before = copy.deepcopy(app), copy.deepcopy(executor)
        cluster.scheduler.submit_dryrun(app, executor)
        assert app == app_before
        assert executor == executor_before

    @pytest.mark.parametrize("name", ["", "A=B", "A-B", "1A", "A B"])
    def test_a_variable_that_would_not_arrive_is_refused(self, cluster: Cluster, name: str) -> None:
        executor = cluster.assigned("job")
        app = cluster.app(["env"], env={name: "1"}, executor=executor)
        if executor.CAPABILITIES.local_paths and name and "=" not in name:
            cluster.scheduler.submit_dryrun(app, executor)  # no shell is between it and the job
            return
        with pytest.raises(ConfigError, match="name of an environment variable"):
            cluster.scheduler.submit_dryrun(app, executor)

    def test_another_kind_of_executor_is_refused(self, cluster: Cluster) -> None:
        class Other(Executor):
            pass

        app = cluster.app(["true"], executor=cluster.assigned("job"))
        with pytest.raises(ConfigError, match="Other"):
            cluster.scheduler.submit_dryrun(app, Other())

    def test_only_a_plan_can_be_scheduled(self, cluster: Cluster) -> None:
        from torchx.specs import AppDryRunInfo

        with pytest.raises(ConfigError, match="submit_dryrun"):
            cluster.scheduler.schedule(AppDryRunInfo({}, str))


class TestWhatArrives:
    def test_arguments_arrive_unchanged(self, cluster: Cluster) -> None:
        show = "import json, sys; print(json.dumps(sys.argv[1:]))"
        app_id = cluster.schedule(["python3", "-c", show, *AWKWARD])
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert json.loads("".join(cluster.lines(app_id))) == AWKWARD

    def test_the_environment_arrives_unchanged(self, cluster: Cluster) -> None:
        env = {f"VALUE_{number}": value for number, value in enumerate(AWKWARD)}
        show = (
            "import json, os; "
            "print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('VALUE_')}))"
        )
        app_id = cluster.schedule(["python3", "-c", show], env=env)
        cluster.wait(app_id)
        assert json.loads("".join(cluster.lines(app_id))) == env

    def test_literals_of_a_script_arrive_letter_by_letter(self, cluster: Cluster) -> None:
        texts = [*AWKWARD, "--option value", "/nemo_run/x", "$${node_rank_var}", "$(NAME)"]
        variables = {f"VALUE_{n}": run.literal(text) for n, text in enumerate(texts)}
        show = (
            "import json, os, sys; "
            "env = {k: v for k, v in os.environ.items() if k.startswith('VALUE_')}; "
            "print(json.dumps([sys.argv[1:], env]))"
        )
        script = run.Script(
            inline=f'exec python3 -c "{show}" "$@"',
            args=[run.literal(text) for text in texts],
            env=dict(variables),
        )
        executor = cluster.assigned("job", env_vars={"VALUE_OF_EXECUTOR": run.literal("$HOME")})
        app = package("job", script, executor, serialize_to_file=True)
        scheduler = cluster.scheduler
        app_id = scheduler.schedule(scheduler.submit_dryrun(app, executor))
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        args, env = json.loads("".join(cluster.lines(app_id)))
        assert args == texts
        assert env == {**variables, "VALUE_OF_EXECUTOR": "$HOME"}

    def test_the_variables_of_the_executor_reach_a_script(self, cluster: Cluster) -> None:
        app_id = cluster.schedule(
            'printf "%s|%s\\n" "$A" "$B"', env={"B": "script"}, env_vars={"A": "x y", "B": "no"}
        )
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["x y|script\n"]

    def test_a_script_runs_as_it_was_written(self, cluster: Cluster) -> None:
        script = "\n".join(
            [
                'for word in \'a  b\' "c\'d"; do echo "<$word>"; done',
                "cat <<'EOF'",
                '$HOME `date` "quoted" \\n',
                "EOF",
                "echo $((6 * 7)) naïve",
            ]
        )
        app_id = cluster.schedule(script)
        cluster.wait(app_id)
        assert cluster.lines(app_id) == [
            "<a  b>\n",
            "<c'd>\n",
            '$HOME `date` "quoted" \\n\n',
            "42 naïve\n",
        ]

    def test_there_is_nothing_to_read(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("if read line; then echo got $line; else echo nothing; fi")
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["nothing\n"]


class TestHowItEnds:
    @pytest.mark.parametrize(
        ("script", "state", "exit_code"),
        [
            ("exit 0", AppState.SUCCEEDED, 0),
            ("exit 3", AppState.FAILED, 3),
            ("exit 255", AppState.FAILED, 255),
        ],
    )
    def test_the_state_is_where_the_job_ended(
        self, cluster: Cluster, script: str, state: AppState, exit_code: int
    ) -> None:
        end = cluster.wait(cluster.schedule(script))
        assert (end.state, end.exit_code) == (state, exit_code)

    def test_a_job_that_kills_itself_has_failed(self, cluster: Cluster) -> None:
        end = cluster.wait(cluster.schedule("kill -KILL $$"))
        assert end.state is AppState.FAILED
        assert end.exit_code != 0

    def test_a_program_that_is_not_there_is_named(self, cluster: Cluster) -> None:
        try:
            app_id = cluster.schedule(["no-such-program-here", "--help"])
        except SubmitError as err:
            said = str(err)
        else:
            end = cluster.wait(app_id)
            assert end.state is AppState.FAILED
            said = end.message + "".join(cluster.lines(app_id))
        assert "no-such-program-here" in said

    def test_states_only_move_forward(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("sleep 0.3")
        seen: list[AppState] = []
        while not seen or not is_terminal(seen[-1]):
            status = cluster.status(app_id)
            assert status is not None
            seen.append(status.state)
        for _ in range(3):
            seen.append(cluster.scheduler.describe(app_id).state)
        ages = [AGE[state] for state in seen]
        assert ages == sorted(ages)
        assert set(seen[-3:]) == {AppState.SUCCEEDED}

    def test_a_running_job_is_running(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        cluster.wait_until_running(app_id)
        described = cluster.scheduler.describe(app_id)
        assert described.app_id == app_id
        assert [(role.name, role.num_replicas) for role in described.roles] == [("job", 1)]
        (told,) = described.roles_statuses
        assert [(r.role, r.id, r.state) for r in told.replicas] == [("job", 0, AppState.RUNNING)]
        cluster.cancel(app_id)

    def test_nothing_is_known_of_a_job_that_was_never_submitted(self, cluster: Cluster) -> None:
        assert cluster.scheduler.describe("never-submitted") is None
        assert cluster.scheduler.status_of("never-submitted") is None

    def test_a_plan_knows_whether_it_was_submitted(self, cluster: Cluster) -> None:
        planned = cluster.plan(["true"])
        assert cluster.scheduler.submitted(planned) is None
        app_id = cluster.scheduler.schedule(planned)
        assert cluster.scheduler.submitted(planned) == app_id

    def test_an_outage_leaves_the_last_known_state(self, cluster: Cluster) -> None:
        if cluster.outage is None:
            pytest.skip("this backend is always there")
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        before = cluster.status(app_id)
        with cluster.outage():
            during = cluster.status(app_id)
        assert before is not None
        assert during is not None
        assert during.state is before.state
        assert "cannot be reached" in during.message
        cluster.cancel(app_id)


class TestRetries:
    def test_a_job_that_fails_is_started_again_as_often_as_asked(self, cluster: Cluster) -> None:
        if not cluster.executor().CAPABILITIES.retries:
            with pytest.raises(UnsupportedError, match="retries"):
                cluster.plan(["false"], retries=2)
            return
        app_id = cluster.schedule("echo started; exit 5", retries=1)
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code, end.restarts) == (AppState.FAILED, 5, 1)
        assert cluster.scheduler.describe(app_id).num_restarts == 1
        logged = 2 if cluster.keeps_all_tries else 1
        assert cluster.lines(app_id).count("started\n") == logged

    def test_a_job_that_succeeds_at_the_second_try_has_succeeded(self, cluster: Cluster) -> None:
        if not cluster.executor().CAPABILITIES.retries:
            pytest.skip("cannot start a job again")
        mark = shlex.quote(str(cluster.scratch / "tried"))
        app_id = cluster.schedule(f"test -e {mark} || {{ touch {mark}; exit 1; }}", retries=5)
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code, end.restarts) == (AppState.SUCCEEDED, 0, 1)

    def test_a_job_that_succeeds_is_not_started_again(self, cluster: Cluster) -> None:
        if not cluster.executor().CAPABILITIES.retries:
            pytest.skip("cannot start a job again")
        app_id = cluster.schedule("echo started", retries=3)
        assert cluster.wait(app_id).restarts == 0
        assert cluster.lines(app_id) == ["started\n"]

    def test_a_cancelled_job_is_not_started_again(self, cluster: Cluster) -> None:
        if not cluster.executor().CAPABILITIES.retries:
            pytest.skip("cannot start a job again")
        app_id = cluster.schedule("echo started; sleep 600", retries=3)
        cluster.wait_for_line(app_id, "started\n")
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED
        # Its shell may say that it was terminated.
        assert cluster.lines(app_id).count("started\n") == 1

    def test_a_job_can_be_cancelled_between_two_tries(self, cluster: Cluster) -> None:
        if not cluster.executor().CAPABILITIES.retries:
            pytest.skip("cannot start a job again")
        app_id = cluster.schedule("echo started; exit 1", retries=99)  # some try again at once
        cluster.wait_for_line(app_id, "started\n")
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED
        tries = len(cluster.lines(app_id))
        time.sleep(0.3)
        assert len(cluster.lines(app_id)) == tries

    def test_a_job_that_takes_too_long_has_failed(self, cluster: Cluster) -> None:
        if not cluster.executor().CAPABILITIES.time_limit:
            pytest.skip("has no time limit")
        end = cluster.wait(cluster.schedule("sleep 600", time_limit_s=0.5))
        assert end.state is AppState.FAILED
        assert "limit" in end.message


class TestCancelling:
    def test_cancel_returns_when_the_job_has_ended(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        cluster.cancel(app_id)
        status = cluster.status(app_id)
        assert status is not None
        assert status.state is AppState.CANCELLED

    def test_cancelling_twice_is_fine(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("sleep 600")
        cluster.cancel(app_id)
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_two_may_cancel_at_once(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        failures: list[BaseException] = []

        def cancel() -> None:
            try:
                cluster.cancel(app_id)
            except BaseException as err:  # noqa: BLE001  # handed to the test's own thread
                failures.append(err)

        threads = [threading.Thread(target=cancel) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_a_job_can_be_cancelled_before_it_has_started(self, cluster: Cluster) -> None:
        for _ in range(3):
            app_id = cluster.schedule("sleep 600")
            cluster.cancel(app_id)
            assert cluster.wait(app_id).state is AppState.CANCELLED

    @pytest.mark.parametrize(("script", "state"), [("exit 0", 4), ("exit 1", 5)])
    def test_a_job_that_has_ended_stays_as_it_ended(
        self, cluster: Cluster, script: str, state: int
    ) -> None:
        app_id = cluster.schedule(script)
        cluster.wait(app_id)
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState(state)

    def test_a_job_that_is_not_known_is_left_alone(self, cluster: Cluster) -> None:
        cluster.cancel("never-submitted")

    def test_no_process_is_left(self, cluster: Cluster) -> None:
        app_id = cluster.schedule(
            "sleep 661 & echo $!\n(sleep 662 & echo $!; wait) &\necho $$; echo up; wait"
        )
        cluster.wait_for_line(app_id, "up\n")
        deadline = patience.deadline(30 * cluster.patience)
        while len(cluster.lines(app_id)) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        pids = [int(line) for line in cluster.lines(app_id) if line.strip().isdigit()]
        assert len(pids) == 3
        cluster.cancel(app_id)
        assert wait_until_dead(pids, cluster.ending_s) == []

    def test_no_process_is_left_that_went_its_own_way(self, cluster: Cluster) -> None:
        app_id = cluster.schedule(
            "setsid bash -c 'echo $$; echo up; exec sleep 663' & wait; sleep 664"
        )
        cluster.wait_for_line(app_id, "up\n")
        pids = [int(line) for line in cluster.lines(app_id) if line.strip().isdigit()]
        assert len(pids) == 1
        cluster.cancel(app_id)
        assert wait_until_dead(pids) == []

    def test_a_job_may_clean_up(self, cluster: Cluster) -> None:
        if not cluster.asks_first:
            pytest.skip("ends jobs without asking them first")
        # All processes may be asked, the sleeping one first, and the shell is to outlive it.
        wait = "while :; do sleep 60 & wait; done"
        app_id = cluster.schedule(f"trap 'echo cleaned; exit 0' TERM; echo up; {wait}")
        cluster.wait_for_line(app_id, "up\n")
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED
        assert cluster.lines(app_id)[-1] == "cleaned\n"

    @pytest.mark.slow
    def test_a_job_that_does_not_listen_is_ended_all_the_same(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("trap '' TERM INT HUP; echo $$; while :; do sleep 1; done")
        deadline = patience.deadline(30 * cluster.patience)
        while not cluster.lines(app_id) and time.monotonic() < deadline:
            time.sleep(0.02)
        pid = int(cluster.lines(app_id)[0])
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED
        assert wait_until_dead([pid], cluster.ending_s) == []

    def test_kill_does_not_ask(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("trap '' TERM; echo up; while :; do sleep 1; done")
        cluster.wait_for_line(app_id, "up\n")
        started = time.monotonic()
        cluster.scheduler.kill(app_id)
        # Those that ask wait for ten seconds.
        assert time.monotonic() - started < patience.seconds(9 * cluster.patience)
        assert cluster.wait(app_id).state is AppState.CANCELLED


class TestLogs:
    def test_lines_come_whole_and_in_order(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("for i in $(seq 2000); do echo line $i; done")
        cluster.wait(app_id)
        assert cluster.lines(app_id) == [f"line {i}\n" for i in range(1, 2001)]

    def test_both_streams_are_in_the_log(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo out; echo err >&2; echo out again")
        cluster.wait(app_id)
        assert sorted(cluster.lines(app_id)) == ["err\n", "out\n", "out again\n"]

    def test_a_line_ends_at_its_newline_and_nowhere_else(self, cluster: Cluster) -> None:
        wanted = ["10%\r20%\rdone\n", "form\x0cfeed\n", "a\x0bb\x1cc\n", "para\u2029 line\u2028\n"]
        app_id = cluster.schedule(["printf", "%s", "".join(wanted)])
        cluster.wait(app_id)
        if cluster.returns_end_lines:
            wanted[:1] = ["10%\n", "20%\n", "done\n"]
        assert cluster.lines(app_id) == wanted

    def test_the_last_line_may_lack_its_newline(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo one; printf two")
        cluster.wait(app_id)
        assert [line.rstrip("\n") for line in cluster.lines(app_id)] == ["one", "two"]

    def test_a_long_line_is_one_line(self, cluster: Cluster) -> None:
        app_id = cluster.schedule(["python3", "-c", "print('x' * 3_000_000); print('end')"])
        cluster.wait(app_id)
        first, last = cluster.lines(app_id)
        assert (len(first), last) == (3_000_001, "end\n")

    def test_bytes_that_are_no_text_do_no_harm(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("printf 'a\\377b\\n'; echo after")
        cluster.wait(app_id)
        first, second = cluster.lines(app_id)
        assert first.startswith("a")
        assert first.endswith("b\n")
        assert second == "after\n"

    def test_a_job_that_says_nothing_has_no_lines(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("true")
        cluster.wait(app_id)
        assert cluster.lines(app_id) == []

    def test_without_following_the_end_is_what_there_is_now(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo first; sleep 600; echo second")
        cluster.wait_for_line(app_id, "first\n")
        assert cluster.lines(app_id) == ["first\n"]
        cluster.cancel(app_id)

    def test_following_ends_with_the_job_when_its_last_line_was_read(
        self, cluster: Cluster
    ) -> None:
        cluster.have_late_logs(1.0)
        app_id = cluster.schedule("for i in 1 2 3; do echo $i; sleep 0.1; done")
        assert cluster.lines(app_id, should_tail=True) == ["1\n", "2\n", "3\n"]
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_lines_are_followed_as_they_come(self, cluster: Cluster) -> None:
        go = cluster.scratch / "go"
        app_id = cluster.schedule(
            f"echo first; until [ -e '{go}' ]; do sleep 0.1; done; echo second"
        )
        lines: Iterator[str] = iter(cluster.scheduler.log_iter(app_id, "job", should_tail=True))
        assert next(lines) == "first\n"
        go.touch()
        assert list(lines) == ["second\n"]

    def test_a_line_in_the_making_is_waited_for(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("printf 'half'; sleep 0.3; echo ' and half'")
        assert cluster.lines(app_id, should_tail=True) == ["half and half\n"]

    def test_following_ends_when_the_job_is_cancelled(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        timer = threading.Timer(0.3, cluster.cancel, [app_id])
        timer.start()
        assert cluster.lines(app_id, should_tail=True)[0] == "up\n"
        timer.join()

    def test_following_a_job_that_has_ended_ends_too(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo done")
        cluster.wait(app_id)
        assert cluster.lines(app_id, should_tail=True) == ["done\n"]

    def test_a_regular_expression_chooses_lines(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo loss=1; echo step; echo loss=2")
        cluster.wait(app_id)
        assert cluster.lines(app_id, regex=r"loss=\d") == ["loss=1\n", "loss=2\n"]
        assert cluster.lines(app_id, regex="^step$") == ["step\n"]

    def test_what_is_no_regular_expression_is_refused(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("true")
        with pytest.raises(ConfigError, match="regular expression"):
            cluster.lines(app_id, regex="(")
        cluster.wait(app_id)

    @pytest.mark.slow
    def test_a_time_chooses_lines(self, cluster: Cluster) -> None:
        if not cluster.executor().CAPABILITIES.log_times:
            app_id = cluster.schedule("true")
            for bound in ("since", "until"):
                with pytest.raises(UnsupportedError, match=bound):
                    cluster.lines(app_id, **{bound: datetime.now()})
            cluster.wait(app_id)
            return
        go = cluster.scratch / "go"
        app_id = cluster.schedule(f"echo early; until [ -e '{go}' ]; do sleep 0.1; done; echo late")
        cluster.wait_for_line(app_id, "early\n")
        # Not all backends tell times apart that are less than a second from each other.
        time.sleep(1.3)
        between = datetime.now()
        time.sleep(1.3)
        go.touch()
        cluster.wait(app_id)
        for moment in (between, between.astimezone(timezone.utc)):
            assert cluster.lines(app_id, since=moment) == ["late\n"]
            assert cluster.lines(app_id, until=moment) == ["early\n"]
        hour = timedelta(hours=1)
        assert cluster.lines(app_id, since=between - hour) == ["early\n", "late\n"]
        assert cluster.lines(app_id, since=between + hour) == []
        assert cluster.lines(app_id, until=between - hour) == []
        assert cluster.lines(app_id, since=between, regex="early") == []

    def test_there_are_no_logs_of_a_job_that_is_not_known(self, cluster: Cluster) -> None:
        with pytest.raises(JobNotFoundError, match="never-submitted"):
            list(cluster.scheduler.log_iter("never-submitted", "job"))

    def test_a_role_or_replica_that_is_not_there_is_named(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("true")
        with pytest.raises(JobNotFoundError, match="other"):
            list(cluster.scheduler.log_iter(app_id, "other"))
        with pytest.raises(JobNotFoundError, match="7"):
            list(cluster.scheduler.log_iter(app_id, "job", 7))
        cluster.wait(app_id)


class TestOtherProcesses:
    def test_a_job_is_found_by_another_process(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("echo here; exit 3")
        seen = cluster.in_new_process().call("seen", app_id)
        assert seen == {
            "state": "FAILED",
            "exit_code": 3,
            "lines": ["here\n"],
            "listed": [app_id],
        }

    def test_a_job_outlives_the_process_that_scheduled_it(self, cluster: Cluster) -> None:
        if not cluster.executor().CAPABILITIES.detach:
            pytest.skip("cannot detach")
        app_id = cluster.in_new_process().schedule("sleep 0.5; echo done")
        assert cluster.wait(app_id) == End(AppState.SUCCEEDED, 0, "", 0)
        assert cluster.lines(app_id) == ["done\n"]

    def test_a_job_is_cancelled_by_another_process(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("sleep 600")
        cluster.in_new_process().cancel(app_id)
        status = cluster.status(app_id)
        assert status is not None
        assert status.state is AppState.CANCELLED

    @pytest.mark.slow
    def test_jobs_that_eight_processes_schedule_at_once_are_all_found(
        self, cluster: Cluster
    ) -> None:
        each = cluster.jobs_of_a_process
        names = [[f"job-{process}-{number}" for number in range(each)] for process in range(8)]
        app_ids = cluster.in_new_process().call("schedule_in_processes", "echo $0", names)
        assert len(set(app_ids)) == 8 * each
        assert cluster.listed().keys() == set(app_ids)
        assert {cluster.wait(app_id).state for app_id in app_ids} == {AppState.SUCCEEDED}


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "a___b",
            "___",
            "x" * 80,
            "Mixed.Case-and_more",
            "1234",
            "with space",
            "naïve",
            "it's",
        ],
    )
    def test_any_name_will_do(self, cluster: Cluster, name: str) -> None:
        app_id = cluster.schedule("echo hi", name=name)
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["hi\n"]
        assert list(cluster.listed()) == [app_id]

    def test_two_jobs_of_one_name_are_two_jobs(self, cluster: Cluster) -> None:
        first = cluster.schedule("echo 1", name="same")
        second = cluster.schedule("echo 2", name="same")
        assert first != second
        cluster.wait(first)
        cluster.wait(second)
        assert cluster.listed().keys() == {first, second}

    def test_the_app_id_fits_into_a_handle(self, cluster: Cluster) -> None:
        app_id = cluster.schedule("true", name="a b/c?d")
        assert re.fullmatch(r"[^/\s]+", app_id)
        cluster.wait(app_id)


class TestListing:
    def test_jobs_are_listed_with_their_states_the_latest_first(self, cluster: Cluster) -> None:
        good = cluster.schedule("true", name="good")
        bad = cluster.schedule("false", name="bad")
        long = cluster.schedule("echo up; sleep 600", name="long")
        cluster.wait(good)
        cluster.wait(bad)
        cluster.wait_until_running(long)
        assert list(cluster.listed().items()) == [
            (long, AppState.RUNNING),
            (bad, AppState.FAILED),
            (good, AppState.SUCCEEDED),
        ]
        cluster.cancel(long)


SECRET = f"hf-tok-{new_tag()}"
"""Of this process: others on this machine, which may run these tests too, have another."""


class TestSecrets:
    def test_a_token_is_in_no_file_that_others_may_read(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        up, go_on = cluster.scratch / "up", cluster.scratch / "go_on"
        task = f"echo ${{#HF_TOKEN}}; touch {up}; until [ -e {go_on} ]; do sleep 0.1; done"
        app_id = cluster.schedule(task, env_vars={"HF_TOKEN": SECRET})
        commands = set(command_lines().splitlines())
        deadline = patience.deadline(30 * cluster.patience)
        while not up.exists():  # also of what starts the job
            assert time.monotonic() < deadline, cluster.status(app_id)
            time.sleep(0.05)
            commands.update(command_lines().splitlines())
        while_running = readable_files_with(SECRET, tmp_path)
        commands.update(command_lines().splitlines())
        go_on.touch()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == [f"{len(SECRET)}\n"]
        assert while_running == []
        assert readable_files_with(SECRET, tmp_path) == []
        shown = [command for command in commands if SECRET in command]
        assert shown == [] or not cluster.hides_variables

    def test_a_token_is_not_in_what_a_dry_run_shows(self, cluster: Cluster) -> None:
        planned = cluster.plan("echo hi", env_vars={"HF_TOKEN": SECRET})
        assert not holds(SECRET, str(planned).encode())

    def test_a_token_of_the_script_is_kept_too(self, cluster: Cluster, tmp_path: Path) -> None:
        planned = cluster.plan("echo hi", env={"WANDB_API_KEY": SECRET})
        assert not holds(SECRET, str(planned).encode())
        app_id = cluster.scheduler.schedule(planned)
        cluster.wait(app_id)
        assert readable_files_with(SECRET, tmp_path) == []

    def test_an_experiment_keeps_a_token(self, cluster: Cluster, nemorun_home: Path) -> None:
        executor = cluster.executor(env_vars={"HF_TOKEN": SECRET})
        with run.Experiment("quiet", executor=executor, clean_mode=True) as exp:
            exp.add(run.Script(inline="sleep 0.2"), name="job")
            exp.run()
            while_running = readable_files_with(SECRET, nemorun_home)
        assert while_running == []
        assert readable_files_with(SECRET, nemorun_home) == []


class TestQuiet:
    def test_nothing_is_printed(
        self,
        cluster: Cluster,
        capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        # Another test's experiment may have set up where messages go.
        monkeypatch.setattr(logging.getLogger("nemo_run"), "handlers", [])
        app_id = cluster.schedule("echo out; echo err >&2; exit 1")
        cluster.wait(app_id)
        cluster.lines(app_id, should_tail=True)
        cluster.listed()
        cluster.cancel(app_id)
        cancelled = cluster.schedule("sleep 600")
        cluster.cancel(cancelled)
        cluster.cancel("never-submitted")
        assert capfd.readouterr() == ("", "")

    def test_an_executor_is_not_changed_by_use(self, cluster: Cluster) -> None:
        executor = cluster.assigned("job", env_vars={"A": "1"})
        before = copy.deepcopy(executor)
        app = cluster.app("echo $A", executor=executor)
        app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
        cluster.wait(app_id)
        assert executor == before

    def test_a_scheduler_can_be_closed_without_harm(self, cluster: Cluster) -> None:
        scheduler = cluster.scheduler
        app_id = scheduler.schedule(cluster.plan("sleep 0.3; echo done"))
        scheduler.close()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_signals_of_the_process_are_left_as_they_were(self, cluster: Cluster) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        cluster.wait(cluster.schedule("true"))
        after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert after == before
