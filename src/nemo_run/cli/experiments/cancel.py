"""End jobs of an experiment; returns when they have ended."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nemo_run._experiments.display.counts import summary
from nemo_run._jobs.shown_text import in_message
from nemo_run.cli.experiments.arguments import LATEST, Parser, as_json
from nemo_run.cli.experiments.finding import find, find_jobs, open_experiment
from nemo_run.cli.terminal.screen import Screen
from nemo_run.exceptions import ConfigError, NemoRunError

if TYPE_CHECKING:
    from nemo_run.run.experiment import Experiment


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.set_defaults(experiment=None)
    parser.jobs("these; otherwise it asks or, without a terminal, ends the first")
    parser.add_argument("--all", action=argparse.BooleanOptionalAction, help="all of its jobs")
    parser.add_argument(
        "--dependencies", "-d", action="store_true", help="also the jobs that these depend on"
    )
    parser.json()


def run(options: argparse.Namespace) -> int:

    if options.experiment is None and not _can_ask():
        raise ConfigError("Say which experiment to cancel, such as latest: there is no terminal.")
    place = find(options.experiment or LATEST)
    experiment = open_experiment(place.path)
    ids = [job.id for job in experiment.jobs]
    words = options.jobs or (["0"] if options.all else _asked(experiment, json=options.json))
    wanted = [ids[i] for i in (range(len(ids)) if options.all else find_jobs(words, ids))]
    if not wanted:
        Screen().print("Nothing was cancelled.")
        return 0
    if options.dependencies:
        needed = {job.id: job.dependencies for job in experiment.jobs}
        wanted = _with_dependencies(wanted, needed)
    before = experiment.status(return_dict=True) or {}
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
            had = " (had ended before)" if _has_ended(before[job]) else ""
            screen.print(f"{job}: {statuses[job]['status'].name}{had}")
        for line in _about_others({job: s for job, s in statuses.items() if job not in wanted}):
            screen.print(line)
    if errors:
        raise NemoRunError(" ".join(errors))
    return 0


def _asked(experiment: Experiment, *, json: bool) -> list[str]:
    """Return which job is meant where none was named; ask if there are several and a terminal.

    Without a terminal it is the first, as programs written for NeMo Run 0.12 expect.
    """
    statuses = experiment.status(return_dict=True) or {}
    live = [job for job, status in statuses.items() if not _has_ended(status)]
    if len(statuses) < 2 or not live or json or not _can_ask():
        return ["0"]
    print(f"{experiment._id} has {len(live)} jobs that have not ended:", file=sys.stderr)
    for number, job in enumerate(statuses):
        if job in live:
            print(in_message(f"  {number}  {job}"), file=sys.stderr)
    print("Cancel which? Numbers or names, all, or Enter for none: ", end="", file=sys.stderr)
    sys.stderr.flush()
    try:
        words = input().replace(",", " ").split()
    except EOFError:
        return []
    return live if words == ["all"] else words


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _has_ended(status: Mapping[str, Any]) -> bool:
    return status["status"].name in ("SUCCEEDED", "FAILED", "CANCELLED")


def _about_others(others: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what became of the jobs that were not to be cancelled."""
    live = {job: status for job, status in others.items() if not _has_ended(status)}
    ended = {job: status for job, status in others.items() if _has_ended(status)}
    if live:
        yield f"Others go on as they are: {summary(live)}. See --all."
    if ended:
        yield f"Others had ended: {summary(ended)}."


def _with_dependencies(wanted: Sequence[str], needed: dict[str, list[str]]) -> list[str]:
    """Return jobs with all that they depend on, in the order of the experiment."""
    found = list(wanted)
    for job in found:
        found += [other for other in needed[job] if other not in found]
    return [job for job in needed if job in found]
