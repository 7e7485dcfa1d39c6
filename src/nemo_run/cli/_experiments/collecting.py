"""Remove old experiments, what they left at backends, and archives of code that nobody names.

Without ``--yes`` only what it would be is said. Machines that were made for experiments and that
nothing uses are only listed.
"""

from __future__ import annotations

import argparse
import logging
import time
from datetime import timedelta
from importlib.metadata import entry_points

from nemo_run._records import JobStore
from nemo_run.cli._experiments import _summaries
from nemo_run.cli._experiments._arguments import Parser, as_json, seconds
from nemo_run.cli._experiments._finding import places
from nemo_run.cli._experiments.removing import leftovers, remove
from nemo_run.cli._screen import Screen
from nemo_run.exceptions import NemoRunError
from nemo_run.run._catalogue import Entry
from nemo_run.run._counting import plural

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
    entries = _summaries.refreshed([place.entry() for place in old])
    chosen = [
        entry
        for entry in entries
        if entry.ended and not (options.keep_tagged and entry.labels.tags)
    ]
    left = {entry.id: [] if options.keep_remote else leftovers(entry) for entry in chosen}
    there = [found.what for some in left.values() for found in some]
    for entry in chosen if options.yes else ():
        remove(entry, left[entry.id])
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
        }
        screen.print(as_json(data))
        return 0
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
    found = f"{experiments} and {plural(len(archives), 'archive')}"
    done = "removed" if options.yes else "would be removed; say --yes to do it"
    screen.print(f"{found} of code ({size_bytes / 1e6:.1f} MB) {done}")
    return 0


def _line(entry: Entry) -> str:
    return f"{entry.id}  {entry.state}  {_summaries.when(entry.created_at)}"


def _unused() -> dict[str, str]:
    """Return what jobs left running at backends, with the command that removes it."""
    found: dict[str, str] = {}
    for name in JobStore().schedulers():
        for point in entry_points(group="torchx.schedulers", name=name):
            try:
                found |= point.load()("nemo_run").unused()
            except NemoRunError as err:
                log.warning("%s: what its jobs left behind cannot be looked for: %s", name, err)
    return found
