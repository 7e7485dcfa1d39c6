"""The words that Slurm prints, the fields that it is asked for, and what is said of a job."""

from __future__ import annotations

from datetime import datetime

import pytest
from torchx.specs import AppState

from nemo_run._backends.slurm.answers import (
    SACCT_FIELDS,
    SQUEUE_FIELDS,
    Exit,
    Row,
    array_elements,
    parse_sacct,
    parse_squeue,
)
from nemo_run._backends.slurm.reports import Report
from nemo_run._backends.slurm.status import SLURM_STATES, job_status
from nemo_run._jobs.records import JobPart
from nemo_run._jobs.status import JobStatus

NOW = 1000


def status_of(*rows: Row, exits: tuple[Exit, ...] = (), cancelled: bool = False) -> JobStatus:
    return job_status(Report(rows=rows, exits=exits, cancelled=cancelled), now=NOW)


def left(code: int = 0, element: str = "", *, asked: bool = False, restarts: int = 0) -> Exit:
    return Exit(
        element=element, code=code, restarts=restarts, asked=asked, started_at=10, ended_at=20
    )


class TestCells:
    def test_as_many_fields_are_asked_for_as_are_read_and_the_last_may_have_bars(self) -> None:
        names = [field.partition(":")[0] for field in SQUEUE_FIELDS.split(",")]
        assert names == (
            [
                "JobArrayID",
                "State",
                "exit_code",
                "RestartCnt",
                "StartTime",
                "EndTime",
                "NodeList",
                "Reason",
            ]
        )
        assert SACCT_FIELDS == "JobID,State,ExitCode,Start,End,NodeList,Reason"
        (queued,) = parse_squeue("1|PENDING|0|0|0|0||a|b|c")
        (accounted,) = parse_sacct("1|PENDING|0:0|0|0||a|b|c")
        assert queued.reason == accounted.reason == "a|b|c"

    def test_a_queue_that_does_not_count_restarts_has_seen_none(self) -> None:
        (row,) = parse_squeue("1|running|x|N/A|0|0|node1|None")
        assert (row.state, row.restarts, row.exit_code) == ("RUNNING", 0, None)
        assert Row(id="1", state="RUNNING").restarts == 0

    def test_accounting_is_read_whole(self) -> None:
        (row,) = parse_sacct("7_3|CANCELLED by 0|0:15|100|200|node1|Dependency")
        assert row == Row(
            id="7_3",
            state="CANCELLED",
            exit_code=143,
            started_at=100,
            ended_at=200,
            nodes="node1",
            reason="Dependency",
        )

    @pytest.mark.parametrize("word", ["None", "(null)"])
    def test_slurms_words_for_no_reason_are_no_reason(self, word: str) -> None:
        assert parse_squeue(f"1|RUNNING|0|0|0|0||{word}")[0].reason == ""
        assert parse_sacct(f"1|RUNNING|0:0|0|0||{word}")[0].reason == ""

    def test_a_job_that_never_had_nodes_has_none(self) -> None:
        assert parse_sacct("1|CANCELLED|0:0|0|0|None assigned|")[0].nodes == ""

    @pytest.mark.parametrize(
        ("state", "read"), [("", "UNKNOWN"), ("COMPLETED+", "COMPLETED"), ("timeout", "TIMEOUT")]
    )
    def test_accounting_may_cut_a_word_or_have_none(self, state: str, read: str) -> None:
        assert parse_sacct(f"1|{state}|0:0|0|0||")[0].state == read

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("[0-3]", 4),
            ("_[1,3]", 2),
            ("4000001", 1),
            ("4000002", 0),
            ("0-4000002:4000002", 0),
            ("1-9:4", 3),
            ("1-2:0", 2),
            ("1,x", 0),
            ("not 1", 0),
        ],
    )
    def test_an_array_is_as_large_as_slurm_allows_or_not_counted(
        self, text: str, count: int
    ) -> None:
        found = array_elements(text)
        assert isinstance(found, frozenset)
        assert len(found) == count


class TestProof:
    @pytest.mark.parametrize("word", ["BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL", "PREEMPTED"])
    def test_a_job_that_slurm_may_start_again_has_not_ended_for_good(self, word: str) -> None:
        assert Report(rows=[Row(id="1", state=word)]).proven(by_element=False).rows == []

    @pytest.mark.parametrize("word", ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"])
    def test_another_end_is_one(self, word: str) -> None:
        assert Report(rows=[Row(id="1", state=word)]).proven(by_element=False).rows


class TestWords:
    @pytest.mark.parametrize(
        ("state", "words"),
        [
            (
                "PENDING",
                "PENDING CONFIGURING POWER_UP_NODE REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT "
                "RESV_DEL_HOLD EXPEDITING SUSPENDED STOPPED",
            ),
            ("RUNNING", "RUNNING COMPLETING STAGE_OUT SIGNALING RESIZING UPDATE_DB"),
            ("SUCCEEDED", "COMPLETED"),
            ("CANCELLED", "CANCELLED"),
        ],
    )
    def test_words_that_mean_the_same(self, state: str, words: str) -> None:
        meant = {word for word, found in SLURM_STATES.items() if found is AppState[state]}
        assert meant == set(words.split())

    @pytest.mark.parametrize(
        ("word", "said"),
        [
            ("TIMEOUT", "reached its time limit"),
            ("DEADLINE", "could not end before"),
            ("OUT_OF_MEMORY", "used more memory"),
            ("NODE_FAIL", "a node failed"),
            ("BOOT_FAIL", "a node could not be started"),
            ("LAUNCH_FAILED", "could not be started"),
            ("RECONFIG_FAIL", "a node could not be reconfigured"),
            ("PREEMPTED", "had to make room"),
            ("REVOKED", "was given to another cluster"),
            ("SUSPENDED", "suspended"),
            ("STOPPED", "stopped by a signal"),
            ("COMPLETING", "its processes are being ended"),
            ("CONFIGURING", "nodes are being started"),
            ("REQUEUE_HOLD", "held"),
            ("SPECIAL_EXIT", "held"),
            ("RESV_DEL_HOLD", "held: its reservation"),
        ],
    )
    def test_a_word_is_explained(self, word: str, said: str) -> None:
        message = status_of(Row(id="1", state=word)).message
        assert message.startswith(f"{word}: {said}")

    @pytest.mark.parametrize("word", ["NODE_FAIL", "BOOT_FAIL"])
    def test_which_node_failed_is_said(self, word: str) -> None:
        assert status_of(Row(id="1", state=word, nodes="node7")).message.endswith(" on node7")
        assert "node7" not in status_of(Row(id="1", state="TIMEOUT", nodes="node7")).message

    def test_a_job_whose_dependency_failed_says_so(self) -> None:
        row = Row(id="1", state="CANCELLED", reason="DependencyNeverSatisfied")
        assert status_of(row).message == "CANCELLED: a job it depends on did not succeed"
        assert status_of(Row(id="1", state="CANCELLED", reason="other")).message == ""
        wrong = Row(id="1", state="FAILED", reason="DependencyNeverSatisfied")
        assert status_of(wrong).message == ""

    def test_a_job_that_waits_or_runs_for_no_reason_says_nothing(self) -> None:
        assert status_of(Row(id="1", state="PENDING")).message == ""
        assert status_of(Row(id="1", state="PENDING", started_at=NOW + 99)).message == ""
        assert status_of(Row(id="1", state="RUNNING", reason="Priority")).message == ""

    def test_a_start_that_is_not_more_than_a_second_away_is_not_announced(self) -> None:
        soon = Row(id="1", state="PENDING", reason="Priority", started_at=NOW + 1)
        later = Row(id="1", state="PENDING", reason="Priority", started_at=NOW + 2)
        assert status_of(soon).message == "waits: Priority"
        when = f"{datetime.fromtimestamp(NOW + 2):%Y-%m-%d %H:%M}"
        assert status_of(later).message == f"waits: Priority, expected to start at {when}"


class TestTimes:
    def test_a_job_that_is_over_has_both_times(self) -> None:
        status = status_of(
            Row(id="1_0", state="COMPLETED", exit_code=0, started_at=5, ended_at=9),
            Row(id="1_1", state="COMPLETED", exit_code=0, started_at=4, ended_at=11),
        )
        assert (status.started_at, status.ended_at, status.exit_code) == (4, 11, 0)

    def test_an_expected_end_is_no_end(self) -> None:
        status = status_of(Row(id="1", state="RUNNING", exit_code=0, started_at=NOW, ended_at=9999))
        assert (status.started_at, status.ended_at, status.exit_code) == (NOW, None, None)

    def test_a_job_that_waits_again_has_not_started(self) -> None:
        assert status_of(Row(id="1", state="PENDING", started_at=5)).started_at is None

    def test_now_is_the_time_of_the_question(self) -> None:
        row = Row(id="1", state="RUNNING", started_at=5)
        assert job_status(Report(rows=[row])).started_at == 5
        assert job_status(Report(rows=[row]), now=0).started_at is None


class TestCodes:
    @pytest.mark.parametrize(
        ("states", "codes", "code"),
        [
            (["FAILED"], [3], 3),
            (["FAILED"], [None], None),
            (["COMPLETED"], [None], None),
            (["COMPLETED"], [0], 0),
            (["COMPLETED", "FAILED"], [0, 2], 2),
            (["FAILED", "FAILED"], [None, 2], 2),
            (["FAILED", "FAILED"], [0, 2], 2),
            (["FAILED", "FAILED"], [1, 2], 1),
            (["NODE_FAIL", "COMPLETED"], [0, 0], None),
        ],
    )
    def test_the_code_is_of_the_first_part_that_failed_with_one(
        self, states: list[str], codes: list[int | None], code: int | None
    ) -> None:
        parts = enumerate(zip(states, codes, strict=True))
        rows = [Row(id=f"1_{n}", state=state, exit_code=c) for n, (state, c) in parts]
        assert status_of(*rows).exit_code == code


class TestMany:
    def test_how_many_have_ended_is_said_while_others_go_on(self) -> None:
        rows = [Row(id="1_0", state="COMPLETED"), Row(id="1_1", state="RUNNING")]
        assert status_of(*rows).message == "1 of 2 have ended"
        assert status_of(rows[0], Row(id="1_1", state="COMPLETED")).message == ""

    def test_five_are_named_and_the_rest_counted(self) -> None:
        rows = [Row(id=f"1_{n}", state="CANCELLED") for n in range(5)]
        names = ", ".join(f"1_{n} CANCELLED" for n in range(5))
        assert status_of(*rows).message == f"5 of 5 did not succeed: {names}"
        more = [*rows, Row(id="1_5", state="FAILED", exit_code=2)]
        assert status_of(*more).message == f"6 of 6 did not succeed: {names} and 1 more"


class TestWhatScriptsLeft:
    def test_all_is_told_by_it_where_slurm_has_forgotten_the_job(self) -> None:
        assert status_of(exits=(left(3, restarts=2),)) == JobStatus(
            state=AppState.FAILED, exit_code=3, restarts=2, started_at=10, ended_at=20
        )
        assert status_of(exits=(left(),)).exit_code == 0
        assert status_of(exits=(left(0, "_0"), left(4, "_1"))).exit_code == 4

    def test_a_script_that_was_asked_to_end_says_who_asked(self) -> None:
        said = "Slurm ended it: cancelled, preempted or out of time"
        assert status_of(exits=(left(143, asked=True),)).message == said
        assert status_of(exits=(left(143, asked=True),), cancelled=True).message == ""
        assert status_of(exits=(left(1),)).message == ""

    def test_an_element_is_told_by_its_file_beside_rows_of_others(self) -> None:
        good = Row(id="5_0", state="COMPLETED", exit_code=0)
        status = status_of(good, exits=(left(0, "_1", restarts=3),))
        assert (status.state, status.restarts) == (AppState.SUCCEEDED, 3)
        assert status.parts == (JobPart(0, "SUCCEEDED", 0), JobPart(1, "SUCCEEDED", 0))
        stopped = left(143, "_1", asked=True)
        assert status_of(good, exits=(stopped,), cancelled=True).state is AppState.CANCELLED
        assert status_of(good, exits=(stopped,)).state is AppState.FAILED
        assert (status.started_at, status.ended_at) == (10, 20)
