"""Everything that is known of an experiment, without importing its code."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_run._experiments.display.counts import counted
from nemo_run._experiments.display.counts import shown as shown_state
from nemo_run._experiments.display.durations import elapsed
from nemo_run._experiments.display.tables import one_line
from nemo_run._experiments.provenance.record import known_provenance
from nemo_run._experiments.store import launcher, listing
from nemo_run._experiments.store.listing import Entry, JobSummary, StoredJob
from nemo_run._files import read_regular
from nemo_run.cli.experiments import plain, summaries
from nemo_run.cli.experiments.arguments import Parser, as_json
from nemo_run.cli.experiments.finding import find, find_jobs
from nemo_run.cli.terminal.screen import Screen


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.jobs("only these")
    parser.json()


def run(options: argparse.Namespace) -> int:
    place = find(options.experiment)
    (entry,) = summaries.refreshed([place.entry()])
    stored = listing.read_jobs(entry.path)
    ids = [job.id for job in stored]
    chosen = find_jobs(options.jobs, ids) if options.jobs else list(range(len(ids)))
    screen = Screen()
    if options.json:
        jobs = [_job_data(stored[index], _state(entry, index)) for index in chosen]
        provenance = known_provenance(Path(entry.path))
        data = {
            **summaries.as_data(entry),
            "version": _version(entry),
            "provenance": dataclasses.asdict(provenance) if provenance else None,
            "jobs": jobs,
        }
        screen.print(as_json(data))
        return 0
    for label, value in _about(entry):
        if value:
            screen.print(f"{screen.style(label + ':', '1')} {one_line(value)}")
    provenance = known_provenance(Path(entry.path))
    archives = provenance.archives if provenance else {}
    for index in chosen:
        archive = archives.get(ids[index])
        digest = archive.sha256 if archive else ""
        _print_job(screen, index, stored[index], _state(entry, index), digest)
    return 0


def _state(entry: Entry, index: int) -> JobSummary:
    job = entry.jobs[index] if index < len(entry.jobs) else JobSummary()
    orphaned = entry.launcher_gone and not (job.ended or job.handles)
    return job._replace(message=launcher.WAITS) if orphaned else job


def _version(entry: Entry) -> str:
    try:
        return read_regular(f"{entry.path}/_VERSION").decode("utf-8").strip()
    except OSError:
        return ""


def _about(entry: Entry) -> Iterator[tuple[str, str]]:
    yield "Experiment", entry.id
    yield "Title", entry.title
    yield "State", f"{shown_state(entry.state)} ({counted(entry.counts)})"
    yield "Next", summaries.resume_hint(entry)
    yield "Created", summaries.when(entry.created_at)
    yield "Started", summaries.when(entry.started_at)
    yield "Ended", summaries.when(entry.ended_at)
    yield "Took", elapsed(summaries.duration_s(entry))
    yield "Tags", " ".join(entry.labels.tags)
    yield "Note", entry.labels.note
    yield "Version", _version(entry)
    provenance = known_provenance(Path(entry.path))
    if provenance is not None:
        yield "Code", provenance.code
        patch = provenance.git.patch if provenance.git else ""
        yield "Changes", str(Path(entry.path) / patch) if patch else ""
        yield "Called", f"{shlex.join(provenance.argv)} in {provenance.cwd}"
        with_what = f"Python {provenance.python}, {len(provenance.packages)} packages"
        yield "By", f"{provenance.user} on {provenance.host}, {with_what}"
    yield "Directory", entry.path


def _job_data(job: StoredJob, state: JobSummary) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": state.state,
        "exit_code": state.exit_code,
        "message": state.message,
        "started_at": summaries.iso(state.started_at),
        "ended_at": summaries.iso(state.ended_at),
        "handles": list(state.handles),
        "dependencies": list(job.dependencies),
        "task": plain.as_data(plain.masked_task(job.task)),
        "executor": plain.as_data(plain.masked(job.executor)),
    }


def _print_job(screen: Screen, index: int, job: StoredJob, state: JobSummary, archive: str) -> None:
    screen.print()
    took = None
    if state.started_at is not None and state.ended_at is not None:
        took = state.ended_at - state.started_at
    ended = [shown_state(state.state), elapsed(took)]
    if state.exit_code is not None:
        ended.append(f"exit code {state.exit_code}")
    screen.heading(f"Job {index}: {one_line(job.id)}")
    rows = [
        ("State", ", ".join(word for word in ended if word)),
        ("Message", state.message),
        ("Handle", " ".join(state.handles)),
        ("Depends on", " ".join(job.dependencies)),
        ("Archive", archive),
    ]
    for label, value in rows:
        if value:
            screen.print(f"  {label}: {one_line(value)}")
    shown = (("Task", plain.masked_task(job.task)), ("Executor", plain.masked(job.executor)))
    for what, value in shown:
        screen.print(f"  {what}:")
        for path, text in plain.flat(value).items():
            screen.print(f"    {path or what.lower()} = {one_line(text)}")
