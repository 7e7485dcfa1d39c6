"""All experiments, the newest first."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from nemo_run._experiments.display.counts import counted, plural, shown
from nemo_run._experiments.display.durations import elapsed
from nemo_run._experiments.store import listing
from nemo_run._experiments.store.listing import Entry
from nemo_run._experiments.store.listing_cache import read_entries
from nemo_run._experiments.store.places import runs_of
from nemo_run.cli.experiments import summaries
from nemo_run.cli.experiments.arguments import Parser, as_json, count, moment_or_none
from nemo_run.cli.experiments.finding import Place, places, title_names
from nemo_run.cli.terminal.screen import Screen
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.exceptions import ConfigError, RecordError

STATES = (
    "UNSUBMITTED",
    "SUBMITTED",
    "PENDING",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "CANCELLED",
    "UNKNOWN",
)
HEADER = ("ID", "STATE", "JOBS", "EXECUTOR", "CREATED", "TOOK", "TAGS", "MESSAGE")
_DISPENSABLE = ("EXECUTOR", "TOOK", "CREATED")


def arguments(parser: Parser) -> None:
    add_filters(parser)
    parser.add_argument("--ids", action="store_true", help="only the ids, one a line")
    parser.json()


def add_filters(parser: Parser) -> None:
    parser.add_argument("title", metavar="TITLE", nargs="?", help="of this title only")
    parser.add_argument("--state", action="append", metavar="STATE", help="in it; may be repeated")
    parser.add_argument("--executor", metavar="NAME", help="on it, such as local or slurm")
    parser.add_argument("--tag", action="append", metavar="TAG", help="with it; may be repeated")
    parser.add_argument("--since", metavar="TIME", help="made after it: 2d, 2026-01-31")
    parser.add_argument("--until", metavar="TIME", help="made before it")
    parser.add_argument("--text", metavar="TEXT", help="in id, tags, note, job names or arguments")
    parser.add_argument("--limit", "-n", type=count, metavar="N", help="at most so many")
    parser.add_argument("--cached", action="store_true", help="do not ask backends")


def run(options: argparse.Namespace) -> int:
    entries = filtered(options)
    screen = Screen()
    if options.json:
        screen.print(as_json([summaries.as_data(entry) for entry in entries]))
    elif options.ids:
        for entry in entries:
            screen.print(entry.id)
    elif not entries:
        screen.print("No experiments.")
    else:
        screen.table(HEADER, [_row(entry) for entry in entries], dispensable=_DISPENSABLE)
        total: dict[str, int] = {}
        for entry in entries:
            total[entry.state] = total.get(entry.state, 0) + 1
        screen.print(f"{plural(len(entries), 'experiment')}: {counted(total)}")
        for entry in entries:
            if hint := summaries.resume_hint(entry):
                screen.print(f"{entry.id} {hint}")
    return 0


def _row(entry: Entry) -> Sequence[str]:
    done = sum(job.state == "SUCCEEDED" for job in entry.jobs)
    return (
        entry.id,
        shown(entry.state),
        f"{done}/{len(entry.jobs)}",
        ",".join(map(summaries.executor_name, entry.executors)),
        summaries.when(entry.created_at),
        elapsed(summaries.duration_s(entry)),
        " ".join(entry.labels.tags),
        entry.reason,
    )


def filtered(options: argparse.Namespace) -> list[Entry]:
    """Return the experiments that the filters of a command leave, the newest first.

    Raises:
        ConfigError: a filter makes no sense.
    """
    states = _states(options.state or ())
    since, until = moment_or_none(options.since), moment_or_none(options.until)
    known = places()
    chosen = [
        place
        for place in known
        if (not options.title or _has_title(place, options.title))
        and (since is None or place.created_at >= since)
        and (until is None or place.created_at <= until)
    ]
    only_places = not (states or options.executor or options.tag or options.text)
    if only_places and options.limit is not None:
        chosen = chosen[: options.limit]
    read = read_entries(chosen, {place.path for place in known})
    entries = [entry for entry in read if _matches(entry, options)]
    if not options.cached:
        entries = summaries.refreshed(entries)
    if states:
        entries = [entry for entry in entries if entry.state in states]
    return entries if options.limit is None else entries[: options.limit]


def _has_title(place: Place, title: str) -> bool:
    if place.title in title_names(title):
        return True
    return "/" in title and Path(place.path) in runs_of(title)


def _states(words: Sequence[str]) -> set[str]:
    for word in words:
        if word.upper() not in (*STATES, "WAITING"):
            raise ConfigError(f"There is no state {word!r}. {did_you_mean(word.upper(), STATES)}")
    return {"UNSUBMITTED" if word.upper() == "WAITING" else word.upper() for word in words}


def _matches(entry: Entry, options: argparse.Namespace) -> bool:
    if options.tag and not set(options.tag) <= set(entry.labels.tags):
        return False
    if options.executor:
        wanted = options.executor.lower().removesuffix("executor")
        if not any(wanted in name for name in _executors(entry)):
            return False
    return not options.text or options.text.lower() in _text(entry)


def _executors(entry: Entry) -> list[str]:
    if entry.executors:
        return [name.lower() for name in entry.executors]
    try:
        return [job.executor_name.lower() for job in listing.read_jobs(entry.path)]
    except RecordError:
        return []


def _text(entry: Entry) -> str:
    try:
        jobs = [f"{job.id} {job.task!r}" for job in listing.read_jobs(entry.path)]
    except RecordError:
        jobs = []
    return " ".join((entry.id, *entry.labels.tags, entry.labels.note, *jobs)).lower()
