"""A task that ended well has run."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.experiments import experiment
from tests.integration.launching import launch, write

import nemo_run as run
from nemo_run.exceptions import ConfigError


def test_a_coroutine_is_awaited(tmp_path: Path) -> None:
    launching = write(
        tmp_path,
        "import asyncio\n"
        "async def task(path: str):\n"
        "    await asyncio.sleep(0)\n"
        "    open(path, 'a').write('ran')\n"
        "if __name__ == '__main__':\n"
        "    with run.Experiment('later', check=True) as exp:\n"
        f"        exp.add(run.Partial(task, path='{tmp_path}/as-job'))\n"
        "        exp.run()\n"
        f"    run.run(run.Partial(task, path='{tmp_path}/direct'), direct=True)\n",
    )
    done = launch(launching)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "as-job").read_text() == "ran"
    assert (tmp_path / "direct").read_text() == "ran"


def yields() -> Iterator[int]:
    yield 1


async def yields_later() -> AsyncIterator[int]:
    yield 1


@contextlib.contextmanager
def manages() -> Iterator[None]:
    yield


class Trainer:
    pass


@pytest.mark.parametrize("target", [yields, yields_later, manages, Trainer, dict])
def test_what_would_run_nothing_is_refused_when_it_is_added(target: Any) -> None:
    with experiment() as exp:
        with pytest.raises(ConfigError, match=f"cannot be a task: {target.__qualname__} "):
            exp.add(run.Partial(target))
        assert exp.jobs == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ({"inline": "echo a\0b"}, "NUL"),
        ({"inline": "true", "env": {"ODD": object()}}, "ODD"),
        ({"inline": "true", "env": {"ODD": "a\0b"}}, "ODD"),
    ],
)
def test_a_script_that_no_shell_can_be_given_is_refused(script: Any, said: str) -> None:
    with experiment() as exp, pytest.raises(ConfigError, match=said):
        exp.add(run.Script(**script))
