"""What is stored, and what clusters are asked to run, names only public names of this package.

An experiment may be looked at, and a job may be started, long after an upgrade has moved everything
that is private. So a user's script runs and plans jobs of every kind on every executor here, and
all that this leaves and prints is searched.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.compat.homes.archive import files
from tests.compat.stored_names import names_in

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

PUBLIC = {
    "nemo_run.cli.lazy.LazyEntrypoint",
    "nemo_run.cli.lazy.LazyTarget",
    "nemo_run.config.Config",
    "nemo_run.config.Partial",
    "nemo_run.config.Script",
    "nemo_run.core.execution.dgxcloud.DGXCloudExecutor",
    "nemo_run.core.execution.docker.DockerContainer",
    "nemo_run.core.execution.docker.DockerExecutor",
    "nemo_run.core.execution.docker.DockerJobRequest",
    "nemo_run.core.execution.kubeflow.KubeflowExecutor",
    "nemo_run.core.execution.launcher.FaultTolerance",
    "nemo_run.core.execution.launcher.Launcher",
    "nemo_run.core.execution.launcher.SlurmRay",
    "nemo_run.core.execution.launcher.SlurmTemplate",
    "nemo_run.core.execution.launcher.Torchrun",
    "nemo_run.core.execution.lepton.LeptonExecutor",
    "nemo_run.core.execution.local.LocalExecutor",
    "nemo_run.core.execution.ray.RayExecutor",
    "nemo_run.core.execution.skypilot.SkypilotExecutor",
    "nemo_run.core.execution.skypilot_jobs.SkypilotJobsExecutor",
    "nemo_run.core.execution.slurm.SlurmExecutor",
    "nemo_run.core.execution.slurm.SlurmJobDetails",
    "nemo_run.core.packaging.base.Packager",
    "nemo_run.core.packaging.git.GitArchivePackager",
    "nemo_run.core.packaging.hybrid.HybridPackager",
    "nemo_run.core.packaging.pattern.PatternPackager",
    "nemo_run.core.packaging.snapshot.SnapshotPackager",
    "nemo_run.core.runners.fdl_runner",
    "nemo_run.core.tunnel.client.LocalTunnel",
    "nemo_run.core.tunnel.client.SSHTunnel",
    "nemo_run.run.experiment.Experiment",
    "nemo_run.run.job.Job",
    "nemo_run.run.job.JobGroup",
}
"""Every name that may be stored. Each is a promise: it can be imported for ever."""

SCRIPT = '''
import sys
from pathlib import Path
from typing import Any

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

HERE = Path(__file__).parent


class Net(run.ConfigurableMixin):
    def __init__(self, width: int = 8) -> None:
        self.width = width


def fit(net: Any = None, path: str = "") -> None:
    # The command of this process, and of all that it was started by up to the launcher.
    Path(path).write_text(command_lines())


def command_lines() -> str:
    lines, pid = [], "self"
    while pid not in ("0", "1"):
        lines.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\\0", " "))
        pid = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return "\\n".join(lines)


def fitting(name: str) -> run.Partial:
    return run.Partial(fit, net=run.Config(Net, width=3), path=str(HERE / f"{name}.argv"))


def echo(**settings: Any) -> run.Script:
    return run.Script(inline="echo hi", **settings)


def lazily() -> run.LazyEntrypoint:
    entry = run.LazyEntrypoint("launch.fit")
    entry.path = str(HERE / "lazy.argv")
    return entry


def packager() -> run.Packager:
    parts = {
        "git": run.GitArchivePackager(),
        "pattern": run.PatternPackager(include_pattern="*.py", relative_path=str(HERE)),
        "snapshot": run.SnapshotPackager(),
    }
    return run.HybridPackager(sub_packagers=parts)


def slurm(**settings: Any) -> run.SlurmExecutor:
    tunnel = run.SSHTunnel(host="cluster", user="ada", job_dir="/home/ada/jobs")
    return run.SlurmExecutor(account="a", **{"tunnel": tunnel, "time": "00:10:00", **settings})


def lepton() -> run.LeptonExecutor:
    return run.LeptonExecutor(
        container_image="some/image",
        nemo_run_dir="/volume/nemo_run",
        resource_shape="gpu.8xh100-80gb",
        node_group="group",
        mounts=[{"path": "/", "mount_path": "/volume", "from": "node-nfs:shared"}],
    )


def dgx() -> run.DGXCloudExecutor:
    volume = {"name": "work", "path": "/workspace", "existingPvc": True, "claimName": "work"}
    return run.DGXCloudExecutor(
        base_url="https://runai.example.org/api/v1",
        kube_apiserver_url="https://kube.example.org",
        client_id="me",
        client_secret="env:RUNAI_SECRET",
        project_name="team",
        container_image="some/image:1",
        pvcs=[volume],
        pvc_nemo_run_dir="/workspace/nemo_run",
    )


def kubeflow() -> run.KubeflowExecutor:
    return run.KubeflowExecutor(image="some/image:1", workdir_pvc="w", workdir_pvc_path="/work")


def plan(title: str, executor: Any, launchers: Any = (None, "torchrun")) -> None:
    """Plan a task of each kind, with each launcher."""
    with run.Experiment(title, log_level="ERROR") as exp:
        for n, launcher in enumerate(launchers):
            mine = executor.clone()
            mine.launcher = launcher
            exp.add(fitting(title), executor=mine, name=f"partial-{n}")
            exp.add(echo(env={"A": "b"}), executor=mine, name=f"script-{n}")
        exp.add(lazily(), executor=executor, name="lazy")
        exp.dryrun(delete_exp_dir=False)


def plan_group(title: str, executor: Any) -> None:
    with run.Experiment(title, log_level="ERROR") as exp:
        exp.add([fitting(title), echo()], executor=executor, name="group")
        exp.dryrun(delete_exp_dir=False)


def really(detach: bool) -> None:
    """Run a task of each kind on this machine."""
    with run.Experiment(f"real-{detach}", log_level="ERROR") as exp:
        name = f"detached-{detach}"
        first = exp.add(fitting(name), executor=run.LocalExecutor(retries=1), name="first")
        second = exp.add(echo(), name="second", dependencies=[first])
        exp.add([fitting(f"{name}-group"), echo()], name="group", dependencies=[second])
        exp.add(lazily(), name="lazy")
        exp.run(detach=detach)
    exp.wait()
    for job, told in exp.status(return_dict=True).items():
        assert str(told["status"]).endswith("SUCCEEDED"), (job, told)


def store(name: str, executor: run.Executor) -> None:
    """Store what cannot be planned without the vendor's package, as experiments do."""
    text = ZlibJSONSerializer().serialize(executor.to_config())
    (HERE / f"{name}.stored").write_text(text)


if __name__ == "__main__":
    ray = run.SlurmRay()
    asked = run.LocalExecutor()
    asked.get_launcher()  # as plugins do
    template = run.SlurmTemplate(template_inline="{{ command }}")
    plan("local", run.LocalExecutor(), (None, run.Torchrun(), run.FaultTolerance()))
    plan("slurm", slurm(packager=packager()), (None, "torchrun", run.FaultTolerance(), template))
    plan("slurm-here", slurm(tunnel=run.LocalTunnel(job_dir=str(HERE)), packager=run.Packager()))
    plan("docker", run.DockerExecutor(container_image="some/image", packager=run.Packager()))
    plan("lepton", lepton())
    plan("dgx", dgx())
    plan("kubeflow", kubeflow())
    plan_group("slurm-group", slurm(packager=run.Packager()))
    plan_group("docker-group", run.DockerExecutor(container_image="some/image"))
    store("ray", slurm(launcher=ray))
    store("ray-there", run.RayExecutor(address="http://127.0.0.1:8265", token="env:TOKEN"))
    store("asked", asked)
    store("skypilot", run.SkypilotExecutor(container_image="i", cloud="aws"))
    store("skypilot_jobs", run.SkypilotJobsExecutor(container_image="i", cloud="aws"))
    really(detach=False)
    really(detach=True)
'''


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The names that the script leaves, each with one place where it is."""
    root = tmp_path_factory.mktemp("user")
    script = root / "launch.py"
    script.write_text(SCRIPT)
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-qm", "all"],
    ):
        subprocess.run(["git", *command], cwd=root, check=True)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=root,
        env={**os.environ, "NEMORUN_HOME": str(root / "home"), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    (root / "printed").write_text(done.stdout)
    script.unlink()
    return {
        name: str(path.relative_to(root))
        for path in files(root)
        if ".git" not in path.parts and path.name != "__main__.py"
        for name in names_in(path.read_text())
    }


@pytest.mark.slow
def test_only_public_names_are_stored(found: dict[str, str]) -> None:
    assert {name: where for name, where in found.items() if name not in PUBLIC} == {}


@pytest.mark.slow
def test_every_public_name_is_stored_by_something(found: dict[str, str]) -> None:
    """Otherwise the list has a name too many, or the search is blind."""
    assert PUBLIC - set(found) == set()


@pytest.mark.parametrize(
    "text",
    [
        "python -m nemo_run._private.module x",
        'exec python -m "nemo_run.run._detached"',
        '{"type": "ref", "module": "nemo_run._private", "name": "module.x"}',
        "_target_: nemo_run._private.module\n",
    ],
)
def test_a_private_name_is_found(text: str) -> None:
    assert [name for name in names_in(text) if name not in PUBLIC]


def test_names_in_packed_configs_are_found() -> None:
    packed = ZlibJSONSerializer().serialize(run.Config(run.LocalExecutor))
    assert names_in(f"run {packed} now") == {
        "nemo_run.config.Config",
        "nemo_run.core.execution.local.LocalExecutor",
    }
