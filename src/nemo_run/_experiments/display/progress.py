"""What is shown of jobs while they run: a live panel on a terminal, else a line for each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from torchx.specs import AppState

from nemo_run._experiments.display.counts import counted
from nemo_run._experiments.display.durations import elapsed
from nemo_run._experiments.display.panel import STYLES, waiting_for
from nemo_run._experiments.display.status_table import state_word
from nemo_run._experiments.display.tables import one_line
from nemo_run._experiments.store.states import JobState
from nemo_run._jobs.shown_text import plain
from nemo_run._jobs.wording import exit_words
from nemo_run.run.job import Job, JobGroup

PANEL_LINES = 4
"""How many lines of a terminal are not for jobs: the frame, those left out, and the cursor."""


class Progress:
    """Shows jobs while they run.

    The panel is as wide as the terminal and has one line for each job, whatever they print, so that
    nothing moves. It goes when it is left, unless ``keep``: the final table comes in its place.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        jobs: Sequence[Job | JobGroup],
        states: Callable[[], Sequence[JobState]],
        last_line: Callable[[int], str],
        *,
        live: bool,
        keep: bool = False,
    ) -> None:
        self._console = console
        self._title = title
        self._jobs = jobs
        self._states = states
        self._last_line = last_line
        self._shown: dict[int, AppState] = {}
        self._spinners: list[Any] = []
        self._live: Any = self._make_live(keep) if live else None

    def _make_live(self, keep: bool) -> Any:
        # Most of what a terminal needs is not needed without one, and takes long to import.
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinners = [Spinner("dots") for _ in self._jobs]
        return Live(self, console=self._console, transient=not keep)

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

        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=1)
        for most in (console.width // 3, max(12, console.width // 4)):
            table.add_column(no_wrap=True, overflow="ellipsis", max_width=most)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        states = self._states()
        ended = all(state.ended for state in states)
        chosen = _chosen(states, len(states) if ended else max(1, console.height - PANEL_LINES))
        waits = waiting_for(self._jobs, states)
        for index in chosen:
            table.add_row(*self._cells(index, states[index], waits[index]))
        if len(chosen) < len(states):
            others = Counter(state.state.name for state in states)
            others.subtract(states[index].state.name for index in chosen)
            left_out = {name: count for name, count in others.most_common() if count}
            table.add_row("", Text("… and", style="dim"), "", "", Text(counted(left_out), "dim"))
        yield Panel(table, title=Text(self._title), title_align="left")

    def _cells(self, index: int, state: JobState, waits: Sequence[str]) -> list[Any]:
        running = state.launched and not state.ended
        name = state.state.name
        said = self._last_line(index) if running else ""
        if not running or (state.reason and not said):
            said = _said(state)
        return [
            self._spinners[index] if running else Text(" "),
            Text(one_line(self._jobs[index].id)),
            Text(state_word(name, waits), style=STYLES.get(state.state, "")),
            Text(elapsed(state.duration_s), style="dim"),
            Text(one_line(plain(said)), style="dim" if running else ""),
        ]


def _said(state: JobState) -> str:
    words = [exit_words(state.exit_code) if state.exit_code else "", state.reason]
    return ": ".join(word for word in words if word)


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
    if state.exit_code and state.ended:
        line.append(f" ({exit_words(state.exit_code)})", style="red")
    if state.reason:
        line.append(f" {one_line(state.reason)}", style="dim")
    return line
