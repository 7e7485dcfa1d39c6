"""Answer questions that come at about the same time with one call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

GATHER_MAX_S = 0.3


class Together(Generic[Q, A]):
    """Collects questions of many threads while an earlier call is under way.

    ``answer`` takes all that were collected and returns an answer, or an error to raise, for each.
    Before the first call others have ``gather_s`` to come, and each arrival restarts the timer,
    until there are ``enough``.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Q]], Sequence[A | Exception]],
        *,
        gather_s: float = 0.005,
        enough: int = 1000,
    ) -> None:
        self._answer = answer
        self._gather_s = gather_s
        self._enough = enough
        self._lock = threading.Lock()
        self._waiting: list[tuple[Q, Future[A]]] = []
        self._busy = False

    def ask(self, question: Q) -> A:
        """Return the answer, or raise the error that is it."""
        future: Future[A] = Future()
        with self._lock:
            self._waiting.append((question, future))
            first, self._busy = not self._busy, True
        if first:
            self._serve()
        return future.result()

    def _gather(self) -> None:
        """Let those come that ask at about the same time, until no more do."""
        deadline = time.monotonic() + GATHER_MAX_S
        before = 0
        while before < (before := len(self._waiting)) < self._enough:
            if time.monotonic() >= deadline:
                break
            time.sleep(self._gather_s)

    def _serve(self) -> None:
        batch: list[tuple[Q, Future[A]]] = []
        try:
            self._gather()
            while batch := self._take():
                answers = self._answer([question for question, _ in batch])
                _tell(batch, answers)
        except BaseException as err:
            # Also an interrupt: no other thread must be left waiting.
            for _, future in [*batch, *self._take_last()]:
                if not future.done():
                    future.set_exception(err)
            if not isinstance(err, Exception):
                raise

    def _take(self) -> list[tuple[Q, Future[A]]]:
        with self._lock:
            batch, self._waiting = self._waiting, []
            self._busy = bool(batch)
            return batch

    def _take_last(self) -> list[tuple[Q, Future[A]]]:
        with self._lock:
            batch, self._waiting = self._waiting, []
            self._busy = False
            return batch


def _tell(batch: Sequence[tuple[Q, Future[A]]], answers: Sequence[A | Exception]) -> None:
    for (_, future), answer in zip(batch, answers, strict=True):
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
