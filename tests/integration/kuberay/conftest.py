from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.emulators import standin_ray
from tests.emulators.kubernetes import KubernetesEmulator, Pace
from tests.emulators.processes import PATH

from nemo_run.core.execution.kuberay import KubeRayExecutor

MakeExecutor = Callable[..., KubeRayExecutor]


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesEmulator]:
    """A cluster with KubeRay, whose image has a stand-in for Ray."""
    path = f"{standin_ray.install(tmp_path / 'ray')}:{PATH}"
    directory = tmp_path / "kubernetes"
    emulator = KubernetesEmulator(directory, path=path, pace=Pace(back_off=0.05, grace=0.5))
    monkeypatch.setenv("KUBECONFIG", str(emulator.kubeconfig))
    monkeypatch.setenv("LOGNAME", "Ann.Lee")
    yield emulator
    emulator.close()
    assert os.environ["KUBECONFIG"]


@pytest.fixture
def executor(emulator: KubernetesEmulator) -> MakeExecutor:
    """Makes executors whose pods have the volume ``work``."""

    def make(**settings: Any) -> KubeRayExecutor:
        volume = {"name": "work", "persistentVolumeClaim": {"claimName": "work"}}
        return KubeRayExecutor(
            **{
                "ray_version": "2.60.0",
                "volumes": [volume],
                "volume_mounts": [{"name": "work", "mountPath": "/workspace"}],
                **settings,
            }
        )

    return make
