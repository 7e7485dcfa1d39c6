"""Lines that a program logs itself, around an experiment with a log level."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.launching import launch, write

PROGRAM = """
import logging
log = logging.getLogger("team.trainer")
{before}
log.info("before")
with run.Experiment("levels", log_level="{level}") as experiment:
    {inside}
    log.debug("chatter")
    log.info("progress")
    log.warning("trouble")
{after}
log.info("after")
"""

BASIC = "logging.basicConfig(level='WARNING', format='MINE %(message)s')"
OWN = (
    "own = logging.StreamHandler(); own.setFormatter(logging.Formatter('OWN %(message)s'))\n"
    "log.addHandler(own)"
)


def said(
    tmp_path: Path, *, level: str = "INFO", before: str = "", inside: str = "pass", after: str = ""
) -> list[str]:
    """Run the program and return what it logs: each line's last word, or first two if marked."""
    text = PROGRAM.format(level=level, before=before, inside=inside, after=after)
    done = launch(write(tmp_path, text))
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stderr.splitlines()]
    return [" ".join(words if words[0] in ("MINE", "OWN") else words[-1:]) for words in lines]


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        ("DEBUG", ["chatter", "progress", "trouble", "after"]),
        ("INFO", ["progress", "trouble", "after"]),
        ("info", ["progress", "trouble", "after"]),
        ("WARN", ["trouble"]),
        ("ERROR", []),
    ],
)
def test_a_program_that_configures_nothing_sees_its_lines_from_the_level_on(
    tmp_path: Path, level: str, lines: list[str]
) -> None:
    assert said(tmp_path, level=level) == lines


def test_a_program_that_has_configured_logging_keeps_what_it_chose(tmp_path: Path) -> None:
    assert said(tmp_path, before=BASIC) == ["MINE trouble"]


def test_a_program_may_configure_logging_later(tmp_path: Path) -> None:
    after = BASIC.replace("WARNING", "INFO")
    assert said(tmp_path, after=after) == ["progress", "trouble", "MINE after"]


def test_a_level_that_the_program_chose_stays(tmp_path: Path) -> None:
    assert said(tmp_path, before="logging.getLogger().setLevel('ERROR')") == []


def test_a_line_that_a_handler_of_the_program_shows_is_shown_once(tmp_path: Path) -> None:
    assert said(tmp_path, before=OWN) == ["OWN progress", "OWN trouble", "OWN after"]


def test_the_level_of_a_later_experiment_counts(tmp_path: Path) -> None:
    inside = "run.Experiment('other', log_level='ERROR')"
    assert said(tmp_path, inside=inside) == []


def test_looking_at_an_old_experiment_changes_nothing(tmp_path: Path) -> None:
    before = (
        "with run.Experiment('old', clean_mode=True, log_level='WARN') as old:\n"
        "    old.add(script('true'))\n"
        "    old.run()"
    )
    inside = "run.Experiment.from_title('old')"
    assert said(tmp_path, before=before, inside=inside) == ["progress", "trouble", "after"]
