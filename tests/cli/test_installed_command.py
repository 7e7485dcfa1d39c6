"""The application: ``nemorun``, ``nemo`` and ``python -m nemo_run``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli import commands
from tests.cli.commands import Result

pytestmark = pytest.mark.slow

Command = Callable[..., Result]

PLUGIN = '''
import nemo_run as run

@run.cli.entrypoint(namespace="lab")
def measure(x: int = 1, name: str = "a"):
    """Measure something.

    More about it.
    """
    print("measured", x, name)

@run.cli.entrypoint(namespace="lab.deep", name="dig-it", skip_confirmation=True)
def dig(x: int = 1):
    print("dug", x)

@run.cli.entrypoint(namespace="lab", enable_executor=False)
def simple(x: int = 1):
    """Do it here."""
    print("simple", x, simple.__io__.x)

@run.cli.entrypoint(namespace="lab", type="experiment")
def many(ctx: run.cli.RunContext, n: int = 2, code: int = 0):
    with run.Experiment(ctx.name, executor=ctx.executor) as experiment:
        for number in range(n):
            text = f"echo job {number}; exit {code}"
            experiment.add(run.Script(inline=text), name=f"job{number}")
        ctx.launch(experiment, sequential=True)
'''


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with commands, as far as Python can tell."""
    site = tmp_path / "site"
    info = site / "lab-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "lab.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nemo_run.cli]\nlab = lab\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site


def test_commands_of_installed_packages_run(lab: Path, nemorun: Command) -> None:
    done = nemorun("lab", "measure", "x=3", "--yes")
    assert (done.code, done.lines[-1]) == (0, "measured 3 a")
    nested = nemorun("lab", "deep", "dig-it", "x=3", program="nemo")
    assert (nested.code, nested.lines[-1]) == (0, "dug 3"), "not asked, since it does not want to"


def test_a_simple_command_is_parsed_and_called(lab: Path, nemorun: Command) -> None:
    assert nemorun("lab", "simple", "x=3").out == "simple 3 3\n"
    refused = nemorun("lab", "simple", "--yes")
    assert (refused.code, refused.err) == (
        2,
        "Error: There is no option --yes. Known: --docs, --help.\n",
    )


def test_groups_and_commands_are_listed(lab: Path, nemorun: Command) -> None:
    assert "  lab         [Module] lab" in nemorun("--help").lines
    group = nemorun("lab")
    assert "  measure  [Entrypoint] Measure something." in group.lines
    assert "  deep     [Module] deep" in group.lines
    assert group.code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lab", "mesure"], "lab has no command 'mesure'. Did you mean 'measure'?"),
        (["experimnt"], "There is no command 'experimnt'. Did you mean 'experiment'?"),
        (["--lzay"], "There is no option --lzay. Did you mean '--lazy'?"),
        (["--lazy"], "--lazy needs a command: nemorun --lazy GROUP COMMAND KEY=VALUE"),
        (["--lazy", "lab", "run.executor=LocalExecutor"], "--lazy needs a command: nemorun"),
        (["--lazy", "foo", "run.executor=LocalExecutor"], "--lazy needs a command: nemorun"),
        (["--lazy", "experiment"], "'experiment' cannot be run with --lazy: it runs no task."),
        (["experiment", "lits"], "There is no command 'lits' here. Did you mean 'list'?"),
        (["completion", "tcsh"], "There is no completion for 'tcsh'. Known: bash, fish, zsh."),
        (["completion", "bash", "zsh"], "'zsh' is one word too many."),
        (["--version", "extra"], "'extra' is one word too many after --version."),
        (["lab", "--zzz"], "There is no option --zzz."),
        (["lab", "deep", "--yes"], "There is no option --yes."),
        (["plan", "nothing"], "'nothing' names neither a script nor a command."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_not_known_is_an_error(
    lab: Path, nemorun: Command, words: list[str], said: str
) -> None:
    result = nemorun(*words)
    assert result.err.startswith(f"Error: {said}")
    assert result.code == 2


def test_docs_are_help_too(lab: Path, nemorun: Command) -> None:
    docs = nemorun("lab", "measure", "--docs")
    assert (docs.code, "More about it." in docs.out) == (0, True), docs.err
    assert docs.out == nemorun("lab", "measure", "--help", "--docs").out


def test_help_calls_the_program_as_the_user_did(nemorun: Command) -> None:
    assert nemorun("--help", program="nemo").out.startswith("Usage: nemo [--lazy]")


def test_the_package_can_be_run_as_a_module(here: Path) -> None:
    result = commands.run([sys.executable, "-m", "nemo_run", "--version"], cwd=here)
    assert (result.code, result.out) == (0, "0.12.0\n")


@pytest.mark.slow
@pytest.mark.parametrize("program", ["nemorun", "nemo"])
def test_lazy_commands_run_where_their_code_is(lab: Path, nemorun: Command, program: str) -> None:
    words = ("--lazy", "lab", "measure", "x=3", "name=b", "run.executor=LocalExecutor", "--yes")
    result = nemorun(*words, program=program)
    assert result.code == 0, result.err
    assert "measured 3 b" in result.out


@pytest.mark.slow
def test_a_lazy_command_need_not_be_importable_here(
    lab: Path, nemorun: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    there = f'run.executor.env_vars={{"PYTHONPATH": "{lab}"}}'
    result = nemorun("--lazy", "lab", "measure", "x=3", "run.executor=LocalExecutor", there, "-y")
    assert result.code == 0, result.err
    assert "measured 3 a" in result.out


def test_lazy_commands_cannot_be_looked_at(lab: Path, nemorun: Command) -> None:
    for flag in ("--dryrun", "--repl", "--direct"):
        result = nemorun("--lazy", "lab", "measure", flag)
        assert (result.code, f"--lazy and {flag} exclude each other" in result.err) == (2, True)
    nowhere = nemorun("--lazy", "lab", "measure")
    assert (nowhere.code, "run.executor=NAME" in nowhere.err) == (2, True)


def test_a_lazy_command_is_exported_as_the_command_itself_reads_it(
    lab: Path, nemorun: Command, here: Path
) -> None:
    assert nemorun("--lazy", "lab", "measure", "x=3", "--to-yaml", "lazy.yaml").code == 0
    assert "lazy.yaml" not in (here / "lazy.yaml").read_text()
    again = nemorun("lab", "measure", "--yaml", "lazy.yaml", "name=b", "--yes")
    assert (again.code, again.lines[-1]) == (0, "measured 3 b")


@pytest.mark.slow
def test_scripts_can_be_lazy_too(fit: Command) -> None:
    result = fit("--lazy", "net=small_net(width=3)", "steps=2", "run.executor=local", "--yes")
    assert result.code == 0, result.err
    assert '"width": 3' in result.out


@pytest.mark.slow
def test_an_experiment_launches_with_its_context(lab: Path, nemorun: Command) -> None:
    ran = nemorun("lab", "many", "n=3", "run.executor=LocalExecutor", "--tail-logs", "--yes")
    assert ran.code == 0, ran.err
    assert [f"job{n}/0 job {n}" in ran.out for n in range(3)] == [True] * 3
    failed = nemorun("lab", "many", "n=1", "code=3", "run.executor=LocalExecutor", "--yes")
    assert (failed.code, "Job job0 FAILED with exit code 3" in failed.err) == (1, True)
    dry = nemorun("lab", "many", "ctx.executor=LocalExecutor", "--dryrun")
    assert dry.code == 0, dry.err
    assert "[DRYRUN] Task job1" in dry.out
    here = nemorun("lab", "many", "n=1", "--name", "here", "--yes")
    assert (here.code, "\njob 0\n" in here.out) == (0, True), "without an executor in this process"
    assert nemorun("experiment", "list", "--ids").out.count("\n") == 3, "a dry run leaves none"


def test_a_workspace_file_is_found_from_below(
    here: Path, nemorun: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "workspace.py").write_text(
        "import nemo_run as run\n"
        "@run.cli.entrypoint(namespace='mine')\n"
        "def greet(name: str = 'you'): print('hello', name)\n"
    )
    below = here / "a" / "b"
    below.mkdir(parents=True)
    words = ("mine", "greet", "name=me", "--yes")
    on = commands.nemorun(*words, cwd=below, env={"INCLUDE_WORKSPACE_FILE": "true"})
    off = commands.nemorun(*words, cwd=below)
    assert (on.code, on.lines[-1]) == (0, "hello me")
    assert off.code == 2


def test_a_typer_application_has_the_same_commands(lab: Path, here: Path) -> None:
    program = [sys.executable, "-c", "from nemo_run.cli import create_cli; create_cli()()"]
    done = commands.run([*program, "lab", "measure", "x=3", "--yes"], cwd=here)
    assert (done.code, done.lines[-1]) == (0, "measured 3 a")
    wrong = commands.run([*program, "lab", "measure", "y=3"], cwd=here)
    assert (wrong.code, "No parameter named 'y'" in wrong.err) == (2, True)
    listed = commands.run([*program, "experiment", "list"], cwd=here)
    assert (listed.code, listed.out) == (0, "No experiments.\n")
    help = commands.run([*program, "--help"], cwd=here)
    assert all(name in help.out for name in ("experiment", "doctor", "lab"))


def test_warnings_of_others_are_shown_only_if_asked_for(lab: Path, nemorun: Command) -> None:
    (lab / "lab.py").write_text(PLUGIN + "\nimport warnings; warnings.warn('old', FutureWarning)\n")
    assert "FutureWarning" not in nemorun("lab").err
    assert "FutureWarning" in nemorun("lab", env={"NEMORUN_SHOW_WARNINGS": "1"}).err
