"""Experiments that have ended, remembered in one file, so that listing thousands is quick.

What is remembered holds as long as the directory with an experiment's states is as it was. The
file can be deleted at any time; it is made again.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from nemo_run._experiments.store.listing import STATE, Entry, JobSummary, Labels, read_entry
from nemo_run._files import read_regular, write_whole
from nemo_run._home import get_nemorun_home

log = logging.getLogger(__name__)

Place = tuple[float, str, str]
"""When an experiment was made, its title and its directory."""

_FORMAT = 1
# Below that, reading the file would take longer than it saves.
_WORTH_IT = 100
_WORTH_WRITING = 50
# File systems tell times apart by up to two seconds.
_SETTLED_S = 5.0


def read_entries(places: Sequence[Place], known: Collection[str]) -> list[Entry]:
    """Return what is known of the experiments at ``places``, in their order.

    Args:
        places: those that are still there.
        known: the directories of all experiments; others are forgotten.
    """
    if len(places) < _WORTH_IT:
        read = (read_entry(*place) for place in places)
        return [entry for entry in read if entry is not None]
    path = Path(get_nemorun_home()) / "catalogue.json"
    remembered = _load(path)
    entries, new = [], {}
    settled_ns = int((time.time() - _SETTLED_S) * 1e9)
    for created_at, title, directory in places:
        changed_ns = _changed_ns(directory)
        row = remembered.get(directory)
        if row is not None and row[0] == changed_ns:
            entries.append(_from_row(row, created_at, title, directory))
            continue
        entry = read_entry(created_at, title, directory)
        if entry is not None:
            entries.append(entry)
            if entry.ended and entry.jobs and 0 < changed_ns < settled_ns:
                new[directory] = [changed_ns, entry.jobs, *entry.labels]
    if len(new) >= _WORTH_WRITING:
        kept = {name: row for name, row in remembered.items() if name in known}
        _save(path, {**kept, **new})
    return entries


def _changed_ns(directory: str) -> int:
    try:
        return os.stat(f"{directory}/{STATE}").st_mtime_ns  # noqa: PTH116 - thousands of times
    except OSError:
        return 0


def _from_row(row: list[Any], created_at: float, title: str, directory: str) -> Entry:
    _, jobs, tags, note = row
    return Entry(
        directory.rpartition("/")[2],
        title,
        directory,
        created_at,
        tuple(JobSummary(state, tuple(handles), *rest) for state, handles, *rest in jobs),
        Labels(tuple(tags), note),
    )


def _load(path: Path) -> dict[str, list[Any]]:
    try:
        data = json.loads(read_regular(path))
        return dict(data["entries"]) if data["format"] == _FORMAT else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError) as err:
        log.debug("%s is not used: %s", path, err)
        return {}


def _save(path: Path, entries: dict[str, list[Any]]) -> None:
    text = json.dumps({"format": _FORMAT, "entries": entries}, separators=(",", ":"))
    try:
        write_whole(path, text.encode("ascii"), sync=False)
    except OSError as err:
        log.debug("%s cannot be written: %s", path, err)
