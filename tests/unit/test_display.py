"""The live panel and the closing hint, on terminals of any size."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from rich.console import Console
from torchx.specs import AppState

import nemo_run as run
from nemo_run._experiments.display import panel as display_panel
from nemo_run._experiments.display.progress import Progress
from nemo_run._experiments.display.tables import display_width
from nemo_run._experiments.store.states import JobState, MemberState
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
    panel = Progress(console, "panel", jobs, lambda: job_states, last_line, live=True)
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
    assert re.search("… and +593 WAITING, 399 SUCCEEDED", text)
    assert asked == [500, 999]


def test_when_all_have_ended_all_are_shown() -> None:
    lines, asked = shown([AppState.SUCCEEDED] * 40, height=12)
    assert len(lines) == 42
    assert asked == []


def test_the_closing_hint_is_not_cut_on_a_narrow_terminal() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None, width=30)
    id = "a-title-with-many-words-in-it_1794775169631942114"
    display_panel.goodbye(console, id, ["job"], "monokai")
    assert f"from_id('{id}')" in file.getvalue()
    assert f"nemorun experiment logs {id} 0\n" in file.getvalue()


def test_the_closing_hint_can_be_pasted_into_a_shell() -> None:
    file = io.StringIO()
    display_panel.goodbye(Console(file=file), "it's mine_17", ["job"], "monokai")
    assert "nemorun experiment status 'it'\"'\"'s mine_17'\n" in file.getvalue()


def printed(statuses: dict[str, dict[str, object]], width: int) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None, width=width)
    display_panel.print_status(console, "x_17", statuses)
    return file.getvalue().splitlines()


def status_of(number: int, **changes: object) -> dict[str, object]:
    return {
        "status": AppState.SUCCEEDED,
        "executor": "LocalExecutor",
        "job_id": "job-nr-0123456789abcdef0123",
        "local_dir": f"/home/ada/x_17/job{number}",
        "exit_code": 0,
        "duration_s": 61.0,
        "message": "",
        "code": "",
        **changes,
    }


def test_eight_jobs_are_a_table_of_eight_lines() -> None:
    lines = printed({f"job{number}": status_of(number) for number in range(8)}, width=80)
    assert len(lines) == 2 + 1 + 1 + 8 + 1 + 1
    assert "Directory: /home/ada/x_17" in lines


def test_a_narrow_terminal_shows_the_whole_reason_below_the_table() -> None:
    why = "ModuleNotFoundError: No module named 'a_module_that_is_not_installed'"
    bad = status_of(1, status=AppState.FAILED, exit_code=1, message=why)
    lines = printed({"good": status_of(0), "bad": bad}, width=60)
    assert all(len(line) <= 60 for line in lines if not line.startswith("bad: "))
    assert f"bad: {why}" in lines
    assert f"bad: {why}" not in printed({"good": status_of(0), "bad": bad}, width=160)


def test_what_a_job_waits_for_is_shown_in_the_place_of_its_state() -> None:
    waits = status_of(2, status=AppState.UNSUBMITTED, exit_code=None, duration_s=None)
    lines = printed({"join": {**waits, "waits_for": ["left", "right"]}}, width=80)
    assert any("join  waits for left, right" in line for line in lines)
    lines = printed({"join": {**waits, "waits_for": ["a" * 30, "b"]}}, width=80)
    assert any("join  waits for 2 jobs" in line for line in lines)


def test_the_id_that_a_queue_gave_is_in_the_table() -> None:
    assert any(" 4711 " in line for line in printed({"a": status_of(0, job_id="4711")}, width=80))


@pytest.mark.parametrize("width", [40, 60, 120])
def test_long_lines_of_logs_move_nothing(width: int) -> None:
    job = Job(id="job", task=run.Script(inline="true"), executor=run.LocalExecutor())
    state = JobState([MemberState(handle="h", state=AppState.RUNNING)])
    shapes = set()
    for line in ("", "short", "x" * 500, "\x1b[31mred\x1b[0m\tand " + "日本" * 90, "10%\r100%"):
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, color_system=None, width=width)
        said = {0: line}
        progress = Progress(console, "t", [job], lambda: [state], said.__getitem__, live=True)
        console.print(progress)
        lines = file.getvalue().splitlines()
        shapes.add((len(lines), tuple(display_width(text) for text in lines)))
        assert "\x1b" not in file.getvalue()
    assert shapes == {(3, (width,) * 3)}
