"""The text of a record on disk, which later and earlier releases read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nemo_run._jobs.records import (
    TAG,
    TERMINAL_STATES,
    JobAttempt,
    JobPart,
    JobRecord,
    JobRef,
    RoleSize,
    advance,
    format_of,
    is_terminal,
)

WHOLE: dict[str, Any] = {
    "format": "1.0",
    "app_id": "train-1",
    "scheduler": "slurm_tunnel",
    "experiment_id": "exp_1",
    "roles": [{"name": "train", "replicas": 4}],
    "ref": {"native_id": "17", "where": {"server": "https://x"}},
    "tag": "nr-1",
    "state": "FAILED",
    "message": "out of memory",
    "exit_code": 9,
    "ui_url": "https://x/17",
    "restarts": 2,
    "submitted_at": 1000.5,
    "last_seen_at": 1001.0,
    "started_at": 1000.75,
    "ended_at": 1002.25,
    "job_dir": "/runs/1",
    "log_dir": "/runs/1/logs",
    "parts": [{"number": 7, "state": "FAILED", "exit_code": 3, "host": "node1"}],
    "attempts": [
        {
            "number": 1,
            "replica": "train/0",
            "exit_code": 3,
            "started_at": 1000.75,
            "ended_at": 1002.0,
            "logs": [["/runs/1/logs/out", 12]],
        }
    ],
    "of_a_later_release": {"kept": True},
}
RECORD = JobRecord(
    app_id="train-1",
    scheduler="slurm_tunnel",
    experiment_id="exp_1",
    roles=(RoleSize("train", 4),),
    ref=JobRef(native_id="17", where={"server": "https://x"}),
    tag="nr-1",
    state="FAILED",
    message="out of memory",
    exit_code=9,
    ui_url="https://x/17",
    restarts=2,
    submitted_at=1000.5,
    last_seen_at=1001.0,
    started_at=1000.75,
    ended_at=1002.25,
    job_dir="/runs/1",
    log_dir="/runs/1/logs",
    parts=(JobPart(7, "FAILED", 3, "node1"),),
    attempts=(JobAttempt(1, "train/0", 3, 1000.75, 1002.0, (("/runs/1/logs/out", 12),)),),
    extra={"of_a_later_release": {"kept": True}},
)
LEAST: dict[str, Any] = {
    "format": "1.0",
    "app_id": "train-1",
    "scheduler": "local_persistent",
    "tag": "nr-1",
    "state": "RUNNING",
    "submitted_at": 1,
    "last_seen_at": 2,
    "job_dir": "/runs/1",
}


def test_a_record_is_written_and_read_as_it_always_was() -> None:
    assert json.loads(json.dumps(RECORD.to_json())) == WHOLE
    read = JobRecord.from_json(WHOLE)
    assert read == RECORD
    assert read.extra == RECORD.extra


def test_what_a_record_need_not_have_is_as_of_a_job_that_nothing_is_known_of() -> None:
    read = JobRecord.from_json(LEAST)
    assert read == JobRecord(
        app_id="train-1",
        scheduler="local_persistent",
        tag="nr-1",
        state="RUNNING",
        submitted_at=1,
        last_seen_at=2,
        job_dir="/runs/1",
    )
    assert read.to_json() == {
        **LEAST,
        "experiment_id": "",
        "roles": [],
        "ref": None,
        "message": "",
        "exit_code": None,
        "ui_url": "",
        "restarts": 0,
        "started_at": None,
        "ended_at": None,
        "log_dir": "",
    }


def test_a_new_record_is_of_a_job_that_was_not_submitted() -> None:
    new = JobRecord(app_id="a", scheduler="s", submitted_at=1, last_seen_at=1, job_dir="/")
    assert new.state == "UNSUBMITTED"
    assert new.to_json()["format"] == "1.0"
    assert not new.is_terminal


def test_the_parts_of_a_part_and_of_an_attempt_may_be_missing() -> None:
    read = JobRecord.from_json(
        {**LEAST, "parts": [{"number": 1, "state": "RUNNING"}], "attempts": [{"number": 1}]}
    )
    assert read.parts == (JobPart(1, "RUNNING"),)
    assert read.parts[0] == (1, "RUNNING", None, "")
    assert read.attempts[0] == (1, "", None, None, None, ())
    assert JobRecord.from_json({**LEAST, "ref": {"native_id": "1"}}).ref == JobRef(native_id="1")


@pytest.mark.parametrize(
    "wrong",
    [
        {"app_id": 1},
        {"scheduler": None},
        {"experiment_id": 1},
        {"roles": [{"name": "a", "replicas": True}]},
        {"roles": [{"name": 1, "replicas": 1}]},
        {"roles": [{"name": "a", "replicas": 1.0}]},
        {"ref": {"where": {}}},
        {"ref": {"native_id": 1}},
        {"ref": {"native_id": "1", "where": {"a": 1}}},
        {"tag": None},
        {"state": "DONE"},
        {"message": None},
        {"exit_code": "1"},
        {"exit_code": True},
        {"ui_url": 1},
        {"restarts": None},
        {"submitted_at": "1"},
        {"submitted_at": None},
        {"last_seen_at": False},
        {"started_at": "1"},
        {"ended_at": True},
        {"job_dir": None},
        {"log_dir": 1},
        {"parts": [{"state": "RUNNING"}]},
        {"parts": [{"number": 1, "state": "RUNNING", "host": 1}]},
        {"attempts": [{}]},
        {"attempts": [{"number": 1, "logs": [["a", "b"]]}]},
        {"format": "1"},
        {"format": 1.0},
        {"format": "one.0"},
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_not_a_record(wrong: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        JobRecord.from_json({**LEAST, **wrong})


@pytest.mark.parametrize("key", LEAST)
def test_what_a_record_has_to_have_cannot_be_missing(key: str) -> None:
    with pytest.raises(KeyError):
        JobRecord.from_json({name: value for name, value in LEAST.items() if name != key})


def test_a_format_has_two_numbers() -> None:
    assert format_of({"format": "12.3"}) == (12, 3)


def test_three_states_are_ends() -> None:
    assert {"SUCCEEDED", "FAILED", "CANCELLED"} == TERMINAL_STATES
    assert is_terminal("FAILED")
    assert not is_terminal("RUNNING")


def test_a_tag_is_found_again_by_the_name_that_other_releases_use() -> None:
    assert TAG == "nemo_run/tag"


class TestAdvancing:
    def test_the_first_story_of_an_end_is_kept_and_only_gaps_are_filled(self) -> None:
        later = {
            "ref": {"native_id": "18", "where": {}},
            "message": "other",
            "exit_code": 1,
            "ui_url": "https://y",
            "ended_at": 2000.0,
            "parts": [{"number": 8, "state": "FAILED"}],
            "attempts": [{"number": 2}],
            "started_at": 1.0,
        }
        new = JobRecord.from_json({**WHOLE, **later})
        assert advance(RECORD, new) == RECORD
        gaps: dict[str, Any] = {
            "ref": None,
            "message": "",
            "exit_code": None,
            "ui_url": "",
            "ended_at": None,
            "parts": [],
            "attempts": [],
            "started_at": 1.0,
        }
        assert advance(JobRecord.from_json({**WHOLE, **gaps}), new) == new

    def test_what_is_heard_later_counts_while_the_job_goes_on(self) -> None:
        old = JobRecord.from_json({**LEAST, "format": "1.4", "a": 1, "b": 1, "message": "x"})
        new = JobRecord.from_json({**LEAST, "state": "PENDING", "b": 2, "ref": WHOLE["ref"]})
        after = advance(old, new)
        assert (after.state, after.message, after.ref) == ("PENDING", "", RECORD.ref)
        assert (after.format, after.extra) == ((1, 4), {"a": 1, "b": 2})

    @pytest.mark.parametrize("key", ["app_id", "scheduler"])
    def test_another_job_tells_nothing_of_this_one(self, key: str) -> None:
        with pytest.raises(ValueError, match="is not the job 'train-1'"):
            advance(RECORD, JobRecord.from_json({**WHOLE, key: "other"}))
