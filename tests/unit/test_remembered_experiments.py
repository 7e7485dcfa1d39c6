"""Ended experiments are remembered, and what is remembered is never out of date."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from tests.unit.test_catalogue import member, store

from nemo_run._experiments.store import listing
from nemo_run._experiments.store.listing import Entry, Labels
from nemo_run._experiments.store.listing_cache import read_entries

COUNT = 120


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with many experiments of an hour ago; the last one is still running."""
    monkeypatch.setenv("NEMORUN_HOME", str(tmp_path))
    root = tmp_path / "experiments"
    for number in range(COUNT):
        state = "RUNNING" if number == COUNT - 1 else "SUCCEEDED"
        job = [member(state, exit_code=0, started_at=1.0, ended_at=2.5)]
        path = store(root, "t", f"t_{number + 1:019}", job)
        past = time.time() - 3600
        os.utime(path / "_STATE", (past, past))
    return tmp_path


def listed(home: Path) -> list[Entry]:
    places = listing.find_all(str(home / "experiments"))
    return read_entries(places, {path for _, _, path in places})


def test_what_is_remembered_is_what_was_read(home: Path) -> None:
    first = listed(home)
    assert (home / "catalogue.json").stat().st_mode & 0o777 == 0o600
    assert listed(home) == first
    assert len(first) == COUNT


def test_only_what_has_ended_is_remembered(home: Path) -> None:
    listed(home)
    remembered = json.loads((home / "catalogue.json").read_text())["entries"]
    assert len(remembered) == COUNT - 1
    running = next(path for path in home.rglob(f"t_{COUNT:019}"))
    (running / "_STATE" / "0.json").write_text(json.dumps({"members": [member("FAILED")]}))
    assert listed(home)[0].state == "FAILED"


def test_labels_are_seen_at_once_and_removed_experiments_are_not(home: Path) -> None:
    listed(home)
    newest, *_, oldest = listed(home)
    listing.write_labels(oldest.path, Labels(("best",)))
    assert listed(home)[-1].labels.tags == ("best",)
    Path(newest.path).rename(home / "elsewhere")
    assert newest.id not in [entry.id for entry in listed(home)]


def test_what_has_just_changed_is_not_remembered(home: Path) -> None:
    for path in home.rglob("_STATE"):
        os.utime(path)
    listed(home)
    assert not (home / "catalogue.json").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1, "entries": 3}'])
def test_a_damaged_file_is_replaced(home: Path, text: str) -> None:
    (home / "catalogue.json").write_text(text)
    assert len(listed(home)) == COUNT
    assert len(json.loads((home / "catalogue.json").read_text())["entries"]) == COUNT - 1
