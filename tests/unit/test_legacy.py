"""What release 0.12 left behind is read as honestly as it can be."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_run._jobs.legacy import LOCAL_INDEX, find_local_job, is_legacy, local_jobs
from nemo_run._jobs.records import JobRef, RoleSize
from nemo_run._jobs.store import JobStore


class Home:
    """A home directory as 0.12 leaves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = path / LOCAL_INDEX
        self.entries: dict[str, Any] = {}

    def job_dir(self, app_id: str) -> Path:
        return self.path / "experiments" / "probe" / "probe_1" / app_id.rpartition("-")[0]

    def log_dir(self, app_id: str) -> Path:
        return self.job_dir(app_id) / "nemo_run" / app_id

    def add(self, app_id: str, state: str, *, roles: tuple[str, ...] = ("train",)) -> Path:
        log_dir = self.log_dir(app_id)
        for role in roles:
            (log_dir / role / "0").mkdir(parents=True)
        self.entries[app_id] = [state, app_id, str(log_dir), list(roles)]
        self.index.write_text(json.dumps(self.entries))
        return log_dir

    def close(self, app_id: str, state: str, /, *codes: int | None, **values: Any) -> None:
        replicas = [
            {"replica_id": n, "pid": 100 + n, "exitcode": code, "stdout": "", "stderr": ""}
            for n, code in enumerate(codes)
        ]
        summary = {
            "app_id": app_id,
            "log_dir": str(self.log_dir(app_id)),
            "final_state": state,
            "last_updated": 1794773228.85,
            "roles": {"train": replicas},
            **values,
        }
        (self.log_dir(app_id) / "SUCCESS").write_text(json.dumps(summary, indent=2))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_finished_job_is_read_with_all_that_is_known(home: Home) -> None:
    log_dir = home.add("train-zb96ms0cbf7gs", "FAILED")
    home.close("train-zb96ms0cbf7gs", "FAILED", 0, 3)
    os.utime(log_dir / "train", (1794773228.5, 1794773228.5))
    record = find_local_job(home.index, "train-zb96ms0cbf7gs")
    assert record is not None
    assert record.app_id == "train-zb96ms0cbf7gs"
    assert record.scheduler == "local_persistent"
    assert record.experiment_id == "probe_1"
    assert record.roles == (RoleSize("train", 2),)
    assert (record.state, record.exit_code, record.message) == ("FAILED", 3, "")
    assert record.submitted_at == 1794773228.5
    assert record.ended_at == record.last_seen_at == 1794773228.85
    assert record.job_dir == str(home.job_dir("train-zb96ms0cbf7gs"))
    assert record.log_dir == str(log_dir)
    assert record.ui_url == f"file://{log_dir}"


def test_a_job_that_is_not_there_is_not_found(home: Home) -> None:
    assert find_local_job(home.index, "train-1") is None
    home.add("train-1", "SUCCEEDED")
    assert find_local_job(home.index, "train-2") is None


@pytest.mark.parametrize(
    ("index_state", "final_state", "codes", "expected", "exit_code"),
    [
        # The launcher died after closing the job and before saving the index.
        ("RUNNING", "SUCCEEDED", (0,), "SUCCEEDED", 0),
        ("PENDING", "FAILED", (1,), "FAILED", 1),
        ("RUNNING", "CANCELLED", (-15,), "CANCELLED", -15),
        ("SUCCEEDED", "FAILED", (2,), "FAILED", 2),
        # Cancelling wrote the file before it changed the state.
        ("CANCELLED", "RUNNING", (-15,), "CANCELLED", -15),
        ("RUNNING", "RUNNING", (-15, 0), "CANCELLED", -15),
        ("RUNNING", "RUNNING", (1,), "CANCELLED", 1),
        ("RUNNING", "PENDING", (None,), "CANCELLED", None),
        ("RUNNING", "RUNNING", (0, None), "CANCELLED", None),
        ("RUNNING", "RUNNING", (), "CANCELLED", None),
        ("RUNNING", "RUNNING", (0, 0), "SUCCEEDED", 0),
    ],
)
def test_the_summary_of_a_closed_job_tells_how_it_ended(
    home: Home,
    index_state: str,
    final_state: str,
    codes: tuple[int | None, ...],
    expected: str,
    exit_code: int | None,
) -> None:
    home.add("train-1", index_state)
    home.close("train-1", final_state, *codes)
    record = find_local_job(home.index, "train-1")
    assert record is not None
    assert (record.state, record.exit_code) == (expected, exit_code)
    assert record.ended_at == 1794773228.85


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "CANCELLED"])
def test_a_final_state_in_the_index_is_believed(home: Home, state: str) -> None:
    home.add("train-1", state)
    record = find_local_job(home.index, "train-1")
    assert record is not None
    assert (record.state, record.message, record.ended_at) == (state, "", None)


@pytest.mark.parametrize("state", ["UNSUBMITTED", "SUBMITTED", "PENDING", "RUNNING", "WEIRD"])
def test_a_state_nobody_brought_to_an_end_is_not_claimed(home: Home, state: str) -> None:
    home.add("train-1", state)
    record = find_local_job(home.index, "train-1")
    assert record is not None
    assert record.state == "UNKNOWN"
    assert not record.is_terminal
    assert record.message.startswith(f"last known state {state}, written by an earlier release")
    assert (record.exit_code, record.ended_at) == (None, None)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"final_state": "FAILED", "roles": 3}', "\xff", "[" * 100_000],
)
def test_a_summary_that_cannot_be_used_is_as_good_as_none(home: Home, content: str) -> None:
    log_dir = home.add("train-1", "RUNNING")
    (log_dir / "SUCCESS").write_bytes(content.encode("latin-1"))
    record = find_local_job(home.index, "train-1")
    assert record is not None
    assert record.state == "UNKNOWN"


def test_the_summary_of_another_job_is_not_used(home: Home) -> None:
    home.add("train-1", "RUNNING")
    home.close("train-1", "FAILED", 1, app_id="train-2")
    record = find_local_job(home.index, "train-1")
    assert record is not None
    assert record.state == "UNKNOWN"


def test_without_a_time_in_the_summary_that_of_its_file_is_taken(home: Home) -> None:
    log_dir = home.add("train-1", "RUNNING")
    home.close("train-1", "FAILED", 1, last_updated=-1)
    os.utime(log_dir / "SUCCESS", (50.0, 50.0))
    record = find_local_job(home.index, "train-1")
    assert record is not None
    assert record.ended_at == 50.0


def test_replicas_are_counted_where_their_logs_are(home: Home) -> None:
    log_dir = home.add("train-1", "RUNNING", roles=("train", "eval"))
    (log_dir / "train" / "1").mkdir()
    (log_dir / "train" / "notes").mkdir()
    (log_dir / "eval" / "0").rmdir()
    record = find_local_job(home.index, "train-1")
    assert record is not None
    assert record.roles == (RoleSize("train", 2), RoleSize("eval", 1))


def test_a_job_whose_logs_are_gone_is_still_found(home: Home) -> None:
    home.index.write_text(json.dumps({"a-1": ["RUNNING", "a-1", "/no/such/nemo_run/a-1", ["a"]]}))
    os.utime(home.index, (70.0, 70.0))
    record = find_local_job(home.index, "a-1")
    assert record is not None
    assert (record.state, record.submitted_at, record.job_dir) == ("UNKNOWN", 70.0, "/no/such")
    assert (record.roles, record.experiment_id) == ((RoleSize("a", 1),), "")


@pytest.mark.parametrize("path", ["", "relative", "/a\0b", "/\ud800", "/" + "x" * 5000])
def test_a_log_directory_that_can_be_none_does_no_harm(home: Home, path: str) -> None:
    home.index.write_text(json.dumps({"a-1": ["RUNNING", "a-1", path, ["a"]]}))
    record = find_local_job(home.index, "a-1")
    assert record is not None
    assert record.state == "UNKNOWN"


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        "RUNNING",
        {"state": "RUNNING"},
        ["RUNNING", "x-1", "/logs"],
        ["RUNNING", "x-1", "/logs", ["x"], "more"],
        ["RUNNING", "x-1", "/logs", "x"],
        ["RUNNING", "x-1", "/logs", [1]],
        [3, "x-1", "/logs", ["x"]],
        ["RUNNING", "x-1", None, ["x"]],
    ],
    ids=str,
)
def test_an_entry_of_another_shape_is_left_out(home: Home, entry: object) -> None:
    home.entries["x-1"] = entry
    home.add("train-1", "SUCCEEDED")
    assert find_local_job(home.index, "x-1") is None
    assert [record.app_id for record in local_jobs(home.index)] == ["train-1"]


@pytest.mark.parametrize("content", ["", " ", "{", "[]", "3", "null", "nonsense", "[" * 100_000])
def test_an_index_with_nothing_in_it_has_no_jobs(home: Home, content: str) -> None:
    home.index.write_text(content)
    assert find_local_job(home.index, "train-1") is None
    assert list(local_jobs(home.index)) == []


def test_an_index_that_is_no_file_has_no_jobs(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.index.mkdir()
    assert list(local_jobs(home.index)) == []
    assert LOCAL_INDEX in caplog.text


def test_a_half_written_index_still_has_its_whole_entries(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        home.add(f"train-{number}", "SUCCEEDED")
    text = home.index.read_text()
    home.index.write_text(text[: text.index('"train-3"') + 30])
    with caplog.at_level(logging.WARNING):
        assert [r.app_id for r in local_jobs(home.index)] == ["train-2", "train-1", "train-0"]
    assert f"{home.index} is damaged: 3 of its jobs could be read" in caplog.text


@given(st.integers(0, 400))
def test_an_index_cut_anywhere_is_read_up_to_there(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    index = tmp_path_factory.mktemp("home") / LOCAL_INDEX
    entries = {f'a"{n}é\\': ["FAILED", "a", f"/logs/{{[,:\n{n}", ["r"]] for n in range(5)}
    text = json.dumps(entries, indent=1)
    index.write_text(text[:length])
    whole = [
        app_id
        for app_id in entries
        if text.index("]\n ]", text.index(json.dumps(app_id))) + 4 <= length
    ]
    assert [record.app_id for record in local_jobs(index)] == whole[::-1]


def test_reading_changes_nothing(home: Home) -> None:
    home.add("train-1", "RUNNING")
    home.close("train-1", "FAILED", 1)
    before = {p: (p.stat().st_mtime_ns, p.is_dir()) for p in home.path.rglob("*")}
    list(local_jobs(home.index))
    find_local_job(home.index, "train-1")
    assert {p: (p.stat().st_mtime_ns, p.is_dir()) for p in home.path.rglob("*")} == before


def test_reading_twice_gives_the_same_record_and_it_can_be_stored(home: Home) -> None:
    home.add("train-1", "RUNNING")
    first = find_local_job(home.index, "train-1")
    assert first is not None
    assert first == find_local_job(home.index, "train-1")
    store = JobStore(home.path)
    store.put(first)
    assert store.get("train-1", "local_persistent") == first


def test_jobs_of_an_earlier_release_are_told_apart(home: Home) -> None:
    home.add("train-1", "RUNNING")
    record = find_local_job(home.index, "train-1")
    assert record is not None
    assert is_legacy(record.ref)
    assert not is_legacy(JobRef(native_id="train-1"))
    assert not is_legacy(None)
