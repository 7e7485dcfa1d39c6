"""The live panel and the closing hint, on terminals of any size."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from torchx.specs import AppState

import nemo_run as run
from nemo_run.run import _display
from nemo_run.run._directory import JobState, MemberState
from nemo_run.run.job import Job


def shown(states: Sequence[AppState], height: int = 12) -> tuple[list[str], list[int]]:
    """Return the lines of a panel, and for which jobs the last line of the log was asked for."""
    jobs = [
        Job(id=f"job{number}", task=run.Script(inline="true"), executor=run.LocalExecutor())
        for number in range(len(states))
    ]
    members = [
        MemberState(handle="" if state is AppState.UNSUBMITTED else "h", state=state)
        for state in states
    ]
    asked: list[int] = []

    def last_line(index: int) -> str:
        asked.append(index)
        return f"line of {index}"

    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None, width=80, height=height)
    job_states = [JobState([member]) for member in members]
    panel = _display.Progress(console, "panel", jobs, lambda: job_states, last_line, live=True)
    console.print(panel)
    return file.getvalue().splitlines(), asked


def test_the_last_line_is_shown_of_jobs_that_run_only() -> None:
    lines, asked = shown([AppState.RUNNING, AppState.SUCCEEDED, AppState.UNSUBMITTED])
    assert len(lines) == 5
    assert "job0 RUNNING" in lines[1]
    assert "line of 0" in lines[1]
    assert asked == [0]


def test_of_more_jobs_than_fit_those_are_shown_that_run_or_failed() -> None:
    states = [AppState.SUCCEEDED] * 400 + [AppState.UNSUBMITTED] * 600
    states[300], states[500], states[999] = AppState.FAILED, AppState.RUNNING, AppState.RUNNING
    lines, asked = shown(states, height=12)
    assert len(lines) < 12
    text = "\n".join(lines)
    for job in ("job300 FAILED", "job500 RUNNING", "job999 RUNNING"):
        assert job in text
    assert "… and 593 UNSUBMITTED, 399 SUCCEEDED" in text
    assert asked == [500, 999]


def test_when_all_have_ended_all_are_shown() -> None:
    lines, asked = shown([AppState.SUCCEEDED] * 40, height=12)
    assert len(lines) == 42
    assert asked == []


def test_the_closing_hint_is_not_cut_on_a_narrow_terminal() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None, width=30)
    id = "a-title-with-many-words-in-it_1794775169631942114"
    _display.goodbye(console, id, ["job"], "monokai")
    assert f"from_id('{id}')" in file.getvalue()
    assert f"nemorun experiment logs {id} 0\n" in file.getvalue()


def test_the_closing_hint_can_be_pasted_into_a_shell() -> None:
    file = io.StringIO()
    _display.goodbye(Console(file=file), "it's mine_17", ["job"], "monokai")
    assert "nemorun experiment status 'it'\"'\"'s mine_17'\n" in file.getvalue()
