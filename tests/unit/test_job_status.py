"""What is said of a job, and which of an experiment's jobs count as failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from torchx.specs import AppState, ReplicaStatus, RoleStatus

from nemo_run._experiments.conductor.outcome import causes, reason, without_success
from nemo_run._experiments.store.states import JobState, MemberState
from nemo_run._jobs.cause import Cause
from nemo_run._jobs.records import JobAttempt, JobPart, JobRecord, RoleSize
from nemo_run._jobs.status import JobStatus, recorded, role_statuses

RECORD = JobRecord(
    app_id="train-1",
    scheduler="local_persistent",
    roles=(RoleSize("train", 2), RoleSize("eval", 1)),
    state="FAILED",
    message="why",
    exit_code=3,
    ui_url="https://x",
    restarts=4,
    submitted_at=1,
    last_seen_at=2,
    started_at=3,
    ended_at=5,
    job_dir="/",
    parts=(JobPart(0, "RUNNING", None, "node7"), JobPart(2, "FAILED", 3)),
    attempts=(JobAttempt(1),),
)


def test_a_job_is_as_it_was_last_recorded() -> None:
    assert recorded(RECORD) == JobStatus(
        state=AppState.FAILED,
        message="why",
        exit_code=3,
        url="https://x",
        restarts=4,
        started_at=3,
        ended_at=5,
        parts=RECORD.parts,
        attempts=RECORD.attempts,
    )


def test_a_status_says_no_more_than_it_was_told() -> None:
    status = JobStatus(state=AppState.RUNNING)
    assert (status.message, status.url, status.restarts, status.lost) == ("", "", 0, False)


def test_the_replicas_of_a_job_without_parts_are_those_asked_for_in_the_state_of_the_job() -> None:
    statuses = role_statuses(RECORD, JobStatus(state=AppState.RUNNING), "here")
    assert statuses == [
        RoleStatus(
            "train", [ReplicaStatus(k, AppState.RUNNING, "train", "here") for k in range(2)]
        ),
        RoleStatus("eval", [ReplicaStatus(0, AppState.RUNNING, "eval", "here")]),
    ]


def test_the_parts_of_a_job_are_replicas_of_its_first_role() -> None:
    statuses = role_statuses(RECORD, recorded(RECORD), "here")
    assert statuses == [
        RoleStatus(
            "train",
            [
                ReplicaStatus(0, AppState.RUNNING, "train", "node7"),
                ReplicaStatus(2, AppState.FAILED, "train", "here"),
            ],
        )
    ]


@dataclass
class Named:
    """What is looked at here of a job."""

    id: str
    dependencies: list[str] = field(default_factory=list)
    run_if: str = "succeeded"


def of(word: str, **values: Any) -> JobState:
    return JobState([MemberState(state=AppState[word], **values)])


def names(found: list[Any]) -> list[str]:
    return [job.id for job, _ in found]


class TestFailures:
    @pytest.mark.parametrize(
        ("word", "counts"),
        [("SUCCEEDED", False), ("FAILED", True), ("CANCELLED", True), ("RUNNING", False)],
    )
    def test_an_end_without_success_counts(self, word: str, counts: bool) -> None:
        jobs = cast(Any, [Named("a")])
        assert names(without_success(jobs, [of(word)])) == ["a"] * counts

    def test_a_job_of_which_nothing_more_will_be_known_counts(self) -> None:
        jobs = cast(Any, [Named("a")])
        assert names(without_success(jobs, [of("UNKNOWN", lost=True)])) == ["a"]

    @pytest.mark.parametrize(
        ("run_if", "before", "counts"),
        [
            ("failed", ["SUCCEEDED", "SUCCEEDED"], False),
            ("failed", ["SUCCEEDED", "FAILED"], True),
            ("succeeded", ["SUCCEEDED", "SUCCEEDED"], True),
        ],
    )
    def test_a_job_for_failures_that_was_not_needed_does_not_count(
        self, run_if: str, before: list[str], counts: bool
    ) -> None:
        jobs = cast(Any, [Named("a"), Named("b"), Named("c", ["a", "b"], run_if)])
        found = names(without_success(jobs, [*map(of, before), of("CANCELLED")]))
        assert ("c" in found) is counts

    def test_jobs_that_were_not_started_for_another_are_no_cause(self) -> None:
        jobs = cast(Any, [Named("a"), Named("b", ["a"]), Named("c", ["a"]), Named("d")])
        states = [of("FAILED"), of("CANCELLED"), of("FAILED"), of("CANCELLED")]
        assert names(causes(jobs, states)) == ["a", "c", "d"]

    def test_a_line_says_which_job_ended_how_and_why(self) -> None:
        job = cast(Any, Named("train"))
        failed = of("FAILED", exit_code=3, message="why")
        assert reason(job, failed) == "Job train FAILED with exit code 3: why"
        assert reason(job, of("FAILED", exit_code=0)) == "Job train FAILED with exit code 0"
        assert reason(job, of("CANCELLED")) == "Job train CANCELLED"


class TestGroups:
    def test_a_group_says_which_tasks_failed_and_each_message_once(self) -> None:
        members = [
            MemberState(state=AppState.FAILED, exit_code=3, message="why"),
            MemberState(state=AppState.CANCELLED, exit_code=1, message="cancelled"),
            MemberState(state=AppState.FAILED, message="why"),
        ]
        state = JobState(members)
        assert state.message == "task 0 ended with 3; task 2 ended with None; why"
        assert (state.exit_code, state.ended, state.launched) == (3, True, True)
        assert JobState(members[1:2]).message == "cancelled"

    def test_the_code_is_of_a_task_that_failed_before_any_other(self) -> None:
        cancelled = MemberState(state=AppState.CANCELLED, exit_code=143)
        failed = MemberState(state=AppState.FAILED, exit_code=2)
        assert JobState([cancelled, failed]).exit_code == 2
        assert JobState([cancelled]).exit_code == 143
        assert JobState([MemberState()]).exit_code is None

    def test_the_cause_is_that_of_the_task_that_failed_first(self) -> None:
        early = MemberState(
            state=AppState.FAILED, ended_at=5, cause=Cause("out_of_memory", "no memory")
        )
        late = MemberState(state=AppState.FAILED, ended_at=9, cause=Cause("exception", "boom"))
        ended = MemberState(state=AppState.CANCELLED, ended_at=1, message="stopped")
        good = MemberState(state=AppState.SUCCEEDED, ended_at=0)
        runs = MemberState(state=AppState.RUNNING)
        state = JobState([good, ended, late, runs, early])
        assert state.first_failed is early
        assert state.cause == early.cause
        assert "no memory" in state.reason
        assert "boom" not in state.reason
        assert "stopped" in state.reason
        assert JobState([good, ended]).first_failed is ended
        assert JobState([good, runs]).first_failed is None
        assert JobState([good, runs]).cause is None

    def test_parts_and_attempts_are_those_of_all_tasks(self) -> None:
        one = MemberState(parts=[JobPart(0, "RUNNING")], attempts=[JobAttempt(1)])
        other = MemberState(parts=[JobPart(1, "FAILED")], attempts=[JobAttempt(2)])
        state = JobState([one, other])
        assert [part.number for part in state.parts] == [0, 1]
        assert [attempt.number for attempt in state.attempts] == [1, 2]

    def test_a_job_with_a_handle_is_launched_and_one_that_waits_is_not(self) -> None:
        assert not JobState().launched
        assert JobState([MemberState(), MemberState(handle="x")]).launched

    def test_a_job_lasts_from_its_first_start_to_its_last_end(self) -> None:
        ended = AppState.SUCCEEDED
        first = MemberState(state=ended, started_at=10, ended_at=20)
        last = MemberState(state=ended, started_at=15, ended_at=40)
        assert JobState([first, last]).duration_s == 30
        assert JobState([MemberState()]).duration_s is None
        backwards = MemberState(state=ended, started_at=10, ended_at=5)
        assert JobState([backwards]).duration_s == 0

    def test_a_job_that_goes_on_lasts_until_now(self) -> None:
        began = JobState([MemberState(state=AppState.RUNNING, started_at=10)])
        duration = began.duration_s
        assert duration is not None
        assert duration > 1e9
