"""Settings of executors that several tests need."""

from __future__ import annotations

from typing import Any

from tests.emulators.runai import RunaiEmulator


def from_the_cluster(emulator: RunaiEmulator) -> dict[str, Any]:
    """For a process that has the volume, under the same path."""
    volume = emulator.volume("work")
    return {
        "launched_from_cluster": True,
        "pvcs": [{"name": "work", "path": str(volume), "claimName": "work"}],
        "pvc_nemo_run_dir": str(volume / "nemo_run"),
    }
