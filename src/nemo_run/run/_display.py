"""What an experiment shows: a table of states, and a live panel while jobs run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from torchx.specs import AppState, parse_app_handle

from nemo_run._shell import as_word
from nemo_run.run._counting import counted_parts
from nemo_run.run._directory import JobState
from nemo_run.run._durations import elapsed
from nemo_run.run._provenance import Provenance
from nemo_run.run.job import Job, JobGroup

if TYPE_CHECKING:
    from collections.abc import Callable

STYLES = {
    AppState.SUCCEEDED: "green",
    AppState.FAILED: "red",
    AppState.CANCELLED: "red",
    AppState.RUNNING: "cyan",
    AppState.UNKNOWN: "yellow",
}

PANEL_LINES = 4
"""How many lines of a terminal are not for jobs: the frame, those left out, and the cursor."""


def describe(
    job: Job | JobGroup, state: JobState, exp_dir: Path, provenance: Provenance | None
) -> dict[str, Any]:
    """Return what a status shows of one job."""
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
        "duration_s": state.duration_s,
        "message": state.message,
        **({"parts": [part._asdict() for part in state.parts]} if state.parts else {}),
        "code": provenance.code if provenance else "",
        "archive": archive.sha256 if archive else "",
    }


def as_json(statuses: Mapping[str, Mapping[str, Any]]) -> str:
    """Return statuses as JSON, states by their names."""
    plain = {job: {**status, "status": status["status"].name} for job, status in statuses.items()}
    return json.dumps(plain, indent=2)


def print_status(console: Console, title: str, statuses: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a block of lines for each job."""
    console.print()
    console.print(Text(f"Experiment Status for {title}", style="bold green"))
    # The same for all jobs: it is that of the directory they were launched from.
    code = next((status["code"] for status in statuses.values()), "")
    if code:
        console.print(Text(f"Code: {code}"), soft_wrap=True)
    for number, (job, status) in enumerate(statuses.items()):
        state: AppState = status["status"]
        rows = [
            ("Status", Text(state.name, style=STYLES.get(state, ""))),
            ("Executor", status["executor"]),
            ("Job id", status["job_id"]),
            ("Local Directory", status["local_dir"]),
            ("Remote Directory", status.get("remote_dir")),
            ("Archive", status["archive"]),
            ("Exit code", status["exit_code"]),
            ("Duration", elapsed(status["duration_s"])),
            ("Message", status["message"]),
            ("Parts", counted_parts(status.get("parts", ()))),
        ]
        lines = [Text(), Text(f"Task {number}: {job}", style="bold cyan")]
        for label, value in rows:
            if value not in (None, ""):
                line = Text(f"- {label}: ")
                line.append_text(value if isinstance(value, Text) else Text(str(value)))
                lines.append(line)
        # Printing takes long compared to what is printed, so it is done once for each job.
        console.print(Text("\n").join(lines), soft_wrap=True)
    console.print()


def print_requests(console: Console, job: Job | JobGroup, requests: Sequence[object]) -> None:
    """Print what would be submitted for a job."""
    rule(console, f"[DRYRUN] {'Task Group' if isinstance(job, JobGroup) else 'Task'} {job.id}")
    for request in requests:
        console.print(str(request), markup=False, highlight=False, soft_wrap=True)


class Progress:
    """Shows jobs while they run: a live panel on a terminal, a line for each change elsewhere."""

    def __init__(
        self,
        console: Console,
        title: str,
        jobs: Sequence[Job | JobGroup],
        states: Callable[[], Sequence[JobState]],
        last_line: Callable[[int], str],
        *,
        live: bool,
    ) -> None:
        self._console = console
        self._title = title
        self._jobs = jobs
        self._states = states
        self._last_line = last_line
        self._shown: dict[int, AppState] = {}
        self._spinners: list[Any] = []
        self._live: Any = self._make_live() if live else None

    def _make_live(self) -> Any:
        # Most of what a terminal needs is not needed without one, and takes long to import.
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinners = [Spinner("dots") for _ in self._jobs]
        return Live(self, console=self._console, transient=False)

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def changed(self, index: int) -> None:
        """Take note of a change to the job at ``index``."""
        if self._live is not None:
            return
        state = self._states()[index]
        worth_a_line = state.ended or state.state is AppState.RUNNING
        if worth_a_line and self._shown.get(index) is not state.state:
            self._shown[index] = state.state
            self._console.print(_line(self._jobs[index], state), soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.panel import Panel
        from rich.table import Table

        table = Table.grid(padding=(0, 1))
        states = self._states()
        ended = all(state.ended for state in states)
        chosen = _chosen(states, len(states) if ended else max(1, console.height - PANEL_LINES))
        for index in chosen:
            job, state = self._jobs[index], states[index]
            running = state.launched and not state.ended
            mark: Any = self._spinners[index] if running else Text(" ")
            last = self._last_line(index) if running else ""
            # A column of nothing at all makes the one before it too narrow.
            tail = Text(last or " ", style="dim", no_wrap=True, overflow="ellipsis")
            table.add_row(mark, _line(job, state), tail)
        if len(chosen) < len(states):
            others = Counter(state.state.name for state in states)
            others.subtract(states[index].state.name for index in chosen)
            left_out = [(name, count) for name, count in others.most_common() if count]
            counts = ", ".join(f"{count} {name}" for name, count in left_out)
            table.add_row(Text(" "), Text(f"… and {counts}", style="dim"), Text(" "))
        yield Panel(table, title=Text(self._title), title_align="left", expand=False)


def _chosen(states: Sequence[JobState], room: int) -> list[int]:
    """Return which jobs are shown, in their order: those that run, and what went wrong."""

    def rank(index: int) -> int:
        state = states[index]
        if not state.ended:
            return 0 if state.launched else 2
        return 3 if state.state is AppState.SUCCEEDED else 1

    return sorted(sorted(range(len(states)), key=rank)[:room])


def _line(job: Job | JobGroup, state: JobState) -> Text:
    line = Text(f"{job.id} ")
    line.append(state.state.name, style=STYLES.get(state.state, ""))
    if state.duration_s is not None:
        line.append(f" {elapsed(state.duration_s)}", style="dim")
    if state.exit_code:
        line.append(f" (exit code {state.exit_code})", style="red")
    if state.message:
        line.append(f" {state.message}", style="dim")
    return line


def goodbye(console: Console, id: str, jobs: Sequence[str], theme: str) -> None:
    """Print how to come back to an experiment later."""
    first = jobs[0] if jobs else ""
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
nemorun experiment logs {typed} 0
nemorun experiment cancel {typed} 0
"""
    for text, language in ((python, "python"), (shell, "shell")):
        if console.is_terminal:
            from rich.syntax import Syntax

            # Printed as a text, since lines of a Syntax are cut to the width of the terminal.
            coloured = Syntax(text, language, theme=theme).highlight(text)
            console.print(coloured, soft_wrap=True)
        else:
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def rule(console: Console, text: str) -> None:
    """Print a line across the console with ``text`` in it."""
    console.rule(Text(text, style="bold magenta"))
