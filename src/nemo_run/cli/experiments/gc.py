"""Remove old experiments, what they left at backends, and archives that no experiment names.

Without ``--yes`` only what it would be is said. Machines that were made for experiments and that
nothing uses are only listed.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from nemo_run._durations import seconds
from nemo_run._experiments.display.counts import plural
from nemo_run._experiments.store import listing
from nemo_run._experiments.store.listing import Entry
from nemo_run._jobs.store import JobStore
from nemo_run.cli.experiments import summaries
from nemo_run.cli.experiments.arguments import Parser, as_json
from nemo_run.cli.experiments.finding import places
from nemo_run.cli.experiments.rm import leftovers, remove
from nemo_run.cli.terminal.screen import Screen
from nemo_run.exceptions import NemoRunError

if TYPE_CHECKING:
    from nemo_run.core.execution.leftovers import Leftover

log = logging.getLogger(__name__)


def arguments(parser: Parser) -> None:
    parser.add_argument("--older-than", default="30d", metavar="TIME", help="30d by default")
    parser.add_argument("--keep-tagged", action="store_true", help="leave those that have a tag")
    parser.add_argument(
        "--keep-remote", action="store_true", help="leave what jobs have at backends"
    )
    parser.add_argument("--yes", "-y", action="store_true", help="remove it; otherwise a dry run")
    parser.json()


def run(options: argparse.Namespace) -> int:
    from nemo_run.run.archives import gc

    age_s = seconds(options.older_than)
    before = time.time() - age_s
    unused = _unused()  # as long as there are records of who made it
    old = [place for place in places() if place.created_at < before]
    read = [listing.read_entry(*place) for place in old]
    # A directory that a killed launcher left empty is no experiment.
    entries = summaries.refreshed([entry for entry in read if entry is not None])
    chosen = [
        entry
        for entry in entries
        if entry.ended and not (options.keep_tagged and entry.labels.tags)
    ]
    left = {entry.id: [] if options.keep_remote else leftovers(entry) for entry in chosen}
    errors = _removed(chosen, left) if options.yes else {}
    chosen = [entry for entry in chosen if entry.id not in errors]
    there = [found.what for entry in chosen for found in left[entry.id]]
    archives = gc(older_than=timedelta(seconds=age_s), dry_run=not options.yes)
    size_bytes = sum(archive.size_bytes for archive in archives)
    screen = Screen()
    if options.json:
        data = {
            "removed": options.yes,
            "experiments": [entry.id for entry in chosen],
            "leftovers": there,
            "archives": [str(archive.path) for archive in archives],
            "archive_bytes": size_bytes,
            "unused": unused,
            "errors": errors,
        }
        screen.print(as_json(data))
        return 1 if errors else 0
    for entry in chosen:
        screen.print(_line(entry))
    for what in there:
        screen.print(what)
    for archive in archives:
        screen.print(str(archive.path))
    for name, command in unused.items():
        screen.print(f"{name} was made for an experiment and nothing uses it: {command}")
    experiments = plural(len(chosen), "experiment")
    if there:
        experiments += f", {plural(len(there), 'thing')} at backends"
    if not (chosen or archives or errors):
        screen.print(f"Nothing that has ended is older than {options.older_than}.")
        return 0
    found = f"{experiments} and {plural(len(archives), 'archive')}"
    done = "removed" if options.yes else "would be removed; say --yes to do it"
    screen.print(f"{found} of code ({size_bytes / 1e6:.1f} MB) {done}")
    if errors:
        told = " ".join(f"{id}: {why}" for id, why in errors.items())
        raise NemoRunError(f"{plural(len(errors), 'experiment')} could not be removed. {told}")
    return 0


def _removed(entries: Sequence[Entry], left: Mapping[str, Sequence[Leftover]]) -> dict[str, str]:
    """Remove experiments, each by itself; return why some could not be, by their ids."""
    errors = {}
    for entry in entries:
        try:
            remove(entry, left[entry.id])
        except NemoRunError as err:
            errors[entry.id] = str(err)
    return errors


def _line(entry: Entry) -> str:
    return f"{entry.id}  {entry.state}  {summaries.when(entry.created_at)}"


def _unused() -> dict[str, str]:
    """Return what jobs left running at backends, with the command that removes it."""
    found: dict[str, str] = {}
    for name in JobStore().schedulers():
        for point in entry_points(group="torchx.schedulers", name=name):
            try:
                found |= point.load()("nemo_run").unused()
            except NemoRunError as err:
                log.warning(
                    "%s: the backends of its jobs cannot be asked what they still keep: %s",
                    name,
                    err,
                )
    return found
