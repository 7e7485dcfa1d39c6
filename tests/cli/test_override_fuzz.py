"""No text does anything but set a value or raise an error of ours."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.parsing_targets import CALLS, fit, kinds

import nemo_run as run
from nemo_run.cli.cli_parser import CLIException

pytestmark = pytest.mark.slow

ATTACKS = [
    "__import__('os').system('echo')",
    "().__class__.__base__.__subclasses__()",
    "lambda: CALLS.append(1)",
    "[CALLS.append(1) for x in [1]]",
    "exec('CALLS.append(1)')",
    'eval("CALLS.append(1)")',
    "9**9**9**9",
    "[0] * 10**10",
    "'a' * 10**10",
    "{" * 150,
    "[" * 90 + "]" * 90,
    "-" * 3000 + "1",
    "(" * 300,
    "1e400",
    "9" * 5000,
    "0b" + "1" * 5000,
    "f'{CALLS.append(1)}'",
    "${oc.env:HOME}",
    "@nowhere.yaml",
    "Config[nowhere.Net]",
    "Config[]",
    "b'\\xff'",
    "'\\ud800'",
    "\\",
    "\x00",
    "None, None",
    "{1: 2, [3]: 4}",
    "{[1]}",
    "{{}}",
    "a" * 100_000,
    "note" + "(" * 100,
    "small(" * 50 + ")" * 50,
    "small(width=small(width=small(width=1)))",
    "recipe(net=recipe(net=recipe))",
]
WORDS = [*"()[]{},:='\"\\.@*+-/|&% \n\té", "1", "-3", "0.5", "None", "true", "x", "RED", "small"]
WORDS += ["huge", "Net", "Config", "Partial", "width", "lambda", "if", "for", "in", "set", "dict"]
WORDS += ["tuple", "nowhere.at.all", "a.b", "b'", "f'", "1_0", "inf", "\U0001f600"]
PLACES = [*inspect.signature(kinds).parameters, "extra_one", "no.such", "net.width", "li[0]", "d.a"]
PLACES += ["t[1]", "any_.x", "shape[sides]", "net[0]", "unannotated.x", "[0]", "nets[0].width"]
PLACES += ["optim.betas[0]", "optim.betas", "default_net.width", "other.name"]
OPERATORS = ["=", "+=", "-=", "*=", "/=", "|=", "&=", "//=", "**=", "==", " = ", ""]

LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
).map(repr)
VALUES = st.one_of(
    st.sampled_from(ATTACKS),
    st.lists(st.sampled_from(WORDS), max_size=12).map("".join),
    st.text(max_size=20),
    LITERALS,
)
OVERRIDES = st.builds(
    "".join, st.tuples(st.sampled_from(PLACES), st.sampled_from(OPERATORS), VALUES)
)
LINES = st.lists(OVERRIDES | VALUES, min_size=1, max_size=4)

FORBIDDEN = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.remove"}
FORBIDDEN |= {"os.rename", "os.mkdir", "shutil.rmtree", "socket.connect", "ctypes.dlopen"}
_watched: list[str] | None = None


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if _watched is not None and event in FORBIDDEN:
        _watched.append(event)


sys.addaudithook(_watch)


@contextlib.contextmanager
def nothing_is_run() -> Iterator[None]:
    """Fail if a process is started, a function called or a file changed meanwhile."""
    global _watched
    CALLS.clear()
    seen: list[str] = []
    _watched = seen
    try:
        yield
    finally:
        _watched = None
    assert seen == []
    assert CALLS == []


@settings(max_examples=1000, deadline=5000, suppress_health_check=[HealthCheck.too_slow])
@given(LINES, st.sampled_from([kinds, fit]))
def test_any_words_give_a_task_or_an_error_of_ours(words: list[str], fn: Any) -> None:
    before = {n: repr(p.default) for n, p in inspect.signature(fn).parameters.items()}
    with nothing_is_run():
        try:
            task = run.cli.parse_partial(fn, *words)
        except CLIException as err:
            assert err.user_friendly_message().startswith("Error processing argument ")
            assert "unexpected error" not in err.message
        else:
            assert isinstance(task, run.Partial)
    assert {n: repr(p.default) for n, p in inspect.signature(fn).parameters.items()} == before


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda text: text[:30])
def test_each_of_these_texts_is_harmless_everywhere(attack: str) -> None:
    for place in PLACES:
        for operator in ("=", "+=", "*="):
            with nothing_is_run():
                try:
                    run.cli.parse_partial(kinds, f"{place}{operator}{attack}")
                except CLIException as err:
                    assert "unexpected error" not in err.message
