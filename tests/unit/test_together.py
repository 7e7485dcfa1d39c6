"""Questions of many threads share one call."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests import patience

from nemo_run._transport.coalesce import Together


def test_questions_that_come_together_are_answered_together() -> None:
    calls: list[int] = []

    def answer(questions: Sequence[int]) -> list[int | Exception]:
        calls.append(len(questions))
        time.sleep(patience.seconds(0.1))  # while all others come
        return [question * 2 for question in questions]

    together: Together[int, int] = Together(answer)
    start = threading.Barrier(20)

    def ask(number: int) -> int:
        start.wait()
        return together.ask(number)

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(ask, range(20))) == [n * 2 for n in range(20)]
    assert len(calls) <= 3
    assert sum(calls) == 20


def test_whoever_asks_while_others_gather_is_answered_with_them() -> None:
    calls: list[Sequence[int]] = []

    def answer(questions: Sequence[int]) -> list[int | Exception]:
        calls.append(sorted(questions))
        return list(questions)

    together: Together[int, int] = Together(answer, gather_s=patience.seconds(0.25))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(together.ask, [1, 2])) == [1, 2]
    assert calls == [[1, 2]]


def test_when_there_are_enough_nobody_waits_for_more() -> None:
    together: Together[int, int] = Together(list, gather_s=3600, enough=1)
    assert together.ask(7) == 7


def test_an_error_that_is_one_answer_concerns_nobody_else() -> None:
    together: Together[int, int] = Together(
        lambda questions: [LookupError(q) if q == 1 else q for q in questions]
    )
    outcomes: dict[int, object] = {}

    def ask(number: int) -> None:
        try:
            outcomes[number] = together.ask(number)
        except LookupError as err:
            outcomes[number] = repr(err)

    threads = [threading.Thread(target=ask, args=[n]) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {0: 0, 1: "LookupError(1)", 2: 2}


def test_a_call_that_fails_fails_for_all_and_the_next_is_made_again() -> None:
    failing = True

    def answer(questions: Sequence[int]) -> list[int | Exception]:
        if failing:
            raise LookupError("down")
        return list(questions)

    together: Together[int, int] = Together(answer)
    for _ in range(2):
        with pytest.raises(LookupError, match="down"):
            together.ask(1)
    failing = False
    assert together.ask(1) == 1


def test_who_is_interrupted_while_others_may_still_come_leaves_nobody_waiting() -> None:
    together: Together[int, int] = Together(list, gather_s=patience.seconds(1))
    interrupt = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        together.ask(1)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(together.ask, 2).result(timeout=60) == 2
