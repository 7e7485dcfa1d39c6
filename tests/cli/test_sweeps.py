"""One task run once for each combination of values, as one experiment."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.cli import commands
from tests.cli.commands import Result
from tests.cli.conftest import Several

import nemo_run as run
from nemo_run.cli.commands.sweeps import split_axes, values_of
from nemo_run.cli.values.errors import ArgumentParsingError
from nemo_run.exceptions import ConfigError
from nemo_run.run.sweep import add_sweep, cancel, failed, grid, labels, retry, summary

Command = Callable[..., Result]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-3,1e-4", ["1e-3", "1e-4"]),
        ("1..4", ["1", "2", "3", "4"]),
        ("4..1", ["4", "3", "2", "1"]),
        ("0..10..5", ["0", "5", "10"]),
        ("0.1..0.3..0.1", ["0.1", "0.2", "0.3"]),
        ("100,1..2", ["100", "1", "2"]),
        ("small(width=1, depth=2),big", ["small(width=1, depth=2)", "big"]),
        ("[1, 2],[3]", ["[1, 2]", "[3]"]),
        ("'a,b'", ["'a,b'"]),
        ("../data", ["../data"]),
        ("one", ["one"]),
    ],
)
def test_values_are_listed_and_ranged(text: str, values: list[str]) -> None:
    assert values_of(text) == values


@pytest.mark.parametrize("text", ["1..5..0", "1..5..-1", "1..1000000"])
def test_ranges_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ArgumentParsingError):
        values_of(text)


def test_words_with_one_value_are_not_swept() -> None:
    axes, fixed = split_axes(["rate=1,2", "name=x", "sizes=[1,2]"])
    assert (axes, fixed) == ({"rate": ["1", "2"]}, ["name=x", "sizes=[1,2]"])


def test_a_grid_has_every_combination_the_last_changing_fastest() -> None:
    assert grid({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


@pytest.mark.parametrize("axes", [{"a": []}, {"a": "text"}, {"a": [0] * 200, "b": [0] * 200}])
def test_axes_need_some_values_and_not_too_many(axes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        grid(axes)


def test_jobs_are_named_by_what_is_different_in_them() -> None:
    assert labels(grid({"rate": [0.1, 0.2]}), "fit") == ["rate=0.1", "rate=0.2"]
    assert labels([{"net": {"width": 1}}, {"net": {"width": 2}}], "fit") == ["fit-0", "fit-1"]
    assert labels([{"x": "a" * 80}] * 11, "fit")[-1] == "fit-10"
    assert labels([{"path": "/a/b"}], "fit") == ["path=_a_b"]


def work(x: int = 0, options: dict[str, int] | None = None) -> None:
    print("x is", x, options)


def test_a_sweep_can_be_made_from_python() -> None:
    task = run.Partial(work, options=run.Config(dict, deep=0))
    with run.Experiment("sweep", executor=run.LocalExecutor(), clean_mode=True) as experiment:
        ids = add_sweep(experiment, task, grid({"x": [1, 2], "options.deep": [5]}))
        tasks: list[Any] = list(experiment.tasks)
    assert ids == ["x=1,options.deep=5", "x=2,options.deep=5"]
    assert [(t.x, t.options.deep) for t in tasks] == [(1, 5), (2, 5)]
    assert task.options.deep == 0, "the task itself is left alone"


def test_wrong_sweeps_are_refused_before_anything_runs(several: Several) -> None:
    results = several(
        [
            ["net=small_net", "steps=1,many", "--sweep", "--yes"],
            ["steps=1,2", "--sweep", "--yes"],
            ["net=small_net", "steps+=1,2", "--sweep", "--yes"],
            ["net=small_net", "--sweep-file", "gone.yaml", "--yes"],
            ["net=small_net", "steps=1,2", "--sweep", "--direct"],
        ]
    )
    said = [
        "Failed to parse 'many' as int",
        "fit needs net",
        "Only = gives several values",
        "Config file not found",
        "--sweep and --direct exclude each other",
    ]
    for result, words in zip(results, said, strict=True):
        assert words in result.err
        assert (result.code, "REPORT" in result.out) == (2, False)


@pytest.mark.slow
def test_a_sweep_is_one_experiment_whose_failures_can_be_retried(
    fit: Command, nemorun: Command
) -> None:
    words = ("net=small_net", "net.width=4,8", "steps=1..2", "--sweep", "--name", "grid", "--yes")
    done = fit(*words, "run.executor=LocalExecutor(jobs_at_a_time=2)")
    assert done.code == 0, done.err
    assert done.lines[0] == "Sweep grid: 4 jobs over net.width (2) x steps (2)"
    assert done.lines[-1].endswith(": 4 jobs: 4 SUCCEEDED")
    logs = nemorun("experiment", "logs", "grid", "--grep", "REPORT", "--json").lines
    seen = [json.loads(json.loads(line)["line"].removeprefix("REPORT ")) for line in logs]
    assert sorted((r["net"]["width"], r["steps"]) for r in seen) == [(4, 1), (4, 2), (8, 1), (8, 2)]

    words = ("net=small_net", "fail='',boom", "steps=1..1", "--sweep", "--name", "my runs", "-y")
    failed = fit(*words)
    assert failed.code == 1
    assert failed.lines[0] == "Sweep my runs: 2 jobs over fail (2) x steps (1)"
    assert "2 jobs: 1 SUCCEEDED, 1 FAILED" in failed.out
    hint = shlex.split(failed.lines[-1].removeprefix("Retry those: nemorun "))
    retried = nemorun(*hint, "fail=''", "--json")
    assert (retried.code, list(retried.json()["jobs"].values())) == (0, ["SUCCEEDED"])


@pytest.mark.slow
def test_a_sweep_can_come_from_a_file(fit: Command, here: Path) -> None:
    (here / "points.yaml").write_text(
        "- {steps: 3, net: small_net}\n- {steps: 4, net: {_factory_: small_net, width: 9}}\n"
    )
    (here / "grid.toml").write_text('steps = [1, 2]\nnet = "small_net"\n')
    points = fit("--sweep-file", "points.yaml", "run_id=5", "--tail-logs", "--yes")
    assert points.code == 0, points.err
    assert '"width": 9' in points.out
    assert points.out.count('"run_id": 5') == 2
    plan = fit("--sweep-file", "grid.toml", "run_id=1,2", "--sweep", "--dryrun")
    assert (plan.code, plan.lines[0]) == (0, "Sweep fit: 4 jobs over run_id (2)")


def flaky(marker: str, x: int = 0) -> None:
    if x == 2 and not Path(marker).exists():
        Path(marker).touch()
        raise SystemExit(1)
    print("x is", x)


@pytest.mark.slow
def test_from_python_what_failed_is_retried(here: Path) -> None:
    task = run.Partial(flaky, marker=str(here / "marker"))
    executor = run.LocalExecutor(env_vars={"PYTHONPATH": str(Path(__file__).parents[2])})
    with run.Experiment("flaky", executor=executor, clean_mode=True) as experiment:
        ids = add_sweep(experiment, task, grid({"x": [1, 2, 3]}))
        experiment.run()
    first = experiment._id
    assert summary(experiment) == "3 jobs: 2 SUCCEEDED, 1 FAILED"
    assert failed(experiment) == [ids[1]]
    with retry(experiment) as again:
        again.run()
    assert summary(again) == "1 job: 1 SUCCEEDED"
    assert failed(run.Experiment.from_id(first)) == [ids[1]], "the old run stays as it is"
    with pytest.raises(ConfigError, match="nothing to run again"):
        retry(again)


@pytest.mark.slow
def test_from_python_a_sweep_is_cancelled_as_a_whole(here: Path) -> None:
    executor = run.LocalExecutor(jobs_at_a_time=1)
    with run.Experiment("long", executor=executor, clean_mode=True) as experiment:
        for number in range(3):
            experiment.add(run.Script(inline="sleep 600"), name=f"job{number}")
        experiment.run(detach=True)
    found = run.Experiment.from_title("long")
    cancel(found)
    assert summary(found) == "3 jobs: 3 CANCELLED"


@pytest.mark.slow
def test_a_detached_sweep_is_watched_cancelled_and_retried(fit: Command, nemorun: Command) -> None:
    place = "run.executor=LocalExecutor(jobs_at_a_time=2)"
    words = ("net=small_net", "steps=1..4", "--sweep", "--detach", "--yes", place)
    away = fit(*words, "--name", "away")
    assert away.code == 0, away.err
    assert " 4 jobs: " in away.lines[-1]
    assert nemorun("experiment", "wait", "away").out.endswith(": 4 jobs: 4 SUCCEEDED\n")
    ended = nemorun("experiment", "cancel", "away", "--all", "--json")
    assert set(ended.json().values()) == {"SUCCEEDED"}, "what has ended stays as it is"


@pytest.mark.slow
def test_a_sweep_that_runs_is_cancelled_by_a_command(nemorun: Command, here: Path) -> None:
    (here / "rest.py").write_text(
        "import time\n"
        "import nemo_run as run\n"
        "def rest(x: int): print('resting', flush=True); time.sleep(600)\n"
        "if __name__ == '__main__': run.cli.main(rest)\n"
    )
    words = ("x=1..3", "--sweep", "--detach", "--yes", "run.executor=LocalExecutor")
    assert commands.run([sys.executable, "rest.py", *words], cwd=here).code == 0
    deadline = patience.deadline(60)
    while "resting" not in nemorun("experiment", "logs", "rest", "0").out:
        assert time.monotonic() < deadline
    one = nemorun("experiment", "cancel", "rest", "--no-all")
    assert (one.code, one.lines[0]) == (0, "x=1: CANCELLED")
    assert "Others go on as they are: 2 jobs" in one.lines[1]
    ended = nemorun("experiment", "cancel", "rest", "--all", "--json")
    assert (ended.code, set(ended.json().values())) == (0, {"CANCELLED"})
    (listed,) = nemorun("experiment", "list", "--json").json()
    assert listed["states"] == {"CANCELLED": 3}


# Ends as if killed by somebody, as soon as one of its jobs was started.
CUT_SHORT = """
import os, signal, threading, time
from pathlib import Path
import nemo_run as run

def work(x: int): print('x is', x)

def die():
    while not list(Path(os.environ['NEMORUN_HOME']).rglob('_STATE/*.json')): time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == '__main__':
    threading.Thread(target=die, daemon=True).start()
    run.cli.main(work)
"""


@pytest.mark.slow
def test_what_a_killed_launcher_left_of_a_sweep_is_started_by_resume(
    nemorun: Command, here: Path
) -> None:
    (here / "cut.py").write_text(CUT_SHORT)
    words = ("x=1..12", "--sweep", "--yes", "--name", "cut", "run.executor=LocalExecutor")
    killed = commands.run([sys.executable, "cut.py", *words], cwd=here)
    assert killed.code == -9, killed.err
    states = nemorun("experiment", "status", "cut", "--json").json()["jobs"]
    assert "UNSUBMITTED" in {state["status"] for state in states.values()}
    resumed = nemorun("experiment", "resume", "cut")
    assert (resumed.code, resumed.lines[-1].endswith(": 12 jobs: 12 SUCCEEDED")) == (0, True)
    logs = nemorun("experiment", "logs", "cut", "--grep", "x is").lines
    assert len(logs) == 12, "each ran once"
