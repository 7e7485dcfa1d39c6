"""Forget experiments that have ended: their directories, and the records of their jobs.

What their jobs have at backends stays, unless it is to be removed as well.
"""

from __future__ import annotations

import argparse
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run._records import JobStore
from nemo_run._shell import as_word
from nemo_run.cli._experiments import _summaries
from nemo_run.cli._experiments._arguments import Parser, as_json
from nemo_run.cli._experiments._finding import find
from nemo_run.cli._screen import Screen
from nemo_run.exceptions import ConfigError, NemoRunError, RecordError
from nemo_run.run._catalogue import Entry
from nemo_run.run._counting import plural

if TYPE_CHECKING:
    from nemo_run.core.execution.leftovers import Leftover

log = logging.getLogger(__name__)


def arguments(parser: Parser) -> None:
    parser.experiment(nargs="+")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument("--dryrun", action="store_true", help="only say what would be removed")
    parser.add_argument(
        "--remote", action="store_true", help="also what their jobs have at backends"
    )
    parser.json()


def run(options: argparse.Namespace) -> int:
    from nemo_run.cli._confirmation import ask

    places = {place.path: place for place in map(find, options.experiment)}
    entries = _summaries.refreshed([place.entry() for place in places.values()])
    for entry in entries:
        check_removable(entry)
    names = ", ".join(entry.id for entry in entries)
    removed = not options.dryrun and (
        options.yes or ask(f"Remove {plural(len(entries), 'experiment')} ({names}) for good?")
    )
    left = {entry.id: leftovers(entry) for entry in entries}
    for entry in entries if removed else ():
        remove(entry, left[entry.id] if options.remote else ())
    there = [found.what for some in left.values() for found in some]
    screen = Screen()
    if options.json:
        ids = [entry.id for entry in entries] if removed else []
        screen.print(as_json({"removed": ids, "leftovers": there, "remote": options.remote}))
        return 0
    screen.print(f"Removed {names}" if removed else f"Not removed: {names}")
    for what in there:
        screen.print(f"{'Removed' if removed and options.remote else 'Left'} {what}")
    return 0


def check_removable(entry: Entry) -> None:
    """Refuse to forget what may still be running.

    Raises:
        ConfigError: a job has not ended.
    """
    live = [job for job in entry.jobs if job.handles and not job.ended]
    if live:
        raise ConfigError(
            f"{entry.id} has {plural(len(live), 'job')} that had not ended ({entry.state}). "
            f"Cancel them first: nemorun experiment cancel --all {as_word(entry.id)}"
        )


def remove(entry: Entry, also: Sequence[Leftover] = ()) -> None:
    """Delete the directory of an experiment and the records of its jobs, after what is left.

    Raises:
        NemoRunError: a part of it could not be deleted; it is then still listed.
    """
    for leftover in also:
        leftover.remove()
    store = JobStore()
    for job in entry.jobs:
        for handle in job.handles:
            scheduler, _, rest = handle.partition("://")
            store.delete(rest.partition("/")[2], scheduler)
    path = Path(entry.path)
    try:
        if path.is_symlink():
            shutil.rmtree(path.resolve())
            path.unlink()
        else:
            shutil.rmtree(path)
    except OSError as err:
        raise RecordError(
            f"{err.filename!r} cannot be removed: {err.strerror}.", path=path
        ) from err
    if not any(path.parent.iterdir()):
        path.parent.rmdir()


def leftovers(entry: Entry) -> list[Leftover]:
    """Return what the jobs of an experiment may still have at their backends, each once."""
    if not any(job.handles for job in entry.jobs) or entry.executors == ("local_persistent",):
        return []
    from nemo_run.cli._experiments._opening import open_experiment

    try:
        jobs = open_experiment(entry.path).jobs
    except NemoRunError as err:
        log.warning("%s: what its jobs left behind cannot be looked for: %s", entry.id, err)
        return []
    found = [
        leftover
        for job, known in zip(jobs, entry.jobs, strict=False)
        for executor, handle in zip(job.executors_in_order, known.handles, strict=False)
        for leftover in executor.leftovers(handle)
    ]
    return list(dict.fromkeys(found))
