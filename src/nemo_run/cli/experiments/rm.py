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

from nemo_run._experiments.display.counts import plural
from nemo_run._experiments.store import launcher
from nemo_run._experiments.store.listing import Entry
from nemo_run._experiments.store.places import leads_to_experiment
from nemo_run._jobs.store import JobStore
from nemo_run._shell import as_word
from nemo_run.cli.experiments import summaries
from nemo_run.cli.experiments.arguments import Parser, as_json
from nemo_run.cli.experiments.finding import find, open_experiment
from nemo_run.cli.terminal.screen import Screen
from nemo_run.exceptions import ConfigError, NemoRunError, RecordError

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
    from nemo_run.cli.terminal.confirmation import ask

    places = {place.path: place for place in map(find, options.experiment)}
    entries = summaries.refreshed([place.entry() for place in places.values()])
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
    if options.dryrun:
        screen.print(f"Would remove {names}")
    else:
        screen.print(f"Removed {names}" if removed else f"Not removed: {names}")
    gone, stays = ("Would remove", "Would leave") if options.dryrun else ("Removed", "Left")
    goes = options.remote and (removed or options.dryrun)
    for what in there:
        screen.print(f"{gone if goes else stays} {what}")
    return 0


def check_removable(entry: Entry) -> None:
    """Refuse to forget what may still be running.

    Raises:
        ConfigError: a job has not ended.
    """
    launched = launcher.was_launched(entry.path)
    live = [job for job in entry.jobs if (job.handles or launched) and not job.ended]
    if live:
        hint = summaries.resume_hint(entry)
        raise ConfigError(
            f"{entry.id} has {plural(len(live), 'job')} that had not ended ({entry.state}). "
            f"{f'It {hint}. Or cancel' if hint else 'Cancel'} them first: "
            f"nemorun experiment cancel --all {as_word(entry.id)}"
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
        if not path.is_symlink():
            shutil.rmtree(path)
        else:
            if leads_to_experiment(path):
                shutil.rmtree(path.resolve())
            else:
                log.warning("%s is a link to what is no experiment: only it is removed.", path)
            path.unlink()
    except OSError as err:
        raise RecordError(
            f"{err.filename!r} cannot be removed: {err.strerror}.", path=path
        ) from err
    if not any(path.parent.iterdir()) and not path.parent.is_symlink():
        path.parent.rmdir()


def leftovers(entry: Entry) -> list[Leftover]:
    """Return what the jobs of an experiment may still have at their backends, each once."""
    if not any(job.handles for job in entry.jobs) or entry.executors == ("local_persistent",):
        return []

    try:
        jobs = open_experiment(entry.path).jobs
    except NemoRunError as err:
        log.warning(
            "%s: the backends of its jobs cannot be asked what they still keep: %s", entry.id, err
        )
        return []
    found = [
        leftover
        for job, known in zip(jobs, entry.jobs, strict=False)
        for executor, handle in zip(job.executors_in_order, known.handles, strict=False)
        for leftover in executor.leftovers(handle)
    ]
    return list(dict.fromkeys(found))
