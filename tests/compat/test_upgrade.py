"""An upgrade keeps what an earlier version has stored: experiments are found, shown and go on.

``homes/make.py`` has recorded home directories, and what the version that wrote them says of them.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.compat.homes import archive, questions
from tests.compat.stored_names import names_in

HOMES = archive.names()
QUICK = {"python"}


def test_there_are_recorded_homes() -> None:
    assert HOMES


@pytest.mark.parametrize(
    "story",
    [pytest.param(s, marks=[] if s in QUICK else pytest.mark.slow) for s in questions.STORIES],
)
@pytest.mark.parametrize("home", HOMES)
def test_answers_are_those_of_the_version_that_wrote_the_home(
    home: str, story: str, tmp_path: Path
) -> None:
    recorded = json.loads((archive.HERE / f"{home}.json").read_text())[story]
    archive.unpack(home, tmp_path)
    for before, now in zip(recorded, questions.ask(story, tmp_path), strict=True):
        if now["words"][:2] == ["rm", "half"]:
            assert now["code"] == 2  # that version removed what had not ended
            continue
        if story == "rm" and isinstance(now["said"], list):
            now["said"] = [line for line in now["said"] if not line.startswith("half_")]
        assert now["words"] == before["words"]
        assert now["code"] == before["code"], now
        told = [line for line in lost(before["said"], now["said"]) if not is_corrected(line)]
        assert told == [], " ".join(now["words"])


@pytest.mark.parametrize("home", HOMES)
def test_every_name_that_is_stored_can_be_imported(home: str, tmp_path: Path) -> None:
    archive.unpack(home, tmp_path)
    found = {name for path in archive.files(tmp_path) for name in names_in(path.read_text())}
    assert "nemo_run.core.execution.slurm.SlurmExecutor" in found
    assert "nemo_run.core.runners.fdl_runner" in found
    assert [name for name in sorted(found) if not can_be_imported(name)] == []


@pytest.mark.parametrize("home", HOMES)
def test_the_home_is_where_the_tests_have_put_it(home: str, tmp_path: Path) -> None:
    archive.unpack(home, tmp_path)
    texts = {path: archive.plain(path.read_text()) for path in archive.files(tmp_path)}
    assert any(str(tmp_path) in text for text in texts.values())
    assert [path for path, text in texts.items() if archive.ROOT in text] == []


def is_corrected(line: str) -> bool:
    """Tell whether an answer was wrong: what waited for resume was shown as if it ran."""
    return line.endswith(
        (
            ".state: 'RUNNING' is now 'UNSUBMITTED'",
            ".message: '' is now 'waits for resume: its launcher is gone'",
        )
    )


def lost(before: Any, now: Any, at: str = "answer") -> list[str]:
    """Return what ``before`` says and ``now`` does not; further keys are welcome."""
    if isinstance(before, dict) and isinstance(now, dict):
        gone = [f"{at}: no {key!r}" for key in before if key not in now]
        kept = [key for key in before if key in now]
        return gone + [line for key in kept for line in lost(before[key], now[key], f"{at}.{key}")]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return [line for n, (a, b) in pairs for line in lost(a, b, f"{at}[{n}]")]
    if at.endswith(".message") and str(now).startswith(str(before)):
        return []  # who cancelled, or why it failed: more words are welcome
    return [] if before == now else [f"{at}: {before!r} is now {now!r}"]


def can_be_imported(name: str) -> bool:
    """Tell whether a dotted name leads to a module, or to something in one."""
    module, _, rest = name.partition(".")
    value: Any = importlib.import_module(module)
    for part in filter(None, rest.split(".")):
        module = f"{module}.{part}"
        if hasattr(value, part):
            value = getattr(value, part)
            continue
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError:
            return False
    return True
