"""A note on an experiment: what came of it, in a sentence."""

from __future__ import annotations

import argparse

from nemo_run.cli._experiments._arguments import Parser, as_json
from nemo_run.cli._experiments._finding import find
from nemo_run.cli._screen import Screen, one_line
from nemo_run.run import _catalogue


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="in place of the one that is there; without, it is shown",
    )
    parser.json()


def run(options: argparse.Namespace) -> int:
    place = find(options.experiment)
    labels = _catalogue.read_labels(place.path)
    if options.text is not None:
        labels = labels._replace(note=options.text)
        _catalogue.write_labels(place.path, labels)
    screen = Screen()
    if options.json:
        screen.print(as_json({"id": place.id, "note": labels.note}))
    else:
        screen.print(f"{place.id}: {one_line(labels.note) or 'no note'}")
    return 0
