"""What an experiment shows when it is asked, or ends: a table of states, and how to come back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from torchx.specs import AppState, parse_app_handle

from nemo_run._experiments.display import counts, status_table
from nemo_run._experiments.display.arguments import flat, masked_task
from nemo_run._experiments.display.tables import GAP, laid_out, one_line
from nemo_run._experiments.jobs.task_text import SCRIPT, as_text
from nemo_run._experiments.provenance.record import Provenance
from nemo_run._experiments.store.states import JobState
from nemo_run._jobs.wording import signal_of
from nemo_run._secrets.masking import masked_text
from nemo_run._shell import as_word
from nemo_run.core.serialization.peek import peek
from nemo_run.run.job import Job, JobGroup

STYLES = {
    AppState.SUCCEEDED: "green",
    AppState.FAILED: "red",
    AppState.CANCELLED: "magenta",
    AppState.RUNNING: "cyan",
    AppState.UNKNOWN: "yellow",
}

GAP_TEXT = Text(GAP)
SCRIPT_LINES = 20
"""How many lines of an inline script a plan shows."""


def describe(
    job: Job | JobGroup,
    state: JobState,
    exp_dir: Path,
    provenance: Provenance | None,
    waits_for: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what a status shows of one job, and of those that it waits for the names."""
    handle = state.members[0].handle
    archive = provenance.archives.get(job.id) if provenance else None
    remote = {"remote_dir": job.executor.remote_dir} if job.executor.remote_dir else {}
    return {
        "name": job.id,
        "status": state.state,
        "executor": job.executor.info(),
        "job_id": parse_app_handle(handle)[2] if handle else "",
        "handle": handle,
        "local_dir": job.executor.job_dir or str(exp_dir / (job.name or job.id)),
        **remote,
        "exit_code": state.exit_code,
        "signal": signal_of(state.exit_code),
        "duration_s": state.duration_s,
        **state.usage._asdict(),
        "message": state.reason,
        "cause": state.cause.to_json() if state.cause else None,
        "waits_for": list(waits_for),
        **({"parts": [part._asdict() for part in state.parts]} if state.parts else {}),
        **({"attempts": [a._asdict() for a in state.attempts]} if state.attempts else {}),
        "code": provenance.code if provenance else "",
        "archive": archive.sha256 if archive else "",
    }


def as_json(statuses: Mapping[str, Mapping[str, Any]]) -> str:
    """Return statuses as JSON, states by their names."""
    plain = {job: {**status, "status": status["status"].name} for job, status in statuses.items()}
    return json.dumps(plain, indent=2)


def waiting_for(jobs: Sequence[Job | JobGroup], states: Sequence[JobState]) -> list[list[str]]:
    """Return for each job the names of those that have to end before it is submitted."""
    live = {job.id for job, state in zip(jobs, states, strict=True) if not state.ended}
    return [
        [] if state.launched else [name for name in job.dependencies if name in live]
        for job, state in zip(jobs, states, strict=True)
    ]


def print_status(console: Console, title: str, statuses: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a table of jobs, what has no room in it, and where their files are."""
    console.print()
    console.print(Text(f"Experiment Status for {title}", style="bold green"), soft_wrap=True)
    # The same for all jobs: it is that of the directory they were launched from.
    first: Mapping[str, Any] = next(iter(statuses.values()), {})
    about = [("Code", first.get("code")), ("Directory", _above(statuses))]
    for label, value in about:
        if value:
            console.print(Text(f"{label}: {value}"), soft_wrap=True)
    width = console.width if console.is_terminal else None
    table = status_table.table_of(dict(enumerate(statuses.items())))
    printed = laid_out(table.header, table.rows, width, dispensable=table.dispensable)
    lines = [GAP_TEXT.join(_cells(row, heading=not number)) for number, row in enumerate(printed)]
    for line in lines:
        line.rstrip()
    lines += [Text(one_line(line)) for line in status_table.details(statuses, printed)]
    lines.append(Text(counts.summary(statuses)))
    # Printing takes long compared to what is printed, so it is done once.
    console.print(Text("\n").join(lines), soft_wrap=True)
    console.print()


def _cells(cells: Sequence[str], *, heading: bool) -> list[Text]:
    return [Text(cell, style="bold" if heading else _style_of(cell.rstrip())) for cell in cells]


def _style_of(word: str) -> str:
    # A state is a word of its own, so nothing else can be mistaken for one.
    return STYLES.get(AppState[word], "") if word in AppState.__members__ else ""


def _above(statuses: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the directory of the experiment, which the directories of its jobs are in."""
    parents = {str(Path(status["local_dir"]).parent) for status in statuses.values()}
    return parents.pop() if len(parents) == 1 else ""


def print_requests(console: Console, job: Job | JobGroup, requests: Sequence[object]) -> None:
    """Print what would be submitted for a job."""
    rule(console, f"[DRYRUN] {'Task Group' if isinstance(job, JobGroup) else 'Task'} {job.id}")
    for task in job.task_list() if isinstance(job, JobGroup) else [job.task]:
        for line in _arguments(task):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    for request in requests:
        console.print(str(request), markup=False, highlight=False, soft_wrap=True)


def _arguments(task: Any) -> Iterator[str]:
    """Yield what a task calls, and with which arguments; of an inline script, its first lines."""
    stored = peek(as_text(task))
    if stored.target == SCRIPT:
        lines = masked_text(str(stored.arguments.get("inline") or "")).splitlines()
        yield from (f"  | {line}" for line in lines[:SCRIPT_LINES])
        if len(lines) > SCRIPT_LINES:
            yield f"  | … and {len(lines) - SCRIPT_LINES} lines more"
        return
    for path, value in flat(masked_task(stored)).items():
        shown = one_line(value)
        yield f"  {path} = {shown}" if path else f"Calls {shown} with"


def goodbye(console: Console, id: str, jobs: Sequence[str], theme: str, *, chosen: int = 0) -> None:
    """Print how to come back to an experiment later, with the job at ``chosen`` as the example."""
    first = jobs[chosen] if jobs else ""
    python = f"""
# To come back to this experiment, from any process:
experiment = run.Experiment.from_id({id!r})
experiment.status()
experiment.logs({first!r})
experiment.cancel({first!r})
"""
    typed = as_word(id)
    shell = f"""
# Or from a shell, jobs by their numbers or names:
nemorun experiment status {typed}
nemorun experiment logs {typed} {chosen}
nemorun experiment cancel {typed} {chosen}
"""
    for text, language in ((python, "python"), (shell, "shell")):
        if console.is_terminal:
            from rich.syntax import Syntax

            # Printed as a text, since lines of a Syntax are cut to the width of the terminal.
            coloured = Syntax(text, language, theme=theme).highlight(text)
            console.print(coloured, soft_wrap=True)
        else:
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_failure(console: Console, failure: str) -> None:
    """Print which job failed and why, then the last lines of its log."""
    first, line_break, rest = failure.partition("\n")
    text = Text(first, style="bold red").append(line_break + rest, style="not bold default")
    console.print(text, soft_wrap=True)


def rule(console: Console, text: str) -> None:
    """Print a line across the console with ``text`` in it."""
    console.rule(Text(text, style="bold magenta"))
