"""The programs in examples/ do what they say, each in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience

EXAMPLES = Path(__file__).parents[2] / "examples"

# The lines that a reader of the example waits for, as patterns, in order.
SHOWN: dict[str, tuple[str, ...]] = {
    "building": (
        r"a functools\.partial: True\n1 steps at 0\.1",
        r"as if made by hand: True",
        r"small with Optimizer\(rate=0\.9\)",
    ),
    "recipes": (
        r"the same config: True",
        r"a task: Partial of a Config",
        r"3 steps on Model\(width=4, optimizer=Optimizer\(rate=0\.25\)\)",
        r"refused: Control flow \(If\) is unsupported by auto_config\. \(recipes\.py, line \d+\)",
    ),
    "storing": (
        r"stored as: Config\nthe same task: True\nSettings\(rate=0\.5\) on /data",
        r"the same path: /data\nrefused: .* at <root>\.settings\.rate: ",
    ),
    "experiment": (
        r"\[DRYRUN\] Task one",
        r"planned and gone: True",
        r"numbers: \[1, 2\]\ncolours: \['blue', 'red'\]\nstates: \['SUCCEEDED', 'SUCCEEDED'\]",
        r"of each is known: .*executor, .*handle, job_id, local_dir, .*name, .*status",
        r"kept: .*_CONFIG, _DONE, .*_TASKS, _TUNNELS, _VERSION, __main__\.py, .*first, second",
        r"second/0 the first is done",
        r"its log: work 3\nits state: SUCCEEDED",
    ),
    "group_order": (r"(data|model)-[01]/0 (data|model) (left|right)", r"train-[01]/0 train"),
    "dependencies": (
        r"prepare +SUCCEEDED +0",
        r"left +SUCCEEDED +0",
        r"right +FAILED +3",
        r"join +CANCELLED +None not started: right FAILED",
        r"alarm +SUCCEEDED +0",
        r"as an exception: Job right FAILED with exit code 3",
        r"refused: .*secnod",
        r"refused: .*first.*second|refused: .*second.*first",
    ),
    "hello_world": (
        r"Dry run for task hello_world:greet",
        r"hello agent 7 and somebody 42",
        r"good morning agent 7 and somebody 42",
    ),
    "history": (
        r"jobs: \['work', 'work_1'\]",
        r"states: \['SUCCEEDED', 'SUCCEEDED'\]",
        r"rate 0\.2",
        r"in the task: True\nin the experiment: True",
        r"runs: 2\nfirst rate: 0\.2\nfirst rate: 0\.5",
    ),
    "sweep": (r"rate 0\.\d+, width \d+", r"4 jobs: rate=0\.1,width=8, .*rate=0\.01,width=16"),
    "group": (r"pair-0/0 serving", r"the group: FAILED"),
    "plugin": (r"2 steps, SMOKE_TEST=1", r"the task itself still has 1000 steps"),
    "reset": (r"reset_\d+\nrate is 0\.1\nreset_\d+\nrate is 0\.5",),
}


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def run_example(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *args],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience.seconds(100),
    )


def test_every_example_is_tested() -> None:
    tested = {*SHOWN, "configuration", "detach", "quickstart", "scripts"}
    # Beside the tests of what they need.
    tested |= {"dgxcloud", "docker_groups", "kubeflow", "old_directory"}

    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested


def test_configuration_runs_the_task_and_its_changed_copy() -> None:
    done = run_example("configuration")

    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines() == [
        "changed: True",
        "10 steps on Model(width=128, layers=8) with Optimizer(rate=0.1, momentum=0.5)",
        "10 steps on Model(width=8, layers=9) with Optimizer(rate=0.5, momentum=0.5)",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_shows_what_it_is_about(name: str) -> None:
    done = run_example(name)

    assert done.returncode == 0, done.stdout
    position = 0
    for pattern in SHOWN[name]:
        found = re.compile(pattern).search(done.stdout, position)
        assert found, f"no {pattern!r} in\n{done.stdout}"
        position = found.end()


@pytest.mark.slow
def test_the_functions_of_a_package_are_imported_by_its_name() -> None:
    done = run_example("hello_package/main")

    assert done.returncode == 0, done.stdout
    assert "greet/0 agent 7 meets stranger 1\n" in done.stdout
    assert "part/0 agent leaves\n" in done.stdout
    assert "tasks of: {'greetings'}\n" in done.stdout


@pytest.mark.slow
def test_scripts_of_every_kind_print_their_lines() -> None:
    done = run_example("scripts")

    assert done.returncode == 0, done.stdout
    for line in (
        "greet/0 hello, a name with  blanks; and $dollars, from a script\n",
        "python/0 45\n",
        "module/0 usage: ",
        "command/0 one\ncommand/0 two\n",
        "file/0 the file ran as ",
        "function/0 counted to 3\n",
        'written down: echo "hello, $1, from $PLACE"\n',
    ):
        assert line in done.stdout


@pytest.mark.slow
def test_quickstart_trains_and_picks_a_network_that_has_learnt() -> None:
    done = run_example("quickstart")

    assert done.returncode == 0, done.stdout
    best = re.search(r"best: learning rate (\S+) with (\S+)% on held-out data", done.stdout)
    assert best, done.stdout
    assert float(best[2]) > 95
    kept = re.search(r"The best network is in (\S+)", done.stdout)
    assert kept
    assert Path(kept[1]).is_file()


@pytest.mark.slow
def test_quickstart_ends_badly_when_a_task_does(tmp_path: Path) -> None:
    broken = (EXAMPLES / "quickstart.py").read_text().replace("rng.shuffle(data)", "data[9999]")
    script = tmp_path / "quickstart.py"
    script.write_text(broken)

    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=patience.seconds(100)
    )

    assert done.returncode == 1
    assert "quickstart: Job train-lr-" in done.stderr
    assert "IndexError" in done.stderr


@pytest.mark.slow
def test_a_detached_experiment_ends_while_nobody_looks_and_is_found_again() -> None:
    started = run_example("detach", "start", "2")
    assert started.returncode == 0, started.stdout
    assert "SUCCEEDED" not in started.stdout

    back = run_example("detach", "back")

    assert back.returncode == 0, back.stdout
    assert len(re.findall(r"^\d+ .* SUCCEEDED ", back.stdout, re.MULTILINE)) == 2
    assert "\nsecond 1\n" in back.stdout
    assert "\ntasks: [2, 2]\n" in back.stdout
    assert "This experiment was run already. Use reset() to run it again." in back.stdout


@pytest.mark.slow
def test_a_detached_experiment_can_be_stopped_by_another_process() -> None:
    run_example("detach", "start", "600")

    stopped = run_example("detach", "stop")

    assert stopped.returncode == 0, stopped.stdout
    assert "RUNNING" not in stopped.stdout
    assert "CANCELLED" in stopped.stdout
