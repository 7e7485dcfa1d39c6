"""Tags on experiments, to find them by."""

from __future__ import annotations

import argparse

from nemo_run._experiments.store import listing
from nemo_run.cli.experiments.arguments import EXPERIMENT_HELP, Parser, as_json
from nemo_run.cli.experiments.finding import find
from nemo_run.cli.terminal.screen import Screen
from nemo_run.exceptions import ConfigError


def arguments(parser: Parser) -> None:
    parser.add_argument("experiment", metavar="EXPERIMENT", help=EXPERIMENT_HELP)
    parser.add_argument(
        "tags", metavar="TAG", nargs="*", default=[], help="to add; without, they are shown"
    )
    parser.add_argument("--remove", "-r", action="store_true", help="take the tags off instead")
    parser.json()


def run(options: argparse.Namespace) -> int:
    place = find(options.experiment)
    for tag in options.tags:
        if not tag or any(char.isspace() or char == "," for char in tag):
            raise ConfigError(f"{tag!r} is no tag: it is one word, without blanks and commas.")
    labels = listing.read_labels(place.path)
    if options.tags:
        kept = [tag for tag in labels.tags if not (options.remove and tag in options.tags)]
        added = [] if options.remove else options.tags
        labels = labels._replace(tags=tuple(dict.fromkeys((*kept, *added))))
        listing.write_labels(place.path, labels)
    screen = Screen()
    if options.json:
        screen.print(as_json({"id": place.id, "tags": list(labels.tags)}))
    else:
        screen.print(f"{place.id}: {' '.join(labels.tags) or 'no tags'}")
    return 0
