"""What we send and what the emulator answers, held against the vendor's description of its API.

The package ``runapy`` is generated from that description. It is large, so it is loaded when needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def not_understood(kind: str, body: Mapping[str, Any]) -> list[str]:
    """Return which parts of a request for a workload Run:ai would not take as they were meant."""
    models = {
        "trainings": "TrainingCreationRequest",
        "distributed": "DistributedCreationRequest",
        "workspaces": "WorkspaceCreationRequest",
    }
    return lost(body, understood(models[kind], body).to_dict())


def understood(model: str, data: Mapping[str, Any]) -> Any:
    """Return ``data`` as the vendor's model of that name; raises where it cannot be that."""
    from runai import models

    return getattr(models, model).from_dict(dict(data))


def lost(sent: Any, understood: Any, where: str = "body") -> list[str]:
    """Return what was sent and is not in what was understood."""
    if isinstance(sent, dict):
        if not isinstance(understood, dict):
            return [where]
        return [
            problem
            for key, value in sent.items()
            for problem in lost(value, understood.get(key), f"{where}.{key}")
        ]
    if isinstance(sent, list):
        if not isinstance(understood, list) or len(sent) != len(understood):
            return [where]
        pairs = enumerate(zip(sent, understood, strict=True))
        return [p for n, (a, b) in pairs for p in lost(a, b, f"{where}[{n}]")]
    return [] if sent == understood else [where]
