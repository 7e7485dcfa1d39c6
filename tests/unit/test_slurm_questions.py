"""What a cluster is asked, how often, and what its answers mean together."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import patience

from nemo_run._backends.slurm.client import LOST_AFTER_S, Slurm
from nemo_run._backends.slurm.remote import MARK, Answer
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    JobLostError,
    JobNotFoundError,
)


class Queue:
    """A shell on a cluster where every job runs, that answers when it is let."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, command: str, stdin: bytes, timeout_s: float) -> Answer:
        self.commands.append(command)
        self.asked.set()
        assert self.go_on.wait(patience.seconds(30))
        rows = (f"{number}|RUNNING|0|0|1794784155|N/A|node1|None\n" for number in (1, 2))
        return Answer(0, "".join(rows), "")

    def send(self, local: Path, remote: str) -> None:
        raise NotImplementedError


def test_a_question_that_the_one_before_answers_too_is_not_asked() -> None:
    queue = Queue()
    slurm = Slurm(queue)
    for number in "12":
        slurm.watch(number, f"/state/{number}")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slurm.job, "1", "/state/1")
        assert queue.asked.wait(patience.seconds(30))
        second = pool.submit(slurm.job, "2", "/state/2")
        while not slurm._asking._waiting:  # it asks while the answer is under way
            assert not second.done()
        queue.go_on.set()
        states = [report.result().rows[0].state for report in (first, second)]
    assert states == ["RUNNING", "RUNNING"]
    assert len(queue.commands) == 1


class Cluster:
    """A shell on a cluster whose programs answer like this; where they are asked by name."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = answers

    def __call__(self, command: str, stdin: bytes, timeout_s: float) -> Answer:
        return next(answer for name, answer in self.answers.items() if name in command)

    def send(self, local: Path, remote: str) -> None:
        raise NotImplementedError


ANSWERED = f"\n{MARK} accounting 0 \n"
FORGOTTEN = Answer(1, "", "slurm_load_jobs error: Invalid job id specified")
DOWN = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
NOTE = f"{MARK} exit 0 cancelled \n"


def cluster(queue: Answer, history: str, accounting: str = ANSWERED) -> Slurm:
    return Slurm(Cluster({"squeue": queue, "sacct": Answer(0, history + accounting, "")}))


def states(slurm: Slurm, array: str = "") -> dict[str, str]:
    return {row.id: row.state for row in slurm.job("7", "/state/7", array).rows}


class TestManyAtOnce:
    def test_what_was_told_of_many_is_at_hand_for_each_once(self) -> None:
        queue = Queue()
        queue.go_on.set()
        slurm = Slurm(queue)
        told = slurm.look({"1": ("/state/1", ""), "2": ("/state/2", "")})
        assert {job: report.rows[0].state for job, report in told.items()} == {
            "1": "RUNNING",
            "2": "RUNNING",
        }
        assert slurm.job("1", "/state/1") is told["1"]
        assert len(queue.commands) == 1
        slurm.job("1", "/state/1")
        assert len(queue.commands) == 2

    @pytest.mark.parametrize(
        ("queue", "error"), [(DOWN, BackendUnavailableError), (FORGOTTEN, JobNotFoundError)]
    )
    def test_so_is_what_is_in_the_way(self, queue: Answer, error: type[Exception]) -> None:
        slurm = cluster(queue, "")
        assert slurm.look({"7": ("/state/7", "")}) == {}
        with pytest.raises(error):
            slurm.job("7", "/state/7")

    @pytest.mark.parametrize("error", [BackendUnavailableError, AuthenticationError])
    def test_a_cluster_that_is_not_reached_is_not_tried_again_for_each(
        self, error: type[BackendError]
    ) -> None:
        tries = []

        class Unreachable(Cluster):
            def __call__(self, command: str, stdin: bytes, timeout_s: float) -> Answer:
                tries.append(command)
                raise error("no way", backend="ssh", operation="connect")

        slurm = Slurm(Unreachable({}))
        jobs = {str(n): (f"/state/{n}", "") for n in range(9)}
        assert slurm.look(jobs) == {}
        for job, (state_dir, array) in jobs.items():
            with pytest.raises(error, match="no way"):
                slurm.job(job, state_dir, array)
        assert len(tries) == 1


class TestCancelled:
    def test_a_job_that_never_started_was_cancelled_when_only_our_note_is_left(self) -> None:
        assert states(cluster(FORGOTTEN, NOTE)) == {"7": "CANCELLED"}

    def test_elements_that_never_started_were(self) -> None:
        slurm = cluster(FORGOTTEN, f"{NOTE}{MARK} exit 0 exit-0 0 0 0 1 2\n")
        assert states(slurm, "0-2") == {"7_1": "CANCELLED", "7_2": "CANCELLED"}

    def test_a_note_is_no_proof_while_the_controller_cannot_be_asked(self) -> None:
        with pytest.raises(BackendUnavailableError):
            states(cluster(DOWN, NOTE))

    def test_without_a_note_nothing_is_known(self) -> None:
        with pytest.raises(JobNotFoundError):
            states(cluster(FORGOTTEN, ""))


class TestForgotten:
    def test_a_job_that_nobody_knows_for_a_while_is_lost(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slurm = cluster(FORGOTTEN, "")
        with pytest.raises(JobNotFoundError) as early:
            states(slurm)
        assert not isinstance(early.value, JobLostError)
        later = time.monotonic() + LOST_AFTER_S + 1
        monkeypatch.setattr(time, "monotonic", lambda: later)
        with pytest.raises(JobLostError):
            states(slurm)

    def test_the_time_is_counted_anew_for_a_job_that_was_known_meanwhile(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = {"squeue": FORGOTTEN, "sacct": Answer(0, ANSWERED, "")}
        slurm = Slurm(Cluster(answers))
        with pytest.raises(JobNotFoundError):
            states(slurm)
        answers["squeue"] = Answer(0, "7|RUNNING|0|0|1794784155|N/A|node1|None\n", "")
        assert states(slurm) == {"7": "RUNNING"}
        answers["squeue"] = FORGOTTEN
        later = time.monotonic() + LOST_AFTER_S + 1
        monkeypatch.setattr(time, "monotonic", lambda: later)
        with pytest.raises(JobNotFoundError) as again:
            states(slurm)
        assert not isinstance(again.value, JobLostError)

    def test_what_was_said_of_another_job_with_its_number_is_not_said_of_it(self) -> None:
        done = "7|COMPLETED|0|0|1794784155|1794784156|node1|None\n"
        answers = {"squeue": Answer(0, done, ""), "sacct": Answer(0, ANSWERED, "")}
        slurm = Slurm(Cluster(answers))
        slurm.look({"7": ("/state/of another", "")})
        answers["squeue"] = Answer(0, "7|PENDING|0|0|N/A|N/A||None\n", "")
        assert states(slurm) == {"7": "PENDING"}

    def test_a_job_may_be_known_to_accounting_that_does_not_answer(self) -> None:
        said = f"{MARK} accounting 1 sacct: error: slurm_persist_conn_open: Connection refused\n"
        with pytest.raises(BackendUnavailableError, match="accounting does not answer"):
            states(cluster(FORGOTTEN, "", said))

    @pytest.mark.parametrize(
        "said", ["1 Slurm accounting storage is disabled", "127 sh: 1: sacct: not found"]
    )
    def test_where_there_is_no_accounting_nobody_else_knows_it(self, said: str) -> None:
        with pytest.raises(JobNotFoundError):
            states(cluster(FORGOTTEN, "", f"{MARK} accounting {said}\n"))


class TestControllerAway:
    @pytest.mark.parametrize("word", ["NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "LAUNCH_FAILED"])
    def test_a_job_that_slurm_may_start_again_is_not_over(self, word: str) -> None:
        row = f"7|{word}|0:0|1|2|node1|None\n"
        with pytest.raises(BackendUnavailableError):
            states(cluster(DOWN, row))
        assert states(cluster(FORGOTTEN, row)) == {"7": word}

    def test_one_that_has_ended_by_itself_is(self) -> None:
        assert states(cluster(DOWN, "7|FAILED|3:0|1|2|node1|None\n")) == {"7": "FAILED"}
