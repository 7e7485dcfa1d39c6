"""Stored experiments as objects that can be asked, followed and ended."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from nemo_run.run.experiment import Experiment


def open_experiment(path: str) -> Experiment:
    """Return the experiment in a directory; what it has to say goes to stderr."""
    experiment = Experiment._load(Path(path))
    experiment.console = Console(stderr=True, emoji=False)
    return experiment
