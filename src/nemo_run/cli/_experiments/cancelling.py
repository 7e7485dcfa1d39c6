"""End jobs of an experiment; returns when they have ended."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nemo_run.cli._experiments._arguments import Parser, as_json
from nemo_run.cli._experiments._finding import find, find_jobs
from nemo_run.cli._screen import Screen
from nemo_run.exceptions import NemoRunError
from nemo_run.run._counting import summary


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.jobs("these; otherwise the first")
    parser.add_argument("--all", action=argparse.BooleanOptionalAction, help="all of its jobs")
    parser.add_argument(
        "--dependencies", "-d", action="store_true", help="also the jobs that these depend on"
    )
    parser.json()


def run(options: argparse.Namespace) -> int:
    from nemo_run.cli._experiments._opening import open_experiment

    place = find(options.experiment)
    experiment = open_experiment(place.path)
    ids = [job.id for job in experiment.jobs]
    chosen = range(len(ids)) if options.all else find_jobs(options.jobs or ["0"], ids)
    wanted = [ids[index] for index in chosen]
    if options.dependencies:
        needed = {job.id: job.dependencies for job in experiment.jobs}
        wanted = _with_dependencies(wanted, needed)
    errors = []
    # The last first: whatever waits for a job that is cancelled is not to be started meanwhile.
    for job in reversed(wanted):
        try:
            experiment.cancel(job, check=True)
        except NemoRunError as err:
            errors.append(f"{job} could not be cancelled: {err}")
    statuses = experiment.status(return_dict=True) or {}
    screen = Screen()
    if options.json:
        screen.print(as_json({job: statuses[job]["status"].name for job in wanted}))
    else:
        for job in wanted:
            screen.print(f"{job}: {statuses[job]['status'].name}")
        others = {job: s for job, s in statuses.items() if job not in wanted}
        if others:
            screen.print(f"Others go on as they are: {summary(others)}. See --all.")
    if errors:
        raise NemoRunError(" ".join(errors))
    return 0


def _with_dependencies(wanted: Sequence[str], needed: dict[str, list[str]]) -> list[str]:
    """Return jobs with all that they depend on, in the order of the experiment."""
    found = list(wanted)
    for job in found:
        found += [other for other in needed[job] if other not in found]
    return [job for job in needed if job in found]
