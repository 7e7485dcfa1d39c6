"""Many experiments read quickly: what is stored is told, whatever else is in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nemo_run as run
from nemo_run._experiments.store import listing
from nemo_run._experiments.store.listing import Entry, Labels
from nemo_run.exceptions import RecordError


def store(root: Path, title: str, id: str, *members: list[dict[str, Any]], plans: int = 0) -> Path:
    path = root / title / id
    (path / "_STATE").mkdir(parents=True)
    (path / "_PLAN").mkdir()
    (path / "_CONFIG").touch()
    for index, job in enumerate(members):
        (path / "_STATE" / f"{index}.json").write_text(json.dumps({"members": job}))
    for index in range(max(plans, len(members))):
        (path / "_PLAN" / f"{index}.json").touch()
    return path


def member(state: str = "SUCCEEDED", handle: str = "slurm://nemo_run/x", **more: Any) -> Any:
    return {"state": state, "handle": handle, **more}


def entries(root: Path) -> list[Entry]:
    read = [listing.read_entry(*place) for place in listing.find_all(str(root))]
    return [entry for entry in read if entry is not None]


def test_the_newest_comes_first_whatever_the_title(tmp_path: Path) -> None:
    for title, stamp in (("a", 3), ("b", 1), ("c", 2)):
        store(tmp_path, title, f"{title}_{stamp:019}")
    assert [entry.title for entry in entries(tmp_path)] == ["a", "c", "b"]


def test_other_ids_nested_titles_and_strangers_are_told_apart(tmp_path: Path) -> None:
    store(tmp_path, "plain", "by-hand")
    store(tmp_path, "with/slash", "slash_0000000000000000001")
    (tmp_path / "plain" / "notes").mkdir()
    (tmp_path / "plain" / "file").touch()
    found = {entry.id: entry.title for entry in entries(tmp_path)}
    assert found == {"by-hand": "plain", "slash_0000000000000000001": "with/slash"}
    assert entries(tmp_path / "nowhere") == []


def test_jobs_that_were_not_started_count(tmp_path: Path) -> None:
    store(tmp_path, "t", "t_0000000000000000001", [member()], plans=3)
    (entry,) = entries(tmp_path)
    assert entry.counts == {"UNSUBMITTED": 2, "SUCCEEDED": 1}
    assert (entry.state, entry.ended) == ("RUNNING", False)


def test_groups_are_summed_up(tmp_path: Path) -> None:
    group = [
        member("CANCELLED", exit_code=-15, message="cancelled", started_at=1.0, ended_at=5.0),
        member("FAILED", exit_code=3, message="boom", started_at=2.0, ended_at=4.0),
    ]
    store(tmp_path, "t", "t_0000000000000000001", group)
    (entry,) = entries(tmp_path)
    (job,) = entry.jobs
    assert (job.state, job.exit_code, job.message) == ("FAILED", 3, "cancelled; boom")
    assert (entry.started_at, entry.ended_at, entry.executors) == (1.0, 5.0, ("slurm",))


def test_damaged_files_are_said_and_hide_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = store(tmp_path, "t", "t_0000000000000000001", [member()])
    store(tmp_path, "t", "t_0000000000000000002", [member()])
    (broken / "_STATE" / "0.json").write_text("{")
    (broken / "_STATE" / "labels.json").write_text("[")
    newest, oldest = entries(tmp_path)
    assert (newest.state, oldest.state) == ("SUCCEEDED", "UNKNOWN")
    assert str(broken) in caplog.text
    with pytest.raises(RecordError, match="has no _TASKS"):
        listing.read_jobs(str(broken))


def test_labels_are_kept(tmp_path: Path) -> None:
    path = str(store(tmp_path, "t", "t_0000000000000000001"))
    assert listing.read_labels(path) == Labels()
    listing.write_labels(path, Labels(("a", "ü"), "a note"))
    (entry,) = entries(tmp_path)
    assert entry.labels == Labels(("a", "ü"), "a note")


def test_real_experiments_are_read_with_their_jobs(tmp_path: Path) -> None:
    with run.Experiment(
        "real", executor=run.LocalExecutor(), base_dir=str(tmp_path), clean_mode=True
    ) as experiment:
        first = experiment.add(run.Script(inline="true"), name="first")
        experiment.add(run.Script(inline="exit 3"), name="second", dependencies=[first])
        experiment.run()
    (entry,) = entries(tmp_path / "experiments")
    assert (entry.id, entry.state, entry.executors) == (
        experiment._id,
        "FAILED",
        ("local_persistent",),
    )
    jobs = listing.read_jobs(entry.path)
    assert [(job.id, job.dependencies) for job in jobs] == [("first", ()), ("second", ("first",))]
    assert jobs[0].executor_name == "LocalExecutor"
    assert jobs[0].task.arguments["inline"] == "true"
