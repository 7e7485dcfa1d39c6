"""None as a value means the default, wherever a setting cannot be None."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Union  # noqa: UP035 - as older scripts write it

import pytest
from tests import patience
from tests.contract.experiments import experiment, log_of, script
from tests.unit.test_set_later import EXECUTORS
from torchx.specs import AppDef, Role

import nemo_run as run
from nemo_run._config.defaults import fill_in
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.slurm import SlurmExecutor
from nemo_run.run.torchx_backend.schedulers.slurm import create_scheduler


def default_of(item: dataclasses.Field[Any]) -> Any:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_setting_with_a_default_can_be_none(name: str) -> None:
    executor = EXECUTORS[name]
    for item in dataclasses.fields(executor):
        if item.init and default_of(item) is not dataclasses.MISSING:
            changed: dict[str, Any] = {item.name: None}
            given = dataclasses.replace(executor, **changed)
            value = getattr(given, item.name)
            may_stay = (
                "None" in str(item.type)
                or isinstance(default_of(item), bool)
                or item.name in executor._UNSAID
            )
            assert value == default_of(item) or (value is None and may_stay), item.name


def test_a_script_with_nothing_but_what_it_runs() -> None:
    task = run.Script(inline="echo hello", args=None, env=None, metadata=None)  # type: ignore[arg-type]
    assert task == run.Script(inline="echo hello")
    executor = run.LocalExecutor(env_vars=None, retries=None, packager=None)  # type: ignore[arg-type]
    with experiment(executor=executor) as exp:
        exp.add(task, name=None, plugins=None, dependencies=None)  # type: ignore[arg-type]
        exp.run()
    assert log_of(exp, exp.jobs[0].id) == "hello\n"


LAUNCH = """\
import nemo_run as run
executor = run.SlurmExecutor(
    account=None, dependencies=None, retries=None, additional_parameters=None, env_vars=None,
    time=None, nodes=None, ntasks_per_node=None, packager=run.Packager(), srun_args=None,
    container_mounts=None, job_details=None, tunnel=None,
)
with run.Experiment("none", executor=executor) as exp:
    exp.add(run.Script("tool.sh", args=None, env=None, metadata=None), name="job")
    exp.dryrun()
"""


def test_a_slurm_job_of_which_little_is_said(tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text(LAUNCH)
    done = subprocess.run(
        [sys.executable, "launch.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience.seconds(100),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    directives = [line for line in done.stdout.splitlines() if line.startswith("#SBATCH")]
    assert any("--job-name=job" in line for line in directives)
    for word in ("--time", "--nodes", "--ntasks", "--account", "None"):
        assert not [line for line in directives if word in line]


def test_what_is_not_said_of_a_slurm_job_is_counted_as_one() -> None:
    executor = SlurmExecutor(account="a", nodes=None, ntasks_per_node=None)  # type: ignore[arg-type]
    assert (executor.nnodes(), executor.nproc_per_node()) == (1, 1)
    executor.assign("e_1", "/x", "job", "job")
    role = Role(name="job", image="", entrypoint="true", max_retries=executor.retries)
    create_scheduler("nemo_run").submit_dryrun(AppDef("job", [role]), executor)


@dataclass(kw_only=True)
class Careless(run.Plugin):
    def setup(self, task: Any, executor: Executor) -> None:
        task.env = task.metadata = None
        executor.retries = None  # type: ignore[assignment]


def test_a_plugin_may_set_none() -> None:
    with experiment(executor=run.LocalExecutor()) as exp:
        exp.add(script("echo $HOME", env={"A": "b"}), name="job", plugins=[Careless()])
        exp.run()
    job = exp.jobs[0]
    assert job.executor.retries == 0
    assert job.state.name == "SUCCEEDED"


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("int", False),
        ("dict[str, Any]", False),
        ("dict[str, int | None]", False),
        (Dict[str, Any], False),  # noqa: UP006
        (List[Optional[int]], False),  # noqa: UP006, UP045
        (int, False),
        ("int | None", True),
        ("Any", True),
        (Optional[int], True),  # noqa: UP045
        (Union[int, str, None], True),  # noqa: UP007
        ("Union[int, str, None]", True),
        (Union[int, List[int]], False),  # noqa: UP006, UP007
    ],
)
def test_none_stays_where_an_annotation_has_it(kind: Any, taken: bool) -> None:
    made = dataclasses.make_dataclass("Made", [("value", kind, field(default=5))])(value=None)
    fill_in(made)
    assert made.value == (None if taken else 5)


def test_an_empty_entrypoint_is_no_word_of_a_command() -> None:
    task = run.Script("tool.sh", args=["a"])
    task.entrypoint = ""
    assert task.to_command(with_entrypoint=True) == ["tool.sh", "a"]
