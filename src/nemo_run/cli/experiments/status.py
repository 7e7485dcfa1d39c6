"""How the jobs of an experiment are doing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from nemo_run._experiments.display import status_table
from nemo_run._experiments.display.counts import summary
from nemo_run._experiments.display.tables import one_line
from nemo_run.cli.experiments.arguments import Parser, as_json
from nemo_run.cli.experiments.finding import find, find_jobs, open_experiment
from nemo_run.cli.terminal.screen import Screen, wrapped


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.jobs("only these")
    parser.json()


def run(options: argparse.Namespace) -> int:

    place = find(options.experiment)
    statuses = open_experiment(place.path).status(return_dict=True) or {}
    ids = list(statuses)
    chosen = find_jobs(options.jobs, ids) if options.jobs else range(len(ids))
    shown = {ids[index]: statuses[ids[index]] for index in chosen}
    screen = Screen()
    if options.json:
        jobs = {job: {**status, "status": status["status"].name} for job, status in shown.items()}
        screen.print(as_json({"id": place.id, "jobs": jobs}))
        return 0
    screen.heading(place.id)
    print_table(screen, {ids.index(job): (job, status) for job, status in shown.items()})
    screen.print(summary(statuses))
    return 0


def print_table(screen: Screen, jobs: Mapping[int, tuple[str, Mapping[str, Any]]]) -> None:
    """Print a table of jobs by their positions, and what has no room in it."""
    table = status_table.table_of(jobs)
    printed = screen.table(table.header, table.rows, dispensable=table.dispensable)
    for line in status_table.details(dict(jobs.values()), printed):
        for part in wrapped(one_line(line), screen.width, below="  "):
            screen.print(part)
