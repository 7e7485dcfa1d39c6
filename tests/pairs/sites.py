"""Backends, each for all rows of a process, and what users write to get there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.contract.backends import PACKAGES
from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.lepton import LeptonEmulator
from tests.emulators.runai import CLIENT_ID, CLIENT_SECRET, RunaiEmulator

IMAGE = Path(__file__).parent / "image"
"""What jobs of all backends find on their machines."""

PROGRAMS = os.pathsep.join([str(IMAGE / "bin"), str(Path(sys.executable).parent)])


@dataclass
class Site:
    """How to get to a backend.

    Attributes:
        kind: the class of the executor.
        settings: of the executor, as expressions of Python.
        variables: of the user's own environment.
        path: of jobs.
        processes: what the number of a launcher's processes is called.
    """

    kind: str
    settings: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    path: str = f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin"
    processes: str = "nprocs_per_node"


@contextlib.contextmanager
def local(request: pytest.FixtureRequest, hidden: Path, marks: Path) -> Iterator[Site]:
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    yield Site("run.LocalExecutor", path=path, processes="ntasks_per_node")


@contextlib.contextmanager
def lepton(request: pytest.FixtureRequest, hidden: Path, marks: Path) -> Iterator[Site]:
    emulator = LeptonEmulator(_made(marks / "lepton"), hidden=(hidden,))
    settings = {
        "container_image": "'some/image'",
        "nemo_run_dir": "'/volume/nemo_run'",
        "resource_shape": "'cpu.small'",
        "node_group": "'my-group'",
        "mounts": "[{'path': '/', 'mount_path': '/volume', 'from': 'node-nfs:shared'}]",
    }
    with contextlib.closing(emulator):
        yield Site("run.LeptonExecutor", settings, emulator.environment)


@contextlib.contextmanager
def dgx_cloud(request: pytest.FixtureRequest, hidden: Path, marks: Path) -> Iterator[Site]:
    emulator = RunaiEmulator(_made(marks / "runai"), hidden=(hidden,))
    volume = {"name": "work", "path": "/workspace", "existingPvc": True, "claimName": "work"}
    settings = {
        "base_url": emulator.base_url,
        "kube_apiserver_url": emulator.kube_url,
        "client_id": CLIENT_ID,
        "client_secret": "env:RUNAI_SECRET",
        "project_name": "team-a",
        "container_image": "some/image:1",
        "pvcs": [volume],
        "pvc_nemo_run_dir": "/workspace/nemo_run",
    }
    with contextlib.closing(emulator):
        yield Site(
            "run.DGXCloudExecutor",
            {name: repr(value) for name, value in settings.items()},
            {"RUNAI_SECRET": CLIENT_SECRET},
        )


@contextlib.contextmanager
def kubeflow(request: pytest.FixtureRequest, hidden: Path, marks: Path) -> Iterator[Site]:
    emulator = KubernetesEmulator(_made(marks / "kubernetes"), hidden=(hidden,))
    settings = {
        "image": "'some/image:1'",
        "workdir_pvc": "'work'",
        "workdir_pvc_path": "'/workspace'",
    }
    with contextlib.closing(emulator):
        yield Site("run.KubeflowExecutor", settings, {"KUBECONFIG": str(emulator.kubeconfig)})


@contextlib.contextmanager
def docker(request: pytest.FixtureRequest, hidden: Path, marks: Path) -> Iterator[Site]:
    from tests.integration.docker.images import PYTHON

    engine = request.getfixturevalue("docker_engine")
    volumes = [f"{path}:{path}:ro" for path in (*PACKAGES, IMAGE)] + [f"{marks}:{marks}"]
    settings = {"container_image": PYTHON, "pull": "missing", "volumes": volumes}
    yield Site(
        "run.DockerExecutor",
        {name: repr(value) for name, value in settings.items()},
        engine.environment,
        path=f"{IMAGE / 'bin'}:/usr/local/bin:/bin:/usr/bin",
        processes="ntasks_per_node",
    )


@contextlib.contextmanager
def slurm(request: pytest.FixtureRequest, hidden: Path, marks: Path) -> Iterator[Site]:
    cluster = request.getfixturevalue("slurm_with_accounting")
    settings = {"account": "'root'", "mem": "'100M'", "time": "'00:10:00'"}
    # By default it takes a minute until the tasks of a group start.
    settings |= {"wait_time_for_group_job": "0", "monitor_group_job_wait_time": "1"}
    yield Site(
        "run.SlurmExecutor",
        settings,
        cluster.environment,
        path=f"{PROGRAMS}:$PATH",
        processes="ntasks_per_node",
    )


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


Opening = Callable[[pytest.FixtureRequest, Path, Path], contextlib.AbstractContextManager[Site]]
SITES: dict[str, Opening] = {
    "local": local,
    "lepton": lepton,
    "dgx_cloud": dgx_cloud,
    "kubeflow": kubeflow,
    "docker": docker,
    "slurm": slurm,
}
ENGINES = {"docker": "docker_engine", "slurm": "slurm_with_accounting"}
