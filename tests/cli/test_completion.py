"""Completion: what a shell is told, and that real shells understand it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli import commands
from tests.cli.commands import Result
from tests.cli.test_installed_command import PLUGIN

from nemo_run.cli.commands.completion import SCRIPTS, _split, candidates
from nemo_run.cli.experiments import COMMANDS
from nemo_run.devspace._records import Record

pytestmark = pytest.mark.slow

Command = Callable[..., Result]


def stored(home: Path, title: str, number: int) -> None:
    directory = home / "experiments" / title / f"{title}_{number:019}"
    (directory / "_STATE").mkdir(parents=True)
    (directory / "_CONFIG").touch()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEMORUN_HOME", str(tmp_path))
    for title, number in (("alpha", 1), ("alpha", 2), ("beta", 3)):
        stored(tmp_path, title, number)
    return tmp_path


def test_commands_options_and_experiments_are_offered(home: Path) -> None:
    assert candidates([], "e") == ["experiment"]
    assert candidates(["experiment"], "") == sorted([*COMMANDS, "--help"])
    assert candidates(["experiment", "status"], "l") == ["latest"]
    assert candidates(["experiment", "status"], "al") == [
        "alpha",
        "alpha_0000000000000000001",
        "alpha_0000000000000000002",
    ]
    assert candidates(["experiment", "list"], "") == ["alpha", "beta"]
    assert candidates(["experiment", "list", "--state"], "F") == ["FAILED"]
    assert candidates(["experiment", "logs"], "--f") == ["--follow"]
    (home / "experiments/beta/beta_0000000000000000003/_TASKS").write_text("[]")
    assert candidates(["experiment", "rerun", "beta", "--job"], "") == []
    assert candidates(["completion"], "") == ["bash", "fish", "zsh"]
    assert "--help" in candidates(["nonsense"], "")


def test_names_and_options_of_devspaces_are_offered() -> None:
    record = Record(name="dev", label="x", directory="/x", workspace="/x", executor="LocalExecutor")
    record.save()
    assert candidates(["devspace"], "st") == ["stop"]
    assert candidates(["devspace", "stop"], "") == ["dev"]
    assert candidates(["devspace", "connect"], "d") == ["dev"]
    assert candidates(["devspace", "launch"], "--i") == ["--idle"]
    assert candidates(["devspace", "launch", "--editor"], "c") == ["code", "cursor"]
    assert candidates(["devspace", "nonsense"], "") == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nemorun exp", ["nemorun", "exp"]),
        ("nemorun exp ", ["nemorun", "exp", ""]),
        ("nemorun 'a b", ["nemorun", "a b"]),
        ('nemorun "a b', ["nemorun", "a b"]),
        ("nemorun 'a ", ["nemorun", "a "]),
        (r"nemorun a\ ", ["nemorun", "a "]),
        ("nemorun a\\", ["nemorun", "a\\"]),
        ("", [""]),
    ],
)
def test_the_beginning_of_a_line_is_split(line: str, words: list[str]) -> None:
    assert _split(line) == words


FACTORIES = """
class Net:
    def __init__(self, width: int = 1): ...

@run.cli.entrypoint(namespace="lab")
def fit(net: Net, **more: int): ...

@run.cli.factory
def small() -> run.Config[Net]: return run.Config(Net)

@run.cli.factory(target=fit)
def recipe() -> run.Partial[fit]: return run.Partial(fit)
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    info = tmp_path / "lab-1.0.dist-info"
    info.mkdir()
    (tmp_path / "lab.py").write_text(PLUGIN + FACTORIES)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nemo_run.cli]\nlab = lab\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_commands_and_parameters_of_plugins_are_offered(lab: Path, nemorun: Command) -> None:
    def offered(*words: str) -> list[str]:
        return nemorun("__complete", "fish", *words).lines

    assert offered("la") == ["lab"]
    assert offered("lab", "") == ["--help", "deep", "fit", "many", "measure", "simple"]
    assert offered("lab", "measure", "") == ["name=", "run.executor=", "run.plugins=", "x="]
    assert "--detach" in offered("lab", "measure", "--de")
    assert offered("lab", "fit", "net=") == ["net=", "net=small"]
    assert offered("lab", "fit", "--factory", "") == ["recipe"]
    assert offered("lab", "fit", "--yaml", "") == [], "which leaves it to the shell"
    assert "run.executor=LocalExecutor" in offered("lab", "fit", "run.executor=L")
    assert offered("doctor", "Loc") == ["LocalExecutor"]


def bash_replies(line: str) -> list[str]:
    """Ask a real bash what it would offer for a line."""
    program = (
        f'PATH={commands.BIN}:$PATH; eval "$(nemorun completion bash)"; '
        'COMP_LINE="$1"; COMP_POINT=${#1}; compopt() { :; }; _nemorun nemorun; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program, "bash", line], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_bash_completes(home: Path) -> None:
    assert bash_replies("nemorun experiment log") == ["logs"]
    assert bash_replies("nemorun experiment logs be") == ["beta", "beta_0000000000000000003"]


def test_bash_inserts_names_so_that_they_stay_one_word(home: Path) -> None:
    stored(home, "my * $HOME", 4)
    replies = bash_replies(r"nemorun experiment logs my\ ")
    assert replies[0] == r"my\ \*\ \$HOME"
    (quoted, _) = bash_replies("nemorun experiment logs 'm")
    for reply in (replies[0], f"'{quoted}'"):
        done = subprocess.run(
            ["bash", "-c", f"printf '%s|' {reply}"], capture_output=True, text=True, check=True
        )
        assert done.stdout == "my * $HOME|"


# What zsh would offer, as it calls the function that it found in a file of its own.
ZSH = """
compadd() { print -rl -- "${@:$@[(i)--]+1}" }
_files() { print FILES }
fpath=($1 $fpath)
autoload -Uz _nemorun
shift
words=("$@") CURRENT=$#
_nemorun
"""


def zsh_replies(directory: Path, line: str) -> list[str]:
    (directory / "_nemorun").write_text(SCRIPTS["zsh"])
    program = f"PATH={commands.BIN}:$PATH; {ZSH}"
    words = line.split(" ")
    done = subprocess.run(
        ["zsh", "-f", "-c", program, "zsh", directory, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def fish_replies(line: str) -> list[str]:
    program = f"set PATH {commands.BIN} $PATH; nemorun completion fish | source; complete -C $argv"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program, line], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.needs("zsh")
def test_zsh_completes_from_the_first_time_on(home: Path, tmp_path: Path) -> None:
    assert zsh_replies(tmp_path, "nemorun experiment log") == ["logs"]
    beta = ["beta", "beta_0000000000000000003"]
    assert zsh_replies(tmp_path, "nemorun experiment logs be") == beta
    assert zsh_replies(tmp_path, "nemorun plan ./") == ["FILES"]


@pytest.mark.needs("fish")
def test_fish_completes(home: Path, here: Path) -> None:
    (here / "train.py").touch()
    assert fish_replies("nemorun experiment log") == ["logs"]
    assert fish_replies("nemo experiment logs be") == ["beta", "beta_0000000000000000003"]
    assert fish_replies("nemorun plan ./tr") == ["./train.py"]


@pytest.mark.parametrize(
    "shell",
    [
        "bash",
        pytest.param("zsh", marks=pytest.mark.needs("zsh")),
        pytest.param("fish", marks=pytest.mark.needs("fish")),
    ],
)
def test_a_script_is_printed_for_each_shell(shell: str, nemorun: Command) -> None:
    script = nemorun("completion", shell).out
    assert script == SCRIPTS[shell]
    subprocess.run([shell, "-n", "-c", script], check=True)
