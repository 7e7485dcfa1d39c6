"""What a workspace was asked for."""

from __future__ import annotations

from typing import Any

from tests.emulators.lepton import LeptonEmulator


def sent(emulator: LeptonEmulator, *, movers: bool = False) -> list[dict[str, Any]]:
    """Return the descriptions of the jobs that were asked for."""
    bodies = [request.json for request in emulator.server.requests("POST", ".*/jobs")]
    return [body for body in bodies if body["metadata"]["id"].startswith("data-mover") is movers]
