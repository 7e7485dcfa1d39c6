"""What commands print, letter by letter: for terminals wide and narrow, and for pipes.

With UPDATE_SNAPSHOTS=1 the snapshots are written instead; look at the difference before committing.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests import patience
from tests.cli import commands
from tests.cli.commands import Result

from nemo_run._experiments.display.tables import cut, display_width, fitted, one_line
from nemo_run.cli import devspace as cli_devspace
from nemo_run.cli import experiments as cli_experiments
from nemo_run.cli import ray as cli_ray
from nemo_run.cli.terminal.screen import Screen

Command = Callable[..., Result]

SNAPSHOTS = Path(__file__).parent / "snapshots"
SCREEN_LINES = 50


def check(name: str, text: str) -> None:
    """Compare with a snapshot."""
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_help_of_the_application(nemorun: Command) -> None:
    check("help", nemorun("--help").out)
    assert nemorun().out == nemorun("-h").out


def test_the_help_of_experiment_commands(nemorun: Command) -> None:
    check("experiment-help", nemorun("experiment").out)
    check("experiment-logs-help", nemorun("experiment", "logs", "--help").out)


HELPS = [
    *(["experiment", name] for name in cli_experiments.COMMANDS),
    *(["devspace", name] for name in cli_devspace.COMMANDS),
    *(["ray", name] for name in cli_ray.COMMANDS),
    *([], ["experiment"], ["devspace"], ["ray"], ["plan"], ["doctor"]),
]


@pytest.mark.slow
@pytest.mark.parametrize("words", HELPS, ids=lambda words: " ".join(words) or "nemorun")
def test_every_help_fits_a_screen_and_has_an_example(nemorun: Command, words: list[str]) -> None:
    for width in (80, 40):
        result = nemorun(*words, "--help", env={"COLUMNS": str(width)})
        assert result.code == 0
        text, _, example = result.out.partition("Example:\n")
        assert example, "which is one line, to be copied"
        assert max(map(len, text.splitlines())) <= width
    assert len(nemorun(*words, "--help").lines) < SCREEN_LINES


def test_the_help_of_a_script(fit: Command) -> None:
    shown = fit("--help")
    check("fit-help", shown.out)
    assert shown.code == 0
    assert len(shown.lines) < 70
    docs = fit("--help", "--docs", env={"COLUMNS": "60"})
    check("fit-help-docs-narrow", docs.out)


def stored(home: Path, title: str, number: int, states: Mapping[str, float | None]) -> None:
    """Store an experiment as it is found on disk, with times that do not change."""
    path = home / "experiments" / title / f"{title}_{1_767_225_600 + number}000000000"
    (path / "_STATE").mkdir(parents=True)
    (path / "_CONFIG").touch()
    for index, (state, took) in enumerate(states.items()):
        member = {
            "state": state,
            "handle": f"local_persistent://nemo_run/{title}-{index}" if took is not None else "",
            "exit_code": {"SUCCEEDED": 0, "FAILED": 1}.get(state),
            "started_at": 1_767_225_600 + number if took is not None else None,
            "ended_at": 1_767_225_600 + number + took if took is not None else None,
        }
        (path / "_STATE" / f"{index}.json").write_text(json.dumps({"members": [member]}))


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "past"
    stored(path, "train", 0, {"SUCCEEDED": 3.25})
    stored(path, "sweep-of-many-things", 60, {"FAILED": 3725.0, "CANCELLED": None})
    stored(path, "日本", 120, {"UNSUBMITTED": None})
    labels = path / "experiments" / "train" / "train_1767225600000000000" / "_STATE/labels.json"
    labels.write_text('{"tags": ["best", "paper"], "note": "\\u001b[31mred"}')
    return {"NEMORUN_HOME": str(path), "TZ": "UTC"}


@pytest.mark.parametrize("columns", ["", "100", "60", "20"])
def test_lists_fit_the_terminal(nemorun: Command, home: dict[str, str], columns: str) -> None:
    env = {**home, **({"COLUMNS": columns} if columns else {})}
    shown = nemorun("experiment", "list", env=env)
    check(f"list-{columns or 'pipe'}", shown.out)
    if columns:
        assert max(map(display_width, shown.lines[:-1])) <= int(columns)


def test_data_for_programs_is_as_it_was(nemorun: Command, home: dict[str, str]) -> None:
    text = nemorun("experiment", "list", "--json", env=home).out
    check("list-json", text.replace(home["NEMORUN_HOME"], "<home>"))


LAUNCH = """
import nemo_run as run

def launch(rate):
    executor = run.LocalExecutor(env_vars={"API_TOKEN": "hunter2", "PLAIN": "x"})
    with run.Experiment("two", executor=executor, check=False) as experiment:
        script = run.Script(inline=f"echo {rate}", env={"RATE": rate})
        first = experiment.add(script, name="train")
        experiment.add(run.Script(inline="exit 3"), name="eval", dependencies=[first])
        experiment.run()

launch("0.1")
launch("0.2")
"""

# What is different each time, and on each machine.
CHANGING = {
    r"_\d{19}": "_<time>",
    r"-nr-[0-9a-f]{20}": "-nr-<hash>",
    r"\d{4}-\d\d-\d\d \d\d:\d\d": "<time>",
    r"\d+\.\d s +": "<took>  ",
    r"\d+\.\d s\b": "<took>",
    r"\d+(\.\d)? [KMG]iB *": "<memory>  ",
    r"(TOOK|CPU|MEMORY) +": r"\1  ",  # as wide as the figures below it
    r"By: .*": "By: <somebody>",
    r"\d+\.\d GB": "<some> GB",
    r"0\.12\.0, Python [\d.]+": "<version>",
    r"PYTHONPATH=.*": "PYTHONPATH=<scripts>",
    r" +ok +extra .*\n": "",
    r" +\n": "\n",
}


def stable(text: str, here: Path) -> str:
    """Return what a command printed without what is different each time."""
    homes = {os.environ["NEMORUN_HOME"]: "<home>", str(here): "<here>"}
    for place, name in {
        **homes,
        str(commands.SCRIPTS): "<scripts>",
        sys.executable: "python",
    }.items():
        text = text.replace(place, name)
    for pattern, name in CHANGING.items():
        text = re.sub(pattern, name, text)
    return text


@pytest.mark.slow
def test_what_is_known_of_experiments(nemorun: Command, here: Path) -> None:
    (here / "launch.py").write_text(LAUNCH)
    assert commands.run([sys.executable, "launch.py"], cwd=here).code == 0
    check("status", stable(nemorun("experiment", "status", "two").out, here))
    check("show", stable(nemorun("experiment", "show", "two").out, here))
    newest, oldest = nemorun("experiment", "list", "--ids").lines
    check("diff", stable(nemorun("experiment", "diff", oldest, newest).out, here))


@pytest.mark.slow
def test_what_would_be_submitted(nemorun: Command, here: Path) -> None:
    words = ("plan", str(commands.SCRIPTS / "fit.py"), "net=small_net", "run.executor=local")
    check("plan", stable(nemorun(*words).out, here))


@pytest.mark.slow
def test_what_the_doctor_says(nemorun: Command, here: Path) -> None:
    check("doctor", stable(nemorun("doctor", "LocalExecutor", "SlurmExecutor").out, here))


@pytest.mark.usefixtures("installed_facts")
def test_the_help_of_a_group(nemorun: Command) -> None:
    check("group-help", nemorun("facts").out)
    check("group-help-narrow", nemorun("facts", "--help", env={"COLUMNS": "40"}).out)


def test_colours_are_for_terminals_that_want_them(home: dict[str, str]) -> None:
    argv = [str(commands.BIN / "nemorun"), "experiment", "list"]
    env = {**home, "COLUMNS": "100"}
    coloured = commands.on_a_terminal(argv, env)
    assert "\033[31mFAILED\033[0m" in coloured
    plain = commands.on_a_terminal(argv, {**env, "NO_COLOR": "1"})
    assert "\033" not in plain
    assert re.sub("\033\\[[0-9;]*m", "", coloured) == plain
    assert "\033" not in commands.on_a_terminal(argv, {**env, "TERM": "dumb"})


def test_texts_of_others_cannot_steer_the_terminal(nemorun: Command, home: dict[str, str]) -> None:
    found = nemorun("experiment", "note", "train", env=home)
    assert found.out.endswith(": \\x1b[31mred\n")


def test_the_question_is_asked_on_a_terminal() -> None:
    main, side = pty.openpty()
    script = [sys.executable, str(commands.SCRIPTS / "kinds.py"), "--no-yes"]
    process = subprocess.Popen(script, stdin=side, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(side)
    os.write(main, b"y\n")
    out, err = process.communicate(timeout=patience.seconds(60))
    os.close(main)
    assert (process.returncode, b"Continue? [y/N]" in err) == (0, True)
    assert b"integer: 0" in out


@pytest.mark.parametrize(
    ("available", "widths"),
    [
        (None, [30, 9, 40]),
        (83, [30, 9, 40]),
        (70, [30, 9, 27]),
        (67, [30, 9, 24]),
        (60, [30, 9, 17]),
        (56, [30, 9, 0]),
        (35, [30, 0, 0]),
        (20, [20, 0, 0]),
    ],
)
def test_columns_are_cut_then_dropped_from_the_right(
    available: int | None, widths: list[int]
) -> None:
    assert fitted([30, 9, 40], available) == widths


def test_widths_are_those_people_see() -> None:
    assert [display_width(text) for text in ("abc", "日本", "e\u0301")] == [3, 4, 1]
    assert [cut("日本語", width) for width in (6, 5, 2, 1)] == ["日本語", "日本…", "…", "…"]
    assert one_line("a\n b\x1b[0m") == "a b\\x1b[0m"


def test_a_pipe_has_no_width(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        assert (Screen(file, {}).width, Screen(file, {}).coloured) == (None, False)
        assert Screen(file, {"COLUMNS": "33"}).width == 33
