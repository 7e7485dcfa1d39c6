from __future__ import annotations

from tests.contract.conftest import cluster  # noqa: F401  # a fixture
from tests.integration.skypilot.bed import skypilot_bed  # noqa: F401  # a fixture
