"""Documents that are traps, and surroundings that lack something: one clear line, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_run._home import home_from
from nemo_run.cli.commands.sweeps import values_of
from nemo_run.cli.values.config_files import FORMATS, parse
from nemo_run.cli.values.errors import ArgumentParsingError
from nemo_run.core.serialization.yaml import YamlSerializer
from nemo_run.exceptions import ConfigError

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)
)


@pytest.mark.parametrize(
    ("text", "format", "said"),
    [
        (BOMB, "yaml", "aliases"),
        ("a: &a [*a]", "yaml", "part of"),
        ("[" * 2000 + "]" * 2000, "yaml", "nested"),
        ("[" * 100_000 + "]" * 100_000, "json", "nested"),
        ("[" * 500 + "]" * 500, "json", "nested"),
        ("x = " + "[" * 500 + "]" * 500, "toml", "nested"),
        ("rate: 1\nrate: 2\n", "yaml", "'rate' is there twice in line 2"),
        ('{"rate": 1, "rate": 2}', "json", "'rate' is there twice"),
        ("net: {a: 1, a: 2}", "yaml", "'a' is there twice"),
    ],
)
def test_documents_that_are_traps_are_refused(text: str, format: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(text, FORMATS[f".{format}"])


def test_aliases_and_merged_mappings_are_read() -> None:
    text = "base: &base {a: 1, b: 2}\none: {<<: *base, b: 3}\ntwo: *base\n"
    found = parse(text, "yaml")
    assert (found["one"], found["two"]) == ({"a": 1, "b": 3}, {"a": 1, "b": 2})


def test_a_stored_config_that_is_a_trap_is_refused() -> None:
    with pytest.raises(ConfigError, match="aliases"):
        YamlSerializer().deserialize(BOMB)


@pytest.mark.parametrize("text", ["1..1e999999999", "1e-999999999..1", "0..1e300", "0..1..1e-300"])
def test_absurd_ranges_are_refused_at_once(text: str) -> None:
    with pytest.raises(ArgumentParsingError):
        values_of(text)


def python(code: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import nemo_run as run\n" + code],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )


ADD = """
try:
    with run.Experiment("x", executor=run.LocalExecutor({executor})) as exp:
        exp.add(run.Script(inline="true"{script}), name="job")
except run.exceptions.ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("where", ["script", "executor"])
def test_half_a_character_in_the_environment_is_refused(tmp_path: Path, where: str) -> None:
    setting = "env_vars={'A': '\\ud800'}" if where == "executor" else ", env={'A': '\\ud800'}"
    code = ADD.format(**{"executor": "", "script": "", where: setting})
    done = python("import nemo_run.exceptions\n" + code, tmp_path)
    assert "surrogate" in done.stdout, done.stderr
    assert "'A'" in done.stdout


def test_a_working_directory_that_was_deleted_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, nemo_run.exceptions\nos.rmdir(os.getcwd())\n"
    done = python(code + ADD.format(executor="", script=""), gone)
    assert "was deleted" in done.stdout, done.stderr


def test_without_a_home_directory_the_user_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(ConfigError, match="Set NEMORUN_HOME"):
        home_from({})
    assert home_from({"NEMORUN_HOME": "/somewhere"}) == "/somewhere"
