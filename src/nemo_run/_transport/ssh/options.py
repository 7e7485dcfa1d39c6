"""How to run a command: the words that `Tunnel.run` takes beside it, which are Invoke's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import IO, Any, Protocol

from nemo_run.exceptions import ConfigError

_BOLD = "\033[1;37m{command}\033[0m"

# What is hidden, in Invoke's words, and which of the two streams are shown then.
_SHOWN: dict[bool | str | None, tuple[bool, bool]] = {
    True: (False, False),
    "both": (False, False),
    "out": (False, True),
    "stdout": (False, True),
    "err": (True, False),
    "stderr": (True, False),
    False: (True, True),
    None: (True, True),
}

# Words of Invoke's that change nothing here: input is only mirrored by terminals, and a terminal
# is made where there is none.
_WITHOUT_EFFECT = {"echo_stdin", "fallback"}
_NOT_WAITING = {"asynchronous", "disown"}


class Watcher(Protocol):
    """What answers a command: `invoke.StreamWatcher` and its like."""

    def submit(self, stream: str) -> Iterable[str]:
        """Return answers to all that the command has written to one stream so far."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run a command.

    Attributes:
        hide: which streams are kept from the terminal.
        timeout: seconds until the command is given up.
        input: what it reads, as a whole.
        in_stream: a file that it reads from until its end.
        pty: give it a terminal of its own; what it writes is then one stream.
        watchers: asked after each piece of output for answers to it.
        env: variables for it, beside those that are there, or instead of them (``replace_env``).
        encoding: of its output and of answers.
        echo: show the command before it is run, as ``echo_format`` says.
        dry: show it and do not run it.
        out_stream, err_stream: where output is shown instead of the terminal, never hidden.
        shell: the program that runs it on this machine.
    """

    hide: bool | str | None = True
    timeout: float | None = None
    input: bytes | None = None
    in_stream: IO[Any] | None = None
    pty: bool = False
    watchers: tuple[Watcher, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    replace_env: bool = False
    encoding: str = "utf-8"
    echo: bool = False
    echo_format: str = _BOLD
    dry: bool = False
    out_stream: IO[str] | None = None
    err_stream: IO[str] | None = None
    shell: str = ""

    @classmethod
    def of(cls, hide: bool | str | None, given: Mapping[str, Any]) -> RunOptions:
        """Return what ``given`` asks for.

        Raises:
            ConfigError: a word is not known, or asks for what cannot be done.
        """
        words = {name: value for name, value in given.items() if name not in _WITHOUT_EFFECT}
        if waits_not := sorted(name for name in _NOT_WAITING if words.pop(name, None)):
            raise ConfigError(
                f"run() waits for its command: {waits_not[0]}=True is not possible. Have a shell "
                "go on with it, `nohup ... >log 2>&1 &`, or call run() in a thread."
            )
        known = {each.name for each in fields(cls)}
        if unknown := sorted(words.keys() - known):
            raise ConfigError(
                f"run() does not know {', '.join(map(repr, unknown))}. "
                f"It takes: {', '.join(sorted(known))}."
            )
        if hide not in _SHOWN:
            raise ConfigError(f"hide is True, False, 'out' or 'err', not {hide!r}.")
        return cls(hide=hide, **_converted(words))

    @property
    def stdin(self) -> int:
        """What a process gets as its stdin: a pipe where there is something to say to it."""
        talks = self.input is not None or self.in_stream is not None or self.watchers
        return subprocess.PIPE if talks else subprocess.DEVNULL

    @property
    def sinks(self) -> tuple[IO[str] | None, IO[str] | None]:
        """Where its two streams are shown; None for one that is hidden."""
        out, err = _SHOWN[self.hide]
        return (
            self.out_stream or (sys.stdout if out else None),
            self.err_stream or (sys.stderr if err else None),
        )

    @property
    def hidden(self) -> tuple[str, ...]:
        """The names of the streams that are not shown."""
        names = ("stdout", "stderr")
        return tuple(name for name, sink in zip(names, self.sinks, strict=True) if sink is None)


def _converted(words: dict[str, Any]) -> dict[str, Any]:
    """Return Invoke's words with None, False and text as our types have them."""
    plain = {name: value for name, value in words.items() if value is not None}
    if plain.get("in_stream") is False:  # Invoke's way to say that nothing is to be read
        del plain["in_stream"]
    if isinstance(plain.get("input"), str):
        plain["input"] = plain["input"].encode()
    if "watchers" in plain:
        plain["watchers"] = tuple(plain["watchers"])
    if "env" in plain:
        plain["env"] = {name: str(value) for name, value in plain["env"].items()}
    return plain
