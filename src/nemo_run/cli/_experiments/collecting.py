"""Remove what is left over of old experiments; without ``--yes`` only what it would be is said."""

from __future__ import annotations

import argparse
import time

from nemo_run.cli._experiments import _summaries, removing
from nemo_run.cli._experiments._arguments import Parser, as_json, plural, seconds
from nemo_run.cli._experiments._finding import places
from nemo_run.cli._screen import Screen
from nemo_run.run._catalogue import Entry


def arguments(parser: Parser) -> None:
    parser.add_argument("--older-than", default="30d", metavar="TIME", help="30d by default")
    parser.add_argument("--keep-tagged", action="store_true", help="leave those that have a tag")
    parser.add_argument("--yes", "-y", action="store_true", help="remove it; otherwise a dry run")
    parser.json()


def run(options: argparse.Namespace) -> int:
    before = time.time() - seconds(options.older_than)
    old = [place for place in places() if place.created_at < before]
    entries = _summaries.refreshed([place.entry() for place in old])
    chosen = [
        entry
        for entry in entries
        if entry.ended and not (options.keep_tagged and entry.labels.tags)
    ]
    for entry in chosen if options.yes else ():
        removing.remove(entry)
    screen = Screen()
    if options.json:
        screen.print(as_json({"removed": options.yes, "experiments": [e.id for e in chosen]}))
        return 0
    for entry in chosen:
        screen.print(_line(entry))
    done = "removed" if options.yes else "would be removed; say --yes to do it"
    screen.print(f"{plural(len(chosen), 'experiment')} {done}")
    return 0


def _line(entry: Entry) -> str:
    return f"{entry.id}  {entry.state}  {_summaries.when(entry.created_at)}"
