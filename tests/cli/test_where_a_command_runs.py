"""Executors, plugins and other settings of a run, from words that begin with ``run.``"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli import commands
from tests.cli.commands import Result
from tests.cli.conftest import Several

pytestmark = pytest.mark.slow

BASE = ["net=small_net", "--yes"]

# Words, and what the job reports of itself.
PLACED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "an executor by name": (["run.executor=local"], {"steps": 10, "env": ""}),
    "one with arguments and a field": (
        ["run.executor=local(n=2)", "run.executor.env_vars={'FIT_ENV': 'x=y'}"],
        {"env": "x=y"},
    ),
    "a field of a mapping": (
        ["run.executor=local", "run.executor.env_vars.FIT_ENV=deep"],
        {"env": "deep"},
    ),
    "a factory for any executor": (["run.executor=anywhere"], {"env": "anywhere"}),
    "a class": (["run.executor=LocalExecutor"], {"steps": 10}),
    "a class with arguments": (
        ["run.executor=LocalExecutor(env_vars={'FIT_ENV': 'a, b'})"],
        {"env": "a, b"},
    ),
    "a plugin": (["run.executor=local", "run.plugins=double"], {"steps": 20, "env": "by 2"}),
    "a field of a plugin": (
        ["run.executor=local", "run.plugins=double", "run.plugins.by=5"],
        {"steps": 50},
    ),
    "two plugins, one changed": (
        ["run.executor=local", "run.plugins=[double, triple]", "run.plugins[0].by=5"],
        {"steps": 150, "env": "by 3"},
    ),
    "a name": (["run.executor=local", "run.name=named.run"], {"steps": 10}),
    "this process": (["run.executor=local", "run.direct=True"], {"steps": 10}),
}


@pytest.fixture(scope="module")
def placed(several: Several) -> dict[str, Result]:
    results = several([[*BASE, *words] for words, _ in PLACED.values()])
    return dict(zip(PLACED, results, strict=True))


@pytest.mark.parametrize("what", PLACED)
def test_words_say_where_and_how_to_run(placed: dict[str, Result], what: str) -> None:
    result = placed[what]
    assert result.code == 0, result.err
    report = json.loads(result.out.partition("REPORT ")[2].splitlines()[0])
    _, expected = PLACED[what]
    assert {name: report[name] for name in expected} == expected


def test_a_name_is_the_experiments(placed: dict[str, Result]) -> None:
    assert "Entering Experiment named.run" in placed["a name"].out
    assert "Entering Experiment" not in placed["this process"].out


def report_of(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.out.partition("REPORT ")[2].splitlines()[0])
    return found


def test_defaults_of_a_script_are_used_and_changed(here: Path) -> None:
    usual = commands.script("defaults.py", cwd=here)
    changed = commands.script(
        "defaults.py",
        *("steps=1", "run.executor.env_vars.OTHER=1", "run.plugins.by=4", "run.name=other"),
        cwd=here,
    )
    assert (usual.code, changed.code) == (0, 0), usual.err + changed.err
    assert report_of(usual)["net"] == {"width": 3, "depth": 2}
    assert (report_of(usual)["steps"], report_of(usual)["env"]) == (50, "by 10")
    assert report_of(changed)["steps"] == 4
    assert "Entering Experiment other" in changed.out
    assert usual.out.rstrip().endswith("and on it goes"), "what follows main() still runs"
