"""What is promised of words, options and the Python side of commands, a process for each promise.

The tables that other tests go through in one process are gone through here as users do.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli import commands
from tests.cli.test_where_a_command_runs import BASE, PLACED
from tests.cli.test_words_of_a_command import GIVEN, WRONG

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("what", [*GIVEN, *PLACED])
def test_words_reach_the_task(here: Path, what: str) -> None:
    words, expected = GIVEN.get(what) or PLACED[what]
    result = commands.script("fit.py", *(BASE if what in PLACED else ["--yes"]), *words, cwd=here)
    assert result.code == 0, result.err
    report = json.loads(result.out.partition("REPORT ")[2].splitlines()[0])
    assert {name: report[name] for name in expected} == expected


@pytest.mark.parametrize("what", WRONG)
def test_wrong_words_are_explained_and_run_nothing(here: Path, what: str) -> None:
    words, said = WRONG[what]
    result = commands.script("fit.py", *words, cwd=here)
    assert (result.code, said in result.err, "REPORT" in result.out) == (2, True, False), result.err
    assert "Traceback" not in result.err


SMALL = "net=small_net"
FAILING = (SMALL, "fail=on purpose", "--yes", "--rich-exceptions")

# A script, the words after it, how it ends, and what it says.
FACTS: dict[str, tuple[str, tuple[str, ...], int, str]] = {
    # Options.
    "verbose shows the way to an error": (
        *("fit.py", ("stpes=3", "--verbose"), 2),
        "Traceback (most recent call last)",
    ),
    "tracebacks can be drawn": (
        *("fit.py", (*FAILING, "--rich-theme", "vim"), 1),
        "Traceback (most recent call last) ─",
    ),
    "drawn tracebacks show locals": ("fit.py", (*FAILING, "--rich-show-locals"), 1, "locals ─"),
    "a short one shows them too": ("fit.py", (*FAILING, "--rich-traceback-short"), 1, "locals ─"),
    "a full one can be had again": (
        *("fit.py", (*FAILING, "--rich-traceback-short", "--rich-traceback-full"), 1),
        "locals ─",
    ),
    "tracebacks need not be drawn": (
        *("fit.py", (*FAILING, "--no-rich-exceptions"), 1),
        "Traceback (most recent call last):\n",
    ),
    "-v is --verbose": ("fit.py", ("stpes=3", "-v"), 2, "Traceback (most recent call last)"),
    "-l is --load": ("fit.py", (SMALL, "-l", "there"), 2, "--load is not implemented"),
    "-r is --repl": ("fit.py", (SMALL, "-r"), 0, "run_task()"),
    # Sweeps.
    "a sweep checks every value": (
        *("fit.py", (SMALL, "steps=1,many", "--sweep", "--yes"), 2),
        "Failed to parse 'many' as int",
    ),
    "a sweep needs all arguments": (
        *("fit.py", ("steps=1,2", "--sweep", "--yes"), 2),
        "fit needs net",
    ),
    "only = sweeps": (
        *("fit.py", (SMALL, "steps+=1,2", "--sweep", "--yes"), 2),
        "Only = gives several values",
    ),
    "a sweep file is there": (
        *("fit.py", (SMALL, "--sweep-file", "gone.yaml", "--yes"), 2),
        "Config file not found",
    ),
    "a sweep is not run directly": (
        *("fit.py", (SMALL, "steps=1,2", "--sweep", "--direct"), 2),
        "--sweep and --direct exclude each other",
    ),
    "a range may have one value": (
        *("fit.py", (SMALL, "steps=1..1", "--sweep", "--dryrun"), 0),
        "Sweep fit: 1 job over steps (1)",
    ),
    # Values.
    "a bool is yes or no": ("kinds.py", ("flag=maybe",), 2, "flag=maybe: Failed to parse 'maybe'"),
    "nan is a number": ("kinds.py", ("number=nan",), 0, "number: nan"),
    "so is inf": ("kinds.py", ("number=-inf",), 0, "number: -inf"),
    "none is None where anything goes": ("kinds.py", ("anything=none",), 0, "anything: None"),
    "true stays text there": ("kinds.py", ("anything=true",), 0, "anything: 'true'"),
    "a function is not called there": (
        *("kinds.py", ("anything=os.getcwd",), 0),
        "anything: 'os.getcwd'",
    ),
    "a value is taken there": ("kinds.py", ("anything=math.pi",), 0, "anything: 3.14159"),
    "a call is made there": ("kinds.py", ("anything=os.cpu_count()",), 0, "anything: "),
    "a partial is a value": (
        *("kinds.py", ("anything=Partial[os.path.join]",), 0),
        "anything: functools.partial(<function join",
    ),
    "a type of later is found": ("kinds.py", ("later=a/b",), 0, "later: PosixPath('a/b')"),
    "a file may have a blank": ("fit.py", ("net=@my net.yaml", "--yes"), 0, '"width": 5'),
    "an unknown suffix is text": (
        *("fit.py", ("net=@net.txt", "--yes"), 2),
        "net=@net.txt: ",
    ),
}


@pytest.mark.parametrize("what", FACTS)
def test_a_command_does_and_says(here: Path, what: str) -> None:
    (here / "my net.yaml").write_text("width: 5\n")
    script, words, code, said = FACTS[what]
    result = commands.script(script, *words, cwd=here)
    assert result.code == code, result.err
    assert said in result.out + result.err


BEGIN = """
import sys
import typer
import nemo_run as run
from nemo_run.cli import api

class Net:
    def __init__(self, width: int = 1): self.width = width

def fit(net: Net, steps: int = 1, text: "Gone" = "") -> None:
    print("fitted", net.width, steps, text)

@run.cli.factory
def small() -> run.Config[Net]:
    return run.Config(Net, width=4)

class Twice(run.Plugin):
    def setup(self, task, executor): pass

@run.cli.factory
def twice() -> run.Config[Twice]:
    return run.Config(Twice)
"""

# A program, the words after it, how it ends, and its last line.
PROGRAMS: dict[str, tuple[str, tuple[str, ...], int, str]] = {
    "an annotation that cannot be found lets text be text": (
        *("run.cli.main(fit)", ("net=small", "text=1", "--yes"), 0),
        "fitted 4 1 1",
    ),
    "an entrypoint is a main program": (
        "run.cli.entrypoint(fit).cli_entrypoint.main({'skip_confirmation': True})",
        *(("net=small",), 0),
        "fitted 4 1 ",
    ),
    "which exits as it should": (
        *("run.cli.entrypoint(fit).cli_entrypoint.main()", ("nett=small",), 2),
        "Error: nett=small: No parameter named 'nett' exists for fit. Did you mean 'net'?",
    ),
    "an entrypoint prints its help": (
        *("run.cli.entrypoint(fit).cli_entrypoint.help()", (), 0),
        "  fit net=small steps=1 --yes",
    ),
    "an entrypoint joins an application": (
        "app = typer.Typer(); app.callback()(lambda: None)\n"
        "run.cli.entrypoint(fit).cli_entrypoint.cli(app); app()",
        *(("fit", "net=small", "steps=3", "--yes"), 0),
        "fitted 4 3 ",
    ),
    "a context joins an application": (
        "app = typer.Typer(); app.callback()(lambda: None)\n"
        "api.RunContext.cli_command(app, 'go', fit, cmd_defaults={'skip_confirmation': True})\n"
        "app()",
        *(("go", "net=small", "steps=4"), 0),
        "fitted 4 4 ",
    ),
    "a context executes": (
        "context = api.RunContext(name='it', skip_confirmation=True)\n"
        "context.cli_execute(fit, ['net=small', 'steps=5', 'run.direct=yes'], 'task')",
        *((), 0),
        "fitted 4 5 ",
    ),
    "a context parses a task": (
        "print(api.RunContext(name='it').parse_fn(fit, ['net=small', 'steps=6']).steps)",
        *((), 0),
        "6",
    ),
    "a context parses plugins": (
        "print(api.RunContext(name='it').parse_plugin('[twice]'))",
        *((), 0),
        "[<Config[Twice()]>]",
    ),
    "the application takes --verbose in front": (
        "app = api.create_cli(add_verbose_callback=True); app()",
        *(("--verbose", "completion", "fish"), 0),
        "end",
    ),
    "and does not without being asked": (
        *("api.create_cli()()", ("--verbose", "completion", "fish"), 2),
        "",
    ),
    "the application of a program without commands has ours": (
        "app = api.create_cli(nested_entrypoints_creation=False)\n"
        "print(sorted(group.name for group in app.registered_groups))",
        *((), 0),
        "['devspace', 'experiment']",
    ),
    "a lazy script has words": (
        "task = run.LazyEntrypoint('script.py net=small steps=7')\n"
        "print(task.resolve().net.width, task.resolve().steps)",
        *((), 0),
        "4 7",
    ),
    "a lazy task reads a text": (
        "print(run.LazyEntrypoint(fit, yaml='steps: 8').resolve().steps)",
        *((), 0),
        "8",
    ),
    "a lazy task reads a config": (
        "from omegaconf import OmegaConf\n"
        "config = OmegaConf.create({'net': {'width': 9}, 'steps': '${net.width}'})\n"
        "task = run.LazyEntrypoint(fit, yaml=config).resolve()\n"
        "print(task.net.width, task.steps)",
        *((), 0),
        "9 9",
    ),
    "a lazy task reads a file": (
        "print(run.LazyEntrypoint(fit, yaml='task.yaml').resolve().steps)",
        *((), 0),
        "3",
    ),
    "factories are listed by namespace": (
        "print([f.__name__ for f in run.cli.list_factories('program.Net')])",
        *((), 0),
        "['small']",
    ),
    "extra arguments are anything": (
        "def loose(**more): print(more)\n"
        "run.cli.main(loose, cmd_defaults={'skip_confirmation': True})",
        *(("a=1", "b=[1, 'x']", "c=word", "d=none"), 0),
        "{'a': 1, 'b': [1, 'x'], 'c': 'word', 'd': None}",
    ),
    "verbose says what happens to jobs": (
        "import logging\n"
        "def level(): print(logging.getLogger('nemo_run').getEffectiveLevel() == logging.INFO)\n"
        "run.cli.main(level)",
        *(("--verbose", "--yes"), 0),
        "True",
    ),
    "and need not": (
        "import logging\n"
        "def level(): print(logging.getLogger('nemo_run').getEffectiveLevel() == logging.INFO)\n"
        "run.cli.main(level)",
        *(("--yes",), 0),
        "False",
    ),
    "a main function is named": (
        "def show(ctx: api.RunContext): print(ctx.name)\n"
        "run.cli.main(show, name='other', type='experiment', skip_confirmation=True)",
        *((), 0),
        "other",
    ),
    "a default factory is registered": (
        "def usual(): return run.Partial(fit, net=small(), steps=9)\n"
        "run.cli.entrypoint(fit, default_factory=usual)\n"
        "print(run.cli.resolve_factory(fit, 'default')().steps)",
        *((), 0),
        "9",
    ),
    "and can be named": (
        "def usual(): return run.Partial(fit, net=small(), steps=9)\n"
        "run.cli.entrypoint(fit, default_factory=usual); run.cli.main(fit)",
        *(("--factory", "default", "steps+=1", "--yes"), 0),
        "fitted 4 10 ",
    ),
    "as can that of a main function": (
        "def usual(): return run.Partial(fit, net=small(), steps=9)\n"
        "run.cli.main(fit, default_factory=usual)",
        *(("--factory", "default", "steps+=1", "--yes"), 0),
        "fitted 4 10 ",
    ),
    "a lazy task records operators and what is inside": (
        "task = run.LazyEntrypoint(fit, factory=lambda: run.Partial(fit, steps=10))\n"
        "task.steps -= 1; task.steps *= 2; task.net.width = 8; task.net.width += 1\n"
        "print(task.resolve().steps, task.resolve().net.width)",
        *((), 0),
        "18 9",
    ),
}

SCRIPT = BEGIN + "if __name__ == '__main__': run.cli.main(fit)\n"


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program_can(here: Path, what: str) -> None:
    text, words, code, last = PROGRAMS[what]
    (here / "program.py").write_text(BEGIN + text + "\n")
    (here / "script.py").write_text(SCRIPT)
    (here / "task.yaml").write_text("net: {width: 5}\nsteps: 3\n")
    result = commands.run([sys.executable, "program.py", *words], cwd=here)
    assert result.code == code, result.err
    said = (result.out if code == 0 else result.err).splitlines()
    assert said[-1] == last or not last


# Defaults of a script, and what it then says.
DEFAULTS = {
    "load": ("{'load': 'there'}", 2, "--load is not implemented"),
    "yaml": ("{'yaml': 'task.yaml', 'skip_confirmation': True}", 0, "fitted 5 3"),
    "repl": ("{'repl': True}", 0, "run_task()"),
    "detach": ("{'detach': True}", 2, "--detach needs an executor"),
    "verbose": ("{'verbose': True, 'factory': 'gone'}", 2, "Traceback (most recent call last)"),
    "to_yaml": ("{'to_yaml': 'out.yaml'}", 0, "Wrote out.yaml"),
    "to_toml": ("{'to_toml': 'out.toml'}", 0, "Wrote out.toml"),
}


@pytest.mark.parametrize("option", DEFAULTS)
def test_a_script_has_a_default_for(here: Path, option: str) -> None:
    defaults, code, said = DEFAULTS[option]
    (here / "task.yaml").write_text("net: {width: 5}\nsteps: 3\n")
    (here / "program.py").write_text(f"{BEGIN}\nrun.cli.main(fit, cmd_defaults={defaults})\n")
    words = [] if option == "yaml" else ["net=small"]
    result = commands.run([sys.executable, "program.py", *words], cwd=here)
    assert (result.code, said in result.out + result.err) == (code, True), result.err


def test_a_script_can_leave_logs_alone(here: Path) -> None:
    main = "run.cli.main(fit, cmd_defaults={'tail_logs': False, 'skip_confirmation': True})\n"
    (here / "program.py").write_text(f"{BEGIN}\nif __name__ == '__main__': {main}")
    program = [sys.executable, "program.py", "net=small", "run.executor=LocalExecutor"]
    quiet = commands.run(program, cwd=here)
    assert (quiet.code, "fitted" in quiet.out) == (0, False), quiet.err
    told = commands.run([*program, "--tail-logs"], cwd=here)
    assert (told.code, "fitted 4 1" in told.out) == (0, True), told.err


def test_a_script_has_a_help_text_of_its_own(here: Path) -> None:
    (here / "program.py").write_text(f"{BEGIN}\nrun.cli.main(fit, help='Fit it well.')\n")
    result = commands.run([sys.executable, "program.py", "--help"], cwd=here)
    assert result.lines[:3] == [
        "Usage: python program.py [OPTIONS] [KEY=VALUE ...]",
        "",
        "  Fit it well.",
    ]


def test_help_shows_what_a_command_starts_from(here: Path) -> None:
    result = commands.script("defaults.py", "--help", cwd=here)
    assert result.code == 0, result.err
    shown = result.out.partition("Arguments:\n")[2]
    assert "  net: Net = Net()\n" in shown
    assert "    net.width: int = 3\n    net.depth: int = 2\n  steps: int = 5\n" in shown
    (here / "program.py").write_text(f"{BEGIN}\nrun.cli.main(fit, default_factory=lambda: 1 / 0)\n")
    broken = commands.run([sys.executable, "program.py", "--help"], cwd=here)
    assert (broken.code, "  steps: int = 1\n" in broken.out) == (0, True), broken.err


FILES = {
    "a misspelled name": ("stpes: 3", "stpes=3 in task.yaml: No parameter named 'stpes'"),
    "a wrong value": ("steps: many", "steps=many in task.yaml: Failed to parse 'many' as int"),
    "a wrong option": ("run: {nme: x}", "run.nme=x in task.yaml: There is no run.nme."),
    "nothing to refer to": ("path: ${gone}", "task.yaml: Interpolation key 'gone' not found"),
}


@pytest.mark.parametrize("what", FILES)
def test_what_is_wrong_in_a_file_names_it(here: Path, what: str) -> None:
    text, said = FILES[what]
    (here / "task.yaml").write_text(f"{text}\n")
    result = commands.script("fit.py", SMALL, "--yaml", "task.yaml", "--yes", cwd=here)
    assert (result.code, said in result.err) == (2, True), result.err
    if what != "a wrong option":
        swept = commands.script("fit.py", SMALL, "--sweep-file", "task.yaml", "--yes", cwd=here)
        assert (swept.code, said in swept.err) == (2, True), swept.err


def greeting(word: str) -> str:
    return (
        "import nemo_run as run\n"
        "@run.cli.entrypoint(namespace='mine', skip_confirmation=True)\n"
        f"def greet(): print({word!r})\n"
    )


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"workspace.py": "public", "workspace_private.py": "private"}, "private"),
        ({"workspace.py": "public", "home/workspace.py": "at home"}, "public"),
        ({"home/workspace.py": "at home"}, "at home"),
        ({"home/workspace.py": "at home", "../workspace.py": "above"}, "at home"),
        ({"../workspace_private.py": "above"}, "above"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_the_first_workspace_file_counts(tmp_path: Path, files: dict[str, Any], said: str) -> None:
    place = tmp_path / "place"
    (place / "home").mkdir(parents=True)
    for name, word in files.items():
        (place / name).write_text(greeting(word))
    env = {"INCLUDE_WORKSPACE_FILE": "true", "NEMORUN_HOME": str(place / "home")}
    result = commands.nemorun("mine", "greet", cwd=place, env=env)
    assert (result.code, result.lines[-1]) == (0, said), result.err


def test_a_plug_in_that_fails_is_reported_and_left_out(here: Path) -> None:
    for name, text in {"broken": "1 / 0\n", "sound": greeting("hello")}.items():
        info = here / f"{name}-1.0.dist-info"
        info.mkdir()
        (here / f"{name}.py").write_text(text.replace("'mine'", "'sound'"))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[nemo_run.cli]\n{name} = {name}\n")
    result = commands.nemorun("sound", "greet", cwd=here, env={"PYTHONPATH": str(here)})
    assert (result.code, result.lines[-1]) == (0, "hello")
    assert "Plug-in broken (broken) cannot be loaded: division by zero" in result.err


@pytest.mark.parametrize("file", ["_CONFIG", "_TASKS"])
def test_a_damaged_experiment_names_the_file(here: Path, file: str) -> None:
    launch = (
        "import nemo_run as run\n"
        "with run.Experiment('hurt', executor=run.LocalExecutor()) as experiment:\n"
        "    experiment.add(run.Script(inline='echo'), name='job')\n"
        "    experiment.run()\n"
    )
    assert commands.run([sys.executable, "-c", launch], cwd=here).code == 0
    (made,) = commands.nemorun("experiment", "list", "--json", cwd=here).json()
    path = Path(made["path"]) / file
    path.write_text("damaged")
    result = commands.nemorun("experiment", "rerun", "hurt", cwd=here)
    assert result.code == 1, result.err
    assert result.err.startswith(f"Error: Cannot read '{path}': it is damaged (")
