"""What a job prints does not steer the terminal of the user who looks at it."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli import commands
from tests.conftest import in_home

import nemo_run as run
from nemo_run._jobs.shown_text import for_terminal, show
from nemo_run.cli.experiments import logs
from nemo_run.core.serialization._envelope import seal, unseal
from nemo_run.run.logs import get_logs

TITLE = "\033]0;pwned\007"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TITLE, "^[]0;pwned^G"),
        ("\033]52;c;ZXZpbA==\007", "^[]52;c;ZXZpbA==^G"),
        ("\033[2J\033[H", "^[[2J^[[H"),
        ("\033[1A\033[2K", "^[[1A\033[2K"),
        ("\x9b2J\x90", "\\x9b2J\\x90"),
        ("a\bb\x7f\0", "a^Hb^?^@"),
        ("\033[8mhidden\nnext\n", "\033[8mhidden\033[0m\nnext\n"),
        ("\033[31mred\033[0m\n", "\033[31mred\033[0m\033[0m\n"),
        ("50%\r100%\tdone\n", "50%\r100%\tdone\n"),
        ("naïve ⚡\n", "naïve ⚡\n"),
    ],
)
def test_only_colours_are_left(text: str, shown: str) -> None:
    assert for_terminal(text) == shown


@given(st.text(st.sampled_from("\033[]0;:mK2J\007\n\x9b\x1fa")))
def test_no_escape_is_left_that_is_not_a_colour(text: str) -> None:
    rest = for_terminal(text)
    for kept in ("\033[K", "\033[0K", "\033[2K"):
        rest = rest.replace(kept, "")
    for piece in rest.split("\033[")[1:]:
        assert piece.lstrip("0123456789;:")[:1] == "m"
    assert not set(rest.replace("\033[", "")) & set("\033\007\x9b\x1f")
    assert rest.count("\n") == text.count("\n")


def test_logs_are_raw_where_no_terminal_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with run.Experiment("shown", executor=run.LocalExecutor()) as exp:
        exp.add(run.Script(inline=r"printf '\033]0;pwned\007\n'"), name="job")
        exp.run(tail_logs=False)
    handle = exp.status(return_dict=True)["job"]["handle"]  # type: ignore[index]
    for file, shown in ((Terminal(), for_terminal(TITLE)), (io.StringIO(), TITLE)):
        for regex in (None, "pwned"):
            file.seek(0)
            file.truncate()
            get_logs(file, handle, regex)
            assert file.getvalue() == f"{shown}\n"
    for raw, shown in ((False, for_terminal(TITLE)), (True, TITLE)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        options = {"follow": False, "grep": None, "since": None, "tail": None, "json": False}
        words: dict[str, Any] = {"experiment": exp._id, "jobs": [], "raw": raw, **options}
        assert logs.run(argparse.Namespace(**words)) == 0
        assert terminal.getvalue() == f"{shown}\n"


STEERS = re.compile("\033(?!\\[[0-9;:]*m)|[\x00-\x08\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]|\r(?!\n)")
WORDS = f"{TITLE}\033[2J\x9b2J\rSUCCEEDED"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """An experiment whose stored words are hostile, and where to find it."""
    home = tmp_path_factory.mktemp("home")
    with in_home(home), run.Experiment("shown", executor=run.LocalExecutor()) as exp:
        exp.add(run.Script(inline=f"printf '{TITLE}'; exit 3"), name="job")
        exp.run(tail_logs=False)
    file = Path(exp._exp_dir, "_STATE", "0.json")
    state = json.loads(file.read_text())
    state["members"][0]["message"] = f"because {WORDS}"
    file.write_text(json.dumps(state))
    tasks = Path(exp._exp_dir, "_TASKS")
    ((job, task),) = json.loads(tasks.read_text())
    named = json.dumps(unseal(job)).replace('"job"', json.dumps(f"job{WORDS}"))
    tasks.write_text(json.dumps([[seal(json.loads(named)), task]]))
    labels = file.with_name("labels.json")
    labels.write_text(json.dumps({"tags": [f"tag{WORDS}"], "note": f"note {WORDS}"}))
    return exp._id, {"NEMORUN_HOME": str(home), "COLUMNS": "200", "INCLUDE_WORKSPACE_FILE": "false"}


@pytest.mark.parametrize(
    "verb", ["status", "list", "show", "wait", "note", "tag", "logs", "cancel", "diff"]
)
def test_no_command_that_looks_steers_the_terminal(
    verb: str, stored: tuple[str, dict[str, str]]
) -> None:
    id, env = stored
    ids = {"list": [], "diff": [id, id], "tag": [id, "more"]}.get(verb, [id])
    shown = commands.on_a_terminal([str(commands.BIN / "nemorun"), "experiment", verb, *ids], env)
    assert "job" in shown or id in shown or "pwned" in shown, shown
    assert STEERS.search(shown) is None, ascii(shown)


def test_what_an_experiment_prints_of_itself_does_not_steer(
    stored: tuple[str, dict[str, str]],
) -> None:
    id, env = stored
    look = (
        f"import nemo_run as run; exp = run.Experiment.from_id({id!r}); exp.status(); exp.logs(0)"
    )
    shown = commands.on_a_terminal([sys.executable, "-c", look], env)
    assert "because" in shown, shown
    assert STEERS.search(shown) is None, ascii(shown)


def test_executors_print_logs_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for file, shown in ((Terminal(), for_terminal(TITLE)), (io.StringIO(), TITLE)):
        monkeypatch.setattr(sys, "stdout", file)
        show(TITLE)
        assert file.getvalue() == shown


def test_errors_and_messages_of_ours_do_not_steer(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in (run.exceptions.BackendError, run.exceptions.ConfigError):
        said = str(kind(f"The server says {WORDS}."))
        assert STEERS.search(said) is None
        assert "The server says ^[]0;pwned^G" in said
