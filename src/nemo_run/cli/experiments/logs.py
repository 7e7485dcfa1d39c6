"""What jobs print: all that there is now, or as it comes."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timezone

from nemo_run.cli.experiments.arguments import Parser, count, moment_or_none
from nemo_run.cli.experiments.finding import find, find_jobs, open_experiment
from nemo_run.exceptions import ConfigError


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.jobs("only these; otherwise all, each line with its job's name")
    parser.add_argument("--follow", "-f", action="store_true", help="until the jobs have ended")
    parser.add_argument("--grep", metavar="REGEX", help="only lines in which it is found")
    parser.add_argument(
        "--since", metavar="TIME", help="only what was printed after it, such as 10m"
    )
    parser.add_argument(
        "--tail", "-n", type=count, metavar="N", help="only the last lines of each job"
    )
    parser.add_argument(
        "--raw", action="store_true", help="control characters too, which can steer a terminal"
    )
    parser.json()


def run(options: argparse.Namespace) -> int:
    from nemo_run.cli.experiments.printing import LogPrinter, Selection

    if options.follow and options.tail is not None:
        raise ConfigError("--tail counts from the end, which --follow waits for. Use one of them.")
    try:
        pattern = re.compile(options.grep) if options.grep else None
    except re.error as err:
        raise ConfigError(f"--grep {options.grep!r} is not a regular expression: {err}.") from None
    since = moment_or_none(options.since)
    experiment = open_experiment(find(options.experiment).path)
    ids = [job.id for job in experiment.jobs]
    chosen = find_jobs(options.jobs, ids) if options.jobs else list(range(len(ids)))
    selection = Selection(
        follow=options.follow,
        pattern=pattern,
        since=None if since is None else datetime.fromtimestamp(since, timezone.utc),
        tail=options.tail,
        raw=options.raw,
    )
    printer = LogPrinter(experiment, selection, named=len(chosen) > 1, as_json=options.json)
    return printer.print(chosen)
