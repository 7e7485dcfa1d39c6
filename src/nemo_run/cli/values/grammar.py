"""How the words of a command line are written: overrides, calls of factories, paths, quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from nemo_run.cli.values.errors import ArgumentParsingError

_OVERRIDE = re.compile(
    r"\s*(?P<key>[\w.\[\]]+)\s*(?P<op>\+=|-=|\*=|/=|\|=|&=|=)\s*(?P<value>\S.*)", re.DOTALL
)
_PATH = re.compile(r"(?:\w+|\[\w+\])(?:\.\w+|\[\w+\])*")
_STEP = re.compile(r"\.?(?P<name>\w+)|\[(?P<key>\w+)\]")
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_CALL = re.compile(rf"(?P<name>{_DOTTED})\s*(?P<arguments>\(.*\))?", re.DOTALL)
_BUILDABLE = re.compile(rf"(?:run\.)?(?P<kind>Config|Partial)(?:\[(?P<target>{_DOTTED})\])?")
_FILE = re.compile(
    r"@(?P<path>[\w./\\-][\w./\\ -]*\.(?:yaml|yml|json|toml))(?::(?P<section>[\w-]+))?"
)

_CLOSERS = {"(": ")", "[": "]", "{": "}"}


class Operation(Enum):
    """What an override does with the value that is there."""

    ASSIGN = "="
    ADD = "+="
    SUBTRACT = "-="
    MULTIPLY = "*="
    DIVIDE = "/="
    OR = "|="
    AND = "&="
    UNION = "|="


@dataclass(frozen=True)
class Item:
    """A step into a list or dict; a step to a parameter is a plain ``str``."""

    key: int | str


Step = str | Item


@dataclass(frozen=True)
class Override:
    """One change to make.

    Attributes:
        key: where, such as ``model.layers[0].size``.
        operation: what to do with the value that is there.
        value: with what.
        is_text: ``value`` is as typed on a command line. Otherwise it comes from a file or from
            Python: a string is a string, unless what it is for says something else.
        is_whole: a mapping says everything, and what else a dict there holds is dropped.
        file: which file it comes from; empty where it comes from elsewhere.
    """

    key: str
    operation: Operation
    value: Any
    is_text: bool = True
    is_whole: bool = False
    file: str = ""

    def __str__(self) -> str:
        where = f" in {self.file}" if self.file else ""
        return f"{self.key}{self.operation.value}{self.value}{where}"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The key taken apart.

        Raises:
            ArgumentParsingError: it is not a path.
        """
        if not _PATH.fullmatch(self.key):
            raise ArgumentParsingError(
                f"{self.key!r} is not a path to a parameter. Write it like model.layers[0].size",
                str(self),
            )
        return tuple(
            match["name"] or Item(int(match["key"]) if match["key"].isdecimal() else match["key"])
            for match in _STEP.finditer(self.key)
        )


def parse_override(word: str) -> Override:
    """Take ``key=value``, or the same with another operator, apart.

    Raises:
        ArgumentParsingError: the word is of another form.
    """
    match = _OVERRIDE.fullmatch(word)
    if match is None:
        raise ArgumentParsingError(f"Invalid argument format: {_complaint(word)}", word)
    override = Override(match["key"], Operation(match["op"]), match["value"])
    _ = override.steps
    return override


def _complaint(word: str) -> str:
    key, equals, value = word.partition("=")
    if not equals:
        return f"{word!r} is not of the form key=value"
    if not value.strip():
        return f"no value after {key + equals!r}. Write {key}='\"\"' for an empty text"
    operators = ", ".join(operation.value for operation in Operation)
    return f"{key!r} is not a name followed by one of {operators}"


@dataclass(frozen=True)
class Call:
    """The name of a factory and, where it was written with parentheses, what is in them."""

    name: str
    arguments: tuple[str, ...] | None = None


def parse_call(text: str) -> Call | None:
    """Take ``name``, ``pkg.name`` or ``name(arg=value, ...)`` apart; None for anything else."""
    match = _CALL.fullmatch(text.strip())
    if match is None:
        return None
    if match["arguments"] is None:
        return Call(match["name"])
    inside = match["arguments"][1:-1]
    try:
        return Call(match["name"], tuple(split(inside)))
    except ArgumentParsingError:
        return None


def parse_list(text: str) -> list[str] | None:
    """Return the elements of ``[a, b(c=1)]`` as written; None for anything else."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        return split(text[1:-1])
    except ArgumentParsingError:
        return None


def split(text: str) -> list[str]:
    """Split at the commas that are neither in brackets nor in quotes; one at the end is fine.

    Raises:
        ArgumentParsingError: a bracket or a quote has no partner, or nothing is between commas.
    """
    parts: list[str] = []
    waiting: list[str] = []
    quote = ""
    start = position = 0
    while position < len(text):
        char = text[position]
        if quote:
            if char == "\\":
                position += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        elif char in _CLOSERS:
            waiting.append(_CLOSERS[char])
        elif char in ")]}":
            if not waiting or waiting.pop() != char:
                raise ArgumentParsingError(f"{char!r} closes nothing in {text!r}", text)
        elif char == "," and not waiting:
            parts.append(text[start:position].strip())
            start = position + 1
        position += 1
    if quote or waiting:
        raise ArgumentParsingError(f"{quote or waiting[-1]!r} is missing in {text!r}", text)
    parts.append(text[start:].strip())
    if not parts[-1]:
        parts.pop()
    if "" in parts:
        raise ArgumentParsingError(f"Nothing between two commas in {text!r}", text)
    return parts


@dataclass(frozen=True)
class BuildableWord:
    """``Config``, ``Partial``, or either with a target in brackets."""

    kind: str
    target: str | None


def parse_buildable(text: str) -> BuildableWord | None:
    """Take ``Config`` or ``Partial[pkg.fn]`` apart; None for anything else."""
    match = _BUILDABLE.fullmatch(text.strip())
    return BuildableWord(match["kind"], match["target"]) if match else None


@dataclass(frozen=True)
class FileValue:
    """A config file, and the section of it that is meant."""

    path: str
    section: str | None


def parse_file(text: str) -> FileValue | None:
    """Take ``@path/file.yaml`` or ``@file.toml:section`` apart; None for anything else."""
    match = _FILE.fullmatch(text.strip())
    return FileValue(match["path"], match["section"]) if match else None
