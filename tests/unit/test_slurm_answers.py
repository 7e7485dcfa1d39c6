"""What Slurm's commands print, and what it means for a job as a whole."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from torchx.specs import AppState, is_terminal

from nemo_run._backends.slurm.answers import (
    ENDED,
    Exit,
    Row,
    array_elements,
    by_job,
    parse_exit,
    parse_sacct,
    parse_squeue,
)
from nemo_run._backends.slurm.reports import Report
from nemo_run._backends.slurm.status import (
    EXPLANATIONS,
    SLURM_STATES,
    app_state,
    job_status,
)
from nemo_run._jobs.records import JobPart


def squeue(*cells: str) -> str:
    return "|".join(cell.ljust(24) for cell in cells) + "\n"


class TestQueue:
    def test_a_line_is_read(self) -> None:
        text = squeue("12", "FAILED", "768", "1", "1794784155", "1794784160", "node[1-2]", "None")
        assert parse_squeue(text) == [
            Row(
                id="12",
                state="FAILED",
                exit_code=3,
                restarts=1,
                started_at=1794784155,
                ended_at=1794784160,
                nodes="node[1-2]",
            )
        ]

    def test_a_signal_gives_the_code_that_a_shell_would(self) -> None:
        (row,) = parse_squeue(squeue("1", "FAILED", "9", "0", "N/A", "N/A", "", "None"))
        assert row.exit_code == 137
        assert row.started_at is None

    def test_other_lines_are_left_out(self) -> None:
        assert parse_squeue("Welcome to the cluster|a|b|c|d|e|f|g\n\nhello\n") == []

    def test_elements_and_components_belong_to_their_job(self) -> None:
        ids = ["7", "8_3", "8_[4-9%2]", "9+0", "9+1"]
        rows = [Row(id=id_, state="PENDING") for id_ in ids]
        assert {job: [row.element for row in found] for job, found in by_job(rows).items()} == {
            "7": [""],
            "8": ["_3", "_[4-9%2]"],
            "9": ["+0", "+1"],
        }

    @pytest.mark.parametrize(
        ("text", "numbers"),
        [
            ("3", [3]),
            ("0-3%2", [0, 1, 2, 3]),
            ("1,5-6", [1, 5, 6]),
            ("0-8:4", [0, 4, 8]),
            ("_[4-5%1]", [4, 5]),
            ("_[1,3,...]", []),
            ("", []),
        ],
    )
    def test_elements_are_counted_out(self, text: str, numbers: list[int]) -> None:
        assert array_elements(text) == {f"_{number}" for number in numbers}


class TestAccounting:
    @pytest.mark.parametrize(
        ("state", "code", "read"),
        [
            ("COMPLETED", "0:0", ("COMPLETED", 0)),
            ("FAILED", "3:0", ("FAILED", 3)),
            ("CANCELLED by 1000", "0:15", ("CANCELLED", 143)),
            ("OUT_OF_ME+", "0:125", ("OUT_OF_ME", 253)),
        ],
    )
    def test_a_line_is_read(self, state: str, code: str, read: tuple[str, int]) -> None:
        (row,) = parse_sacct(f"12|{state}|{code}|1794784155|Unknown|node1|None\n")
        assert (row.state, row.exit_code) == read
        assert (row.started_at, row.ended_at) == (1794784155, None)

    def test_steps_are_left_out(self) -> None:
        assert parse_sacct("12.batch|COMPLETED|0:0|1|2|node1|\n12.0|COMPLETED|0:0|1|2|n|\n") == []


class TestExitFiles:
    def test_a_file_is_read(self) -> None:
        assert parse_exit("exit", "3 1 0 100 120\n") == Exit(
            element="", code=3, restarts=1, asked=False, started_at=100, ended_at=120
        )
        found = parse_exit("exit-7", "0 0 1 100 120")
        assert found is not None
        assert (found.element, found.asked) == ("_7", True)

    @pytest.mark.parametrize("text", ["", "3 1", "a b c d e", "1 2 3 4 5 6"])
    def test_half_a_file_is_none(self, text: str) -> None:
        assert parse_exit("exit", text) is None


def status_of(*rows: Row, exits: Sequence[Exit] = (), cancelled: bool = False):
    return job_status(Report(rows=rows, exits=exits, cancelled=cancelled), now=1000)


class TestProof:
    def test_one_part_that_has_ended_proves_nothing_of_the_others(self) -> None:
        parts = [Row(id="5+0", state="COMPLETED"), Row(id="5+1", state="RUNNING")]
        assert Report(rows=parts).proven(by_element=False).rows == []
        assert Report(rows=parts[:1]).proven(by_element=False).rows == parts[:1]
        assert Report(rows=parts).proven(by_element=True).rows == parts[:1]

    @pytest.mark.parametrize("cancelled", [True, False])
    def test_who_was_asked_to_end_may_be_started_again_unless_we_asked(
        self, cancelled: bool
    ) -> None:
        asked = Exit(element="", code=143, restarts=0, asked=True, started_at=1, ended_at=2)
        report = Report(exits=[asked], cancelled=cancelled).proven(by_element=False)
        assert bool(report.exits) is cancelled

    def test_the_queue_is_believed_where_it_says_something(self) -> None:
        left = [
            Exit(element=f"_{n}", code=n, restarts=0, asked=False, started_at=1, ended_at=2)
            for n in range(3)
        ]
        queued = [Row(id="5_[1-2]", state="PENDING")]
        after = Report(rows=[Row(id="5_0", state="COMPLETED")], exits=left).after(queued)
        assert [row.id for row in after.rows] == ["5_[1-2]", "5_0"]
        assert [item.element for item in after.exits] == ["_0"]


class TestStates:
    def test_every_word_of_slurms_is_known(self) -> None:
        words = (
            "BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL "
            "OUT_OF_MEMORY PENDING PREEMPTED RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD "
            "REQUEUED RESIZING REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED TIMEOUT "
            "LAUNCH_FAILED RECONFIG_FAIL POWER_UP_NODE UPDATE_DB EXPEDITING"
        )
        assert set(words.split()) == set(SLURM_STATES)

    def test_the_words_for_an_end_are_those_that_mean_one(self) -> None:
        assert {word for word, state in SLURM_STATES.items() if is_terminal(state)} == ENDED

    def test_every_bad_end_but_the_tasks_own_is_explained(self) -> None:
        bad = {word for word, state in SLURM_STATES.items() if state is AppState.FAILED}
        assert bad - set(EXPLANATIONS) == {"FAILED"}

    def test_a_word_that_was_never_heard_is_no_end(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            assert [app_state("TELEPORTED"), app_state("TELEPORTED")] == [AppState.UNKNOWN] * 2
        assert len(caplog.records) == 1
        assert not is_terminal(app_state("TELEPORTED"))

    def test_a_job_is_not_over_while_its_processes_are_being_ended(self) -> None:
        assert status_of(Row(id="1", state="COMPLETING")).state is AppState.RUNNING

    def test_a_job_that_slurm_ended_has_no_code_of_its_own(self) -> None:
        status = status_of(Row(id="1", state="TIMEOUT", exit_code=0))
        assert (status.state, status.exit_code) == (AppState.FAILED, None)
        assert "time limit" in status.message

    def test_why_a_job_waits_is_said(self) -> None:
        assert status_of(Row(id="1", state="PENDING", reason="Priority")).message == (
            "waits: Priority"
        )

    def test_an_expected_start_is_no_start(self) -> None:
        status = status_of(Row(id="1", state="PENDING", reason="Priority", started_at=5000))
        assert status.started_at is None
        assert status.message.startswith("waits: Priority, expected to start at 1970-01-01")

    def test_an_array_is_over_when_all_its_elements_are(self) -> None:
        rows = [
            Row(id="5_0", state="COMPLETED", exit_code=0),
            Row(id="5_1", state="FAILED", exit_code=2),
            Row(id="5_[2-3]", state="PENDING"),
        ]
        assert status_of(*rows).state is AppState.PENDING
        assert status_of(*rows[:2]).state is AppState.FAILED
        assert status_of(*rows[:2]).exit_code == 2
        assert status_of(*rows[:2]).message == (
            "1 of 2 did not succeed: 5_1 FAILED with exit code 2"
        )

    def test_elements_have_states_of_their_own_also_while_they_wait_in_one_row(self) -> None:
        status = status_of(
            Row(id="12_0", state="COMPLETED", exit_code=0, nodes="node1"),
            Row(id="12_1", state="FAILED", exit_code=3, nodes="node2"),
            Row(id="12_2", state="RUNNING", exit_code=0, nodes="node3"),
            Row(id="12_[3,5-6%2]", state="PENDING", exit_code=0),
        )
        assert status.parts == (
            JobPart(0, "SUCCEEDED", 0, "node1"),
            JobPart(1, "FAILED", 3, "node2"),
            JobPart(2, "RUNNING", None, "node3"),
            *(JobPart(number, "PENDING") for number in (3, 5, 6)),
        )

    def test_components_have_states_of_their_own(self) -> None:
        rows = [Row(id="12+0", state="COMPLETED", exit_code=0), Row(id="12+1", state="RUNNING")]
        assert [part[:2] for part in status_of(*rows).parts] == [(0, "SUCCEEDED"), (1, "RUNNING")]

    def test_a_plain_job_has_no_parts(self) -> None:
        assert status_of(Row(id="12", state="RUNNING")).parts == ()

    def test_of_elements_that_slurm_does_not_name_nothing_is_said(self) -> None:
        assert status_of(Row(id="12_[0-9,12,...]", state="PENDING")).parts == ()

    def test_elements_that_slurm_has_forgotten_are_told_by_what_their_scripts_left(self) -> None:
        left = [
            Exit(element=f"_{n}", code=n, restarts=0, asked=False, started_at=1, ended_at=2)
            for n in range(2)
        ]
        assert status_of(exits=left).parts == (
            JobPart(0, "SUCCEEDED", 0),
            JobPart(1, "FAILED", 1),
        )

    def test_a_heterogeneous_job_fails_if_any_part_does(self) -> None:
        rows = [Row(id="5+0", state="COMPLETED", exit_code=0), Row(id="5+1", state="NODE_FAIL")]
        assert status_of(*rows).state is AppState.FAILED

    def test_what_a_script_left_behind_counts_over_an_accounting_that_missed_the_end(self) -> None:
        left = Exit(element="", code=4, restarts=0, asked=False, started_at=1, ended_at=2)
        status = status_of(Row(id="1", state="RUNNING"), exits=[left])
        assert (status.state, status.exit_code) == (AppState.FAILED, 4)

    def test_elements_are_told_of_by_rows_and_by_what_their_scripts_left(self) -> None:
        left = Exit(element="_1", code=6, restarts=0, asked=False, started_at=1, ended_at=2)
        good, live = Row(id="5_0", state="COMPLETED", exit_code=0), Row(id="5_2", state="RUNNING")
        status = status_of(good, exits=[left])
        assert (status.state, status.exit_code) == (AppState.FAILED, 6)
        assert "5_1 FAILED with exit code 6" in status.message
        assert status_of(good, live, exits=[left]).state is AppState.RUNNING

    def test_restarts_are_counted_by_what_the_script_left_where_accounting_does_not(self) -> None:
        left = Exit(element="", code=0, restarts=2, asked=False, started_at=1, ended_at=2)
        status = status_of(Row(id="1", state="COMPLETED", exit_code=0), exits=[left])
        assert status.restarts == 2

    def test_a_file_says_nothing_new_of_a_job_whose_parts_have_all_ended(self) -> None:
        left = Exit(element="", code=0, restarts=0, asked=False, started_at=1, ended_at=2)
        rows = [Row(id="5+0", state="COMPLETED", exit_code=0), Row(id="5+1", state="NODE_FAIL")]
        assert status_of(*rows, exits=[left]) == status_of(*rows)

    @pytest.mark.parametrize(
        ("cancelled", "state"), [(True, AppState.CANCELLED), (False, AppState.FAILED)]
    )
    def test_who_was_asked_to_end_was_cancelled_if_we_asked(
        self, cancelled: bool, state: AppState
    ) -> None:
        left = Exit(element="", code=143, restarts=0, asked=True, started_at=1, ended_at=2)
        assert status_of(exits=[left], cancelled=cancelled).state is state
