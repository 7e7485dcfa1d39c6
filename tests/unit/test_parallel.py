"""Doing the same to several things at once, when some of it goes wrong."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from tests import patience

from nemo_run._parallel import in_parallel


def test_an_error_does_not_keep_the_others_from_being_called() -> None:
    called = []

    def act(number: int) -> None:
        called.append(number)
        if number in (1, 3):
            raise LookupError(f"number {number}")
        time.sleep(0.005)  # long enough for the error to be noticed while others wait

    with pytest.raises(LookupError, match="number 1"):
        in_parallel(act, range(20), workers=1)
    assert sorted(called) == list(range(20))


def test_there_is_something_to_do_until_the_last_has_returned() -> None:
    waiting = threading.Event()
    called: list[int] = []

    def look() -> None:
        called.append(len(called))
        if len(called) == 3:
            waiting.set()

    in_parallel(lambda number: waiting.wait(60), range(2), meanwhile=look)
    assert called == [0, 1, 2]


def test_an_error_waits_for_those_that_have_begun() -> None:
    ended = []

    def act(seconds: float) -> None:
        if not seconds:
            raise LookupError
        time.sleep(seconds)
        ended.append(seconds)

    with pytest.raises(LookupError):
        in_parallel(act, [0, 0.1, 0.2])
    assert sorted(ended) == [0.1, 0.2]


def test_being_interrupted_does_not_wait_for_those_that_have_begun() -> None:
    release = threading.Event()
    main = threading.main_thread().ident
    assert main is not None
    interrupt = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    began = time.monotonic()
    # Whoever started us may have told us to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            in_parallel(lambda _: release.wait(600), range(4), workers=2)
        assert time.monotonic() - began < patience.seconds(5)
    finally:
        release.set()
        interrupt.join()
        signal.signal(signal.SIGINT, before)
