"""Python-like values, evaluated without running Python."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import patience

from nemo_run.cli.cli_parser import ArgumentValueError, PythonicParser

parser = PythonicParser()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("'q'", "q"),
        ("None", None),
        ("(1, 2)", (1, 2)),
        ("{1: 2}", {1: 2}),
        ("hello", "hello"),
        ("1 + 2", "1 + 2"),
        ("f(x)", "f(x)"),
        ("dict(a=1, b=[2])", {"a": 1, "b": [2]}),
        ("dict()", {}),
        ("list(1, 2)", [1, 2]),
        ("list((1, 2))", [1, 2]),
        ("tuple(1, 2)", (1, 2)),
        ("set(1, 2, 2)", {1, 2}),
        ("dict(a=word)", {"a": "word"}),
        ("[x for x in range(3)]", [0, 1, 2]),
        ("[x * y for x in [1, 2] for y in (3, 4) if x != y]", [3, 4, 6, 8]),
        ("{k: v for k, v in [('a', 1)]}", {"a": 1}),
        ("{x % 2 for x in range(5)}", {0, 1}),
        ("1 if True else 2", 1),
        ("'a' if 3 < 2 else 'b'", "b"),
        ("len([1, 2]) if not [] and 1 in [1] else 0", 2),
        ("[s[1:] for s in ['ab', 'cd']]", ["b", "d"]),
        ("[sum(x for x in range(n)) for n in range(4)]", [0, 0, 1, 3]),
        ("[-x ** 2 for x in [3]]", [-9]),
    ],
)
def test_literals_constructors_comprehensions_and_conditions(text: str, value: Any) -> None:
    made = parser.parse_value(text)
    assert made == value
    assert type(made) is type(value)


def test_a_lambda_is_a_function_of_safe_operations() -> None:
    add = parser.parse_value("lambda x, y=2: x + y")
    assert add(1) == 3
    assert add(1, y=5) == 6
    assert parser.parse_value("lambda: max([1, 2])")() == 2
    for args in ((), (1, 2, 3)):
        with pytest.raises(TypeError, match="this lambda"):
            add(*args)


@pytest.mark.parametrize(
    "text",
    [
        "lambda x: open(x)",
        "lambda x: x.__class__",
        "lambda x: __import__('os')",
        "lambda *a: 1",
        "[open('x') for x in range(1)]",
        "[().__class__ for x in [1]]",
        "[x.upper() for x in ['a']]",
        "['%s' % x for x in [1]]",
        "[f'{x}' for x in [1]]",
        "[(y := x) for x in [1]]",
        "x if y else z",
        "1 if __import__('os') else 2",
        "[x for x in 5]",
        "[1 / x for x in [0]]",
        "[x[5] for x in [[1]]]",
        "[a for a, b in [(1, 2, 3)]]",
        "dict(1)",
        "dict(**{})",
        "[sorted([1], key=abs) for x in [1]]",
    ],
)
def test_what_is_not_safe_or_not_possible_is_refused(text: str) -> None:
    with pytest.raises(ArgumentValueError, match="Error parsing"):
        parser.parse_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "[x for x in range(10**9)]",
        "[x for x in range(999999999)]",
        "[9 ** 9 ** 9 for x in [1]]",
        "[[0] * 999999999 for x in [1]]",
        "['a' * 99999 * 99999 for x in [1]]",
        "[list(range(90000)) for x in range(90000)]",
        "[y for x in range(9999) for y in range(9999)]",
        "[sum(range(999999999)) for x in [1]]",
        "[2 << 99999999999 for x in [1]]",
    ],
)
def test_what_would_take_too_long_is_refused_quickly(text: str) -> None:
    started = time.monotonic()
    with pytest.raises(ArgumentValueError, match="Error parsing"):
        parser.parse_value(text)
    assert time.monotonic() - started < patience.seconds(5)


def test_a_lambda_that_runs_on_is_stopped() -> None:
    endless = parser.parse_value("lambda n: [x for x in range(n)]")
    with pytest.raises(ValueError, match="too long"):
        endless(10**9)


def test_nothing_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    touch = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    for text in (touch, f"list({touch})", f"[{touch} for x in [1]]", f"1 if {touch} else 2"):
        try:
            parser.parse_value(text)
        except ArgumentValueError:
            continue
    assert not marker.exists()


WORDS = [*"x19()[]{},:=*.-", "**", "99", "'a'", "not", "for", "in", "if", "else", "lambda"]
WORDS += ["range", "list", "dict", "sum", "open"]


@given(st.one_of(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join), st.text(max_size=30)))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        parser.parse_value(text)
    except ArgumentValueError as err:
        assert err.arg == text
