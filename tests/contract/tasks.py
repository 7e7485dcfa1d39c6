"""Functions that jobs of the tests run."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Net:
    width: int = 8


def say(text: str = "hello") -> None:
    print(text)


def fit(net: Net, steps: int = 10) -> None:
    print("width", net.width, "steps", steps)


def append(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


def note_process(path: str) -> None:
    Path(path).write_text(str(os.getpid()))


def fail(code: int = 3) -> None:
    print("about to fail")
    sys.exit(code)


def explode() -> None:
    raise LookupError("nothing there")


def show_variable(name: str) -> None:
    print(os.environ.get(name, "unset"))


def sleep(seconds: float) -> None:
    time.sleep(seconds)
