"""Odd numbers in what tasks print, or leave for their launcher, and odd ways to an engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nemo_run._backends.docker.connection import in_the_clear, is_in_the_clear
from nemo_run._backends.kubeflow.script import Outcome
from nemo_run._backends.lepton.script import ExitMark
from nemo_run._transport.ssh import machine
from nemo_run.exceptions import ConfigError

MANY = "9" * 5000


def test_a_mark_with_thousands_of_digits_is_text() -> None:
    mark = ExitMark("job-1")
    assert mark.end(f"[{mark.words} 0 with exit code 7]\n") == (0, 7)
    for line in (
        f"[{mark.words} {MANY} with exit code 7]\n",
        f"[{mark.words} 0 with exit code {MANY}]",
    ):
        assert mark.end(line) is None
        assert mark.strip(line) == line


def test_an_outcome_with_thousands_of_digits_is_none() -> None:
    assert Outcome.from_message("nemo_run: exit_code=7 attempts=1 lines=3") == Outcome(7, 1, 3)
    assert Outcome.from_message(f"nemo_run: exit_code={MANY} attempts=1 lines=3") is None
    assert Outcome.from_message(f"nemo_run: exit_code=7 attempts=1 lines={MANY}") is None
    assert Outcome.from_file("7 1\n") == Outcome(7, 1)
    for text in (f"{MANY} 1", f"7 {MANY}", "x y", "7 1 2", ""):
        assert Outcome.from_file(text) is None


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("http://10.0.0.5:2375", True),
        ("tcp://build.example.com:2375", True),
        ("http://127.0.0.1:2375", False),
        ("http://localhost:2375", False),
        ("http://[::1]:2375", False),
        ("https://10.0.0.5:2376", False),
        ("http+docker://localhost", False),
        ("http+docker://ssh", False),
    ],
)
def test_an_engine_without_tls_elsewhere_is_known(url: str, clear: bool) -> None:
    assert is_in_the_clear(url) is clear
    assert "ssh://" in in_the_clear(url)


def test_a_squatted_directory_is_said(tmp_path: Path) -> None:
    squatted = tmp_path / "squatted"
    squatted.mkdir()
    squatted.chmod(0o777)
    with pytest.raises(ConfigError, match=r"squatted: not a directory of this user alone.*removed"):
        machine.directory(os.fsencode(squatted))
