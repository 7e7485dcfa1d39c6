"""Durations as people read them."""

from __future__ import annotations

import pytest

from nemo_run._experiments.display.durations import elapsed


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (3.21, "3.2 s"), (307, "5:07"), (3600, "1:00:00"), (-0.04, "0.0 s")],
)
def test_durations_are_written_as_people_do(seconds: float | None, text: str) -> None:
    assert elapsed(seconds) == text
