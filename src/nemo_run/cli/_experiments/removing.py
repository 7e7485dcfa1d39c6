"""Forget experiments that have ended: their directories, and the records of their jobs."""

from __future__ import annotations

import argparse
import logging
import shutil
from pathlib import Path

from nemo_run._records import JobStore
from nemo_run.cli._experiments import _summaries
from nemo_run.cli._experiments._arguments import Parser, as_json
from nemo_run.cli._experiments._finding import find
from nemo_run.cli._screen import Screen
from nemo_run.exceptions import ConfigError, NemoRunError, RecordError
from nemo_run.run._catalogue import Entry
from nemo_run.run._counting import plural

log = logging.getLogger(__name__)


def arguments(parser: Parser) -> None:
    parser.experiment(nargs="+")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument("--dryrun", action="store_true", help="only say what would be removed")
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
    for entry in entries if removed else ():
        remove(entry)
    screen = Screen()
    if options.json:
        screen.print(as_json({"removed": [e.id for e in entries] if removed else []}))
    else:
        screen.print(f"Removed {names}" if removed else f"Not removed: {names}")
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
            f"Cancel them first: nemorun experiment cancel {entry.id} --all"
        )


def remove(entry: Entry) -> None:
    """Delete the directory of an experiment, the records of its jobs and what they left behind.

    Raises:
        RecordError: a part of it could not be deleted; it is then still listed.
    """
    _clean_up_backends(entry)
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


def _clean_up_backends(entry: Entry) -> None:
    """Let executors remove what jobs left at their backends; trouble is only logged."""
    from nemo_run.cli._experiments._opening import open_experiment

    if not any(job.handles for job in entry.jobs):
        return
    try:
        experiment = open_experiment(entry.path)
        experiment.status(return_dict=True)
    except NemoRunError as err:
        log.warning("%s: what its jobs left behind cannot be looked for: %s", entry.id, err)
        return
    for job in experiment.jobs:
        job.cleanup()
