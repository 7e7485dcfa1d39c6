"""Marks that the driver puts into a job's log: where it begins, how each try ended, its end.

Ray writes lines of its own before the first mark. A mark has a nonce that the task does not know.
"""

from __future__ import annotations

import hashlib
import re

_LONGEST = 120
"""Bytes of the longest mark."""


def nonce_of(tag: str) -> str:
    """Return what is in the marks of a job; its tag is in no place that the task can see."""
    return hashlib.sha256(f"mark\0{tag}".encode()).hexdigest()[:16]


class Marks:
    """Takes the marks out of a log that comes in pieces.

    Attributes:
        tries: how many tries have ended.
        begun, finished: whether the first, and the last mark were seen.
    """

    def __init__(self, nonce: str) -> None:
        start = rf"\[nemo_run {re.escape(nonce)} "
        self._pattern = re.compile(
            (start + r"(begin|end|try (\d{1,9}) ended with exit code (\d{1,3}))\]\n").encode()
        )
        self._start = f"[nemo_run {nonce} ".encode()
        self._held = b""
        self._open = b""
        self.tries = 0
        self.begun = False
        self.finished = False

    def feed(self, block: bytes) -> bytes:
        """Return whole lines of the task's own; what may be a part of a mark is kept back."""
        text = self._held + block
        parts, begin = [], 0
        for mark in self._pattern.finditer(text):
            parts.append(self._shown(text[begin : mark.start()]))
            begin = mark.end()
            self._note(mark)
        rest = text[begin:]
        cut = rest.rfind(b"\n") + 1
        at = rest.rfind(self._start, max(0, len(rest) - _LONGEST))
        if at >= 0:
            cut = min(cut, at)
        if not self.begun:
            cut = 0
        parts.append(self._shown(rest[:cut]))
        self._held = rest[cut:]
        return b"".join(parts)

    def rest(self) -> bytes:
        """Return what is left of a log that has ended, which may lack its line's end."""
        shown = self._shown(self._held)
        left, self._held, self._open = self._open, b"", b""
        return shown + left

    def before(self) -> bytes:
        """Return what Ray itself has written to the log of a task that was never started."""
        return b"" if self.begun else self._held

    def _note(self, mark: re.Match[bytes]) -> None:
        self.begun = True
        self.finished = mark[1] == b"end"
        if mark[2]:
            self.tries = int(mark[2])

    def _shown(self, text: bytes) -> bytes:
        """Return the whole lines of ``text``; the last line of a try need not be whole."""
        if not text or not self.begun:
            return b""
        # What the next try says is not a part of that line.
        before = self._open + b"\n" if self._open else b""
        cut = text.rfind(b"\n") + 1
        self._open = text[cut:]
        return before + text[:cut]
