"""A real SkyPilot on a real Slurm of this machine, which `make skypilot` starts and stops."""

from __future__ import annotations

import importlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

BED = "NEMO_RUN_TEST_SKYPILOT"
"""Variable with the directory of the test bed."""


@pytest.fixture(scope="session")
def skypilot_bed() -> Iterator[Path]:
    """The directory of the test bed, whose home directory and API server are used from now on."""
    if BED not in os.environ:
        pytest.fail("The SkyPilot tests need their test bed. Run them with: make skypilot")
    bed = Path(os.environ[BED])
    settings = json.loads((bed / "environment.json").read_text())
    with pytest.MonkeyPatch.context() as patch:
        # Not per test: SkyPilot looks at the home directory when it is imported.
        for name, value in settings.items():
            patch.setenv(name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what SkyPilot itself imports
            importlib.import_module("sky")
        yield bed
