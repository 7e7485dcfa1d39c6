"""Stored experiments that were made, or changed, to call something when they are looked at."""

from __future__ import annotations

import fractions
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.experiments import experiment, script
from tests.contract.plugins import SetVariable

import nemo_run as run
from nemo_run._backends.docker.index import add_to_index
from nemo_run._config import later
from nemo_run._experiments.store.loading import complete_job
from nemo_run.core.execution.docker import DockerJobRequest
from nemo_run.core.serialization._envelope import seal, unseal
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import NemoRunError

store = ZlibJSONSerializer()


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that is there once something was called."""
    return tmp_path / "called"


@pytest.fixture
def stored(tmp_path: Path) -> run.Experiment:
    with experiment("demo") as exp:
        exp.add(script("echo hi"), name="job", plugins=[SetVariable(name="A", value="b")])
        exp.run()
    return exp


Change = Callable[[Any, Any], None]


def _as_executor(job: Any, evil: Any) -> None:
    job.executor = evil


def _as_part(name: str) -> Change:
    return lambda job, evil: setattr(job.executor, name, evil)


def _set_later(job: Any, evil: Any) -> None:
    job.executor.__dict__.setdefault(later.ATTRIBUTE, {})["experiment_id"] = evil


def _in_packager(job: Any, evil: Any) -> None:
    job.executor.packager = run.Config(run.PatternPackager, include_pattern=evil, relative_path="")


def _as_tunnel(job: Any, evil: Any) -> None:
    job.executor = run.Config(run.SlurmExecutor, account="me", tunnel=evil)


def _as_plugin(job: Any, evil: Any) -> None:
    job.plugins = [*job.plugins, evil]


PLACES: dict[str, Change] = {
    "executor": _as_executor,
    "packager": _as_part("packager"),
    "launcher": _as_part("launcher"),
    "variables": lambda job, evil: setattr(job.executor, "env_vars", {"A": evil}),
    "set later": _set_later,
    "in a packager": _in_packager,
    "tunnel": _as_tunnel,
    "plugin": _as_plugin,
}


def plant(exp: run.Experiment, change: Change, evil: Any) -> None:
    """Change the stored job of an experiment."""
    file = Path(exp._exp_dir) / "_TASKS"
    ((job, task),) = json.loads(file.read_text())
    config = store.deserialize(job)
    change(config, evil)
    file.write_text(json.dumps([[store.serialize(config), task]]))


def look(exp_id: str) -> None:
    """Do all that people do to see how an experiment is."""
    for call in (
        lambda found: found.status(return_dict=True),
        lambda found: found.logs("job"),
        lambda found: found.cancel("job"),
        lambda found: found.jobs,
        lambda found: found.tunnels,
    ):
        try:
            call(run.Experiment.from_id(exp_id))
        except NemoRunError:
            continue


@pytest.mark.parametrize("kind", [run.Config, run.Partial])
@pytest.mark.parametrize("place", sorted(PLACES))
def test_looking_calls_nothing(place: str, kind: Any, stored: run.Experiment, canary: Path) -> None:
    plant(stored, PLACES[place], kind(subprocess.getoutput, f"touch {canary}"))
    look(stored._id)
    assert not canary.exists()


def test_neither_does_reading_its_own_executor_or_tunnels(
    stored: run.Experiment, canary: Path
) -> None:
    evil = run.Config(subprocess.getoutput, f"touch {canary}")
    directory = Path(stored._exp_dir)
    config = store.deserialize((directory / "_CONFIG").read_text())
    config.executor = evil
    (directory / "_CONFIG").write_text(store.serialize(config))
    tunnel = run.Config(run.SSHTunnel, host="far.invalid", user=evil, job_dir="/x")
    tunnels = {"a@b": store.serialize(evil), "c@d": store.serialize(tunnel)}
    (directory / "_TUNNELS").write_text(json.dumps(tunnels))
    look(stored._id)
    assert run.Experiment.from_id(stored._id).tunnels == {}
    assert not canary.exists()


def test_no_module_of_python_is_imported_to_look(
    stored: run.Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(stored, PLACES["packager"], run.Config(functools.wraps, "x"))
    file = Path(stored._exp_dir) / "_TASKS"
    ((job, task),) = json.loads(file.read_text())
    text = json.dumps(unseal(job)).replace('"functools"', '"this"')
    file.write_text(json.dumps([[seal(json.loads(text)), task]]))
    monkeypatch.delitem(sys.modules, "this", raising=False)
    look(stored._id)
    assert "this" not in sys.modules


def test_the_index_of_docker_calls_nothing(
    canary: Path, nemorun_home: Path, tmp_path: Path
) -> None:
    evil = run.Config(subprocess.getoutput, f"touch {canary}")
    for name, config in {
        "a": evil,
        "b": run.Config(DockerJobRequest, id="b", executor=evil, containers=[]),
    }.items():
        add_to_index(name, store.serialize(config))
        try:
            DockerJobRequest.load(name)
        except (NemoRunError, TypeError):
            continue
    assert not canary.exists()


def test_what_was_left_out_is_there_to_run(stored: run.Experiment) -> None:
    """A value that only running may make is made then."""

    def change(job: Any, value: Any) -> None:
        job.plugins = [run.Config(SetVariable, name="A", value=value)]

    plant(stored, change, run.Config(fractions.Fraction, 1, 3))
    found = run.Experiment.from_id(stored._id)
    assert found.jobs[0]._left_out
    text = json.loads((Path(stored._exp_dir) / "_TASKS").read_text())[0]
    complete_job(found.jobs[0], Path(stored._exp_dir), tuple(text))
    assert [vars(plugin)["value"] for plugin in found.jobs[0].plugins or ()] == [
        fractions.Fraction(1, 3)
    ]
