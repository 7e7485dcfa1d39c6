"""A note on an experiment: what came of it, in a sentence."""

from __future__ import annotations

import argparse

from nemo_run._experiments.display.tables import one_line
from nemo_run._experiments.store import listing
from nemo_run.cli.experiments.arguments import Parser, as_json
from nemo_run.cli.experiments.finding import find
from nemo_run.cli.terminal.screen import Screen


def arguments(parser: Parser) -> None:
    parser.experiment(nargs=None)
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="in place of the one that is there; without, it is shown",
    )
    parser.json()


def run(options: argparse.Namespace) -> int:
    place = find(options.experiment)
    labels = listing.read_labels(place.path)
    if options.text is not None:
        labels = labels._replace(note=options.text)
        listing.write_labels(place.path, labels)
    screen = Screen()
    if options.json:
        screen.print(as_json({"id": place.id, "note": labels.note}))
    else:
        screen.print(f"{place.id}: {one_line(labels.note) or 'no note'}")
    return 0
