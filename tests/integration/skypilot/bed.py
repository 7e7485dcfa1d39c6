"""A real SkyPilot on a real Slurm of this machine: the test runs inside of ``bed.sh``."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path

import pytest

BED = "NEMO_RUN_TEST_SKYPILOT"
"""Variable with the directory of the test bed."""


@pytest.fixture(scope="session")
def skypilot_bed() -> Path:
    """The directory of the test bed, whose API server is used."""
    if BED not in os.environ:
        pytest.fail("The SkyPilot tests need their test bed. Run them with: make skypilot")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what SkyPilot itself imports
        importlib.import_module("sky")
    return Path(os.environ[BED])
