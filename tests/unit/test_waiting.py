"""Pauses of loops that look again or try again."""

from __future__ import annotations

import logging
import time

import pytest

from nemo_run._transport.waiting import Waiting


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let time pass only by sleeping, and return each sleep."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + sum(pauses))
    return pauses


def test_pauses_grow_up_to_the_longest(slept: list[float]) -> None:
    waiting = Waiting(1, 5, growth=2)
    for _ in range(5):
        waiting.pause()
    assert slept == [1, 2, 4, 5, 5]


def test_after_a_restart_they_are_short_again_and_the_deadline_stays(slept: list[float]) -> None:
    waiting = Waiting(1, 8, growth=2, timeout_s=4.5)
    waiting.pause()
    waiting.pause()
    waiting.restart()
    waiting.pause()
    assert slept == [1, 2, 1]
    assert waiting.left_s == 0.5


def test_no_pause_goes_beyond_the_deadline(slept: list[float]) -> None:
    waiting = Waiting(2, 2, timeout_s=3)
    waiting.pause()
    assert not waiting.is_over
    waiting.pause()
    waiting.pause()
    assert slept == [2, 1, 0]


def test_an_error_is_raised_when_the_next_try_would_be_too_late(slept: list[float]) -> None:
    waiting = Waiting(1, 4, growth=2, timeout_s=4)
    waiting.tolerate(OSError("first"))
    waiting.tolerate(OSError("second"))
    with pytest.raises(OSError, match="third"):
        waiting.tolerate(OSError("third"))
    assert slept == [1, 2]


def test_long_pauses_are_said_and_short_ones_only_to_those_who_debug(
    slept: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Waiting(0.5, 9, growth=3)
    with caplog.at_level(logging.INFO):
        waiting.tolerate(OSError("brief"))
        waiting.tolerate(OSError("long"))
    assert caplog.messages == ["long; trying again in 1.5 s"]


def test_jitter_spreads_pauses_around_their_length(slept: list[float]) -> None:
    waiting = Waiting(1, 1, jitter=0.3)
    for _ in range(200):
        waiting.pause()
    assert 0.7 <= min(slept) < 0.8
    assert 1.2 < max(slept) <= 1.3
